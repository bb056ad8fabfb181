"""roi_align: features of regions of interest, sampled on a regular grid in each bin (Mask R-CNN, He et al. 2017).

The positions of samples are computed axis by axis (roi_axis.pxd).  Then, VECTOR channels at a time, a tile has pixels
with channels last, and all sums run along channels, each in MMCV's order of operations: the results equal MMCV's bit
for bit.  No bin uses a pixel that none of its samples needs, so no NaN leaks.

If regions are few, the tile has the pixels that one of them uses.  If together they use the map's pixels several times,
it has the map: the positions of all regions are computed first, and then all regions read the same tile.
"""
from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions cimport (INPUT, OUTPUT_HEIGHT, OUTPUT_WIDTH, ROIS, SAMPLING_RATIO, check_attributes,
                                     check_region, set_output)
from mmort._kernels.kernels cimport mmk_item, mmk_sort
from mmort._kernels.roi_axis cimport MODE, Axis, count_taps, divide, find_taps, scale_taps, set_sizes
from mmort._kernels.workspace cimport element_size, take

cdef enum:  # modes
    AVG
    MAX

cdef enum:  # phases, before the last, which computes the output
    MEASURE
    LOCATE  # only where regions share tiles

cdef enum:
    ROI = 5  # batch index, x1, y1, x2, y2
    VECTOR = 8  # channels, or columns, handled at once
    BLOCK = 32  # channels of a unit of work: enough to amortise the preparation of a region
    EMPTY_MAX = -10000  # MMCV's maximum over no samples
    MIN_SHARES = 1  # how often regions use a pixel, on average, from which on they share tiles
    LONG_REGION = 1 << 20  # pairs of taps, from which on a few channels take milliseconds

cdef enum:  # picoseconds
    MEASURE_COST = 30000  # per region
    REGION_COST = 300000  # roi_align, 1 region of 1x1x8x8
    # and per channel: roi_align, 1000 regions of 1x256x200x304 and 2x256x100x152
    PIXEL_COST = 300
    SAMPLE_COST = 400
    BIN_COST = 200


cdef struct _Capacity:  # what the largest region needs
    ptrdiff_t[2] taps
    ptrdiff_t pixels


cdef struct _Region:  # one that shares tiles
    ptrdiff_t[2] taps
    size_t offset     # of its axes, in the scratch memory
    ptrdiff_t top     # of the rows in use
    ptrdiff_t bottom  # behind them


cdef struct _Shared:
    _Capacity *capacity
    _Region *regions
    mmk_item *order  # of the regions: by image, then by row
    mmk_item *spare
    size_t axes      # address of the first region's
    size_t size


cdef struct _Workspace:
    Axis[2] axes  # rows, columns
    void *bins    # [bin][channel]
    void *tile    # [row slot][column slot][channel]
    size_t size


cdef bint _shares(const mmk_call *call) noexcept nogil:
    return call.phases > LOCATE + 1


cdef _Shared _shared(const mmk_call *call, const void *scratch) noexcept nogil:
    cdef _Shared s
    cdef size_t address = <size_t>scratch, regions = call.inputs[ROIS].shape[0]
    s.capacity = <_Capacity *>take(&address, sizeof(_Capacity))
    s.regions = <_Region *>take(&address, regions * sizeof(_Region))
    s.order = <mmk_item *>take(&address, regions * sizeof(mmk_item))
    s.spare = <mmk_item *>take(&address, regions * sizeof(mmk_item))
    s.axes = address
    s.size = address - <size_t>scratch
    return s


cdef void _take_axes(size_t *address, Axis *axes, const ptrdiff_t *taps, size_t width) noexcept nogil:
    """Gives both axes memory for that many taps, whose weights have `width` bytes; pixels are their own slots."""
    cdef Axis *axis
    cdef int i
    for i in range(2):
        axis = &axes[i]
        axis.begin = <ptrdiff_t *>take(address, (axis.bins + 1) * sizeof(ptrdiff_t))
        axis.outside = <char *>take(address, axis.bins)
        axis.slot = NULL
        axis.tap = <ptrdiff_t *>take(address, taps[i] * sizeof(ptrdiff_t))
        axis.weight = take(address, taps[i] * width)


cdef _Workspace _workspace(const mmk_call *call, const _Capacity *capacity, const void *scratch) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>scratch, width = element_size(call.inputs[INPUT].type)
    cdef Axis *axis
    cdef int i
    set_sizes(call, w.axes)
    if not _shares(call):
        _take_axes(&address, w.axes, capacity.taps, width)
        for i in range(2):
            axis = &w.axes[i]
            axis.slot = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
            axis.used = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
    w.bins = take(&address, w.axes[0].bins * w.axes[1].bins * VECTOR * width)
    w.tile = take(&address, capacity.pixels * VECTOR * width)
    w.size = address - <size_t>scratch
    return w


cdef void _count_taps(const mmk_call *call, const real *roi, const Axis *axes, ptrdiff_t *taps) noexcept nogil:
    cdef real start, bin_size, grid
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start, &bin_size, &grid)
        taps[axis] = count_taps(&axes[axis], start, bin_size, grid) if grid > 0 else 0


cdef void _set_order(const mmk_call *call, const real *rois, const _Shared *shared) noexcept nogil:
    """Orders the regions by image and by their first row, so that a cache holds the pixels of neighbours."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], k
    cdef const mmk_item *ordered
    cdef real start, bin_size, grid
    cdef double row
    for k in range(regions):
        divide(call, rois + ROI * k, 0, &start, &bin_size, &grid)
        row = min(max(<double>start, 0.0), <double>call.inputs[INPUT].shape[2])
        shared.order[k].key = (<uint64_t><int64_t>rois[ROI * k] << 32) + <uint64_t>row
        shared.order[k].index = k
    ordered = mmk_sort(shared.order, shared.spare, regions)
    if ordered != shared.order:
        memcpy(shared.order, ordered, regions * sizeof(mmk_item))


cdef void _measure(mmk_call *call, const real *rois) noexcept nogil:
    """Computes how much scratch memory the largest region needs; where regions share tiles, where each has its axes."""
    cdef _Capacity *capacity = <_Capacity *>call.scratch
    cdef _Shared shared = _shared(call, call.scratch)
    cdef size_t address = shared.axes
    cdef ptrdiff_t[2] taps
    cdef Axis[2] axes
    cdef int64_t k
    cdef int axis
    memset(capacity, 0, sizeof(_Capacity))
    set_sizes(call, axes)
    for k in range(call.inputs[ROIS].shape[0]):
        _count_taps(call, rois + ROI * k, axes, taps)
        if _shares(call):
            shared.regions[k].offset = address - <size_t>call.scratch
            for axis in range(2):
                shared.regions[k].taps[axis] = taps[axis]
            _take_axes(&address, axes, taps, sizeof(real))
        for axis in range(2):
            capacity.taps[axis] = max(capacity.taps[axis], taps[axis])
        capacity.pixels = max(capacity.pixels, min(axes[0].pixels, taps[0]) * min(axes[1].pixels, taps[1]))
    if _shares(call):
        capacity.pixels = axes[0].pixels * axes[1].pixels
        _set_order(call, rois, &shared)
    call.worker_scratch_size[call.phases - 1] = _workspace(call, capacity, NULL).size


# ---- VECTOR channels of a region -------------------------------------------------------------------------------------

cdef inline void _transpose(const real *pixels, const ptrdiff_t *steps, ptrdiff_t count, real *tile) noexcept nogil:
    """Sets tile[pixel][channel] to at least VECTOR adjacent pixels, of VECTOR channels at `steps` from `pixels`."""
    cdef ptrdiff_t j = 0, c, i
    cdef const real *block
    while j < count:
        j = min(j, count - VECTOR)  # the last block may overlap the one before
        block = pixels + j
        for c in range(VECTOR):
            for i in range(VECTOR):
                tile[(j + i) * VECTOR + c] = block[steps[c] + i]
        j += VECTOR


cdef simd_void _gather(const real *planes, const ptrdiff_t *steps, const Axis *rows, const Axis *columns,
                       real *tile) noexcept nogil:
    """Sets tile[row slot][column slot][channel] to the pixels in use, of VECTOR channels at `steps` from `planes`."""
    cdef ptrdiff_t r, j, c
    cdef ptrdiff_t width = columns.used_count
    cdef const ptrdiff_t *used = columns.used
    cdef const real *row
    cdef bint adjacent = width >= VECTOR and used[width - 1] - used[0] == width - 1
    for r in range(rows.used_count):
        row = planes + rows.used[r] * columns.pixels
        if adjacent:
            _transpose(row + used[0], steps, width, tile)
        else:
            for j in range(width):
                for c in range(VECTOR):
                    tile[j * VECTOR + c] = row[steps[c] + used[j]]
        tile += width * VECTOR


cdef simd_void _copy(const real *planes, const ptrdiff_t *steps, ptrdiff_t first, ptrdiff_t last,
                     real *tile) noexcept nogil:
    """Sets tile[pixel][channel] for pixels [first, last) of VECTOR channels at `steps` from `planes`."""
    cdef ptrdiff_t j, c
    if last - first >= VECTOR:
        _transpose(planes + first, steps, last - first, tile + first * VECTOR)
    else:
        for j in range(first, last):
            for c in range(VECTOR):
                tile[j * VECTOR + c] = planes[steps[c] + j]


cdef simd_void _average(const real *tile, const Axis *rows, const Axis *columns, real samples,
                        real *bins) noexcept nogil:
    """Sets bins[row][column][channel] to the mean of the samples."""
    cdef real[VECTOR] total
    cdef const real *row_weight = <const real *>rows.weight
    cdef const real *column_weight = <const real *>columns.weight
    cdef const real *top
    cdef const real *bottom
    cdef real top_left, top_right, bottom_left, bottom_right
    cdef ptrdiff_t b, x, t, u, left, right, c
    for b in range(rows.bins):
        for x in range(columns.bins):
            for c in range(VECTOR):
                total[c] = 0
            for t in range(rows.begin[b], rows.begin[b + 1], 2):
                top = tile + rows.tap[t]
                bottom = tile + rows.tap[t + 1]
                for u in range(columns.begin[x], columns.begin[x + 1], 2):
                    left = columns.tap[u]
                    right = columns.tap[u + 1]
                    top_left = row_weight[t] * column_weight[u]
                    top_right = row_weight[t] * column_weight[u + 1]
                    bottom_left = row_weight[t + 1] * column_weight[u]
                    bottom_right = row_weight[t + 1] * column_weight[u + 1]
                    for c in range(VECTOR):
                        total[c] += (((top_left * top[left + c] + top_right * top[right + c])
                                      + bottom_left * bottom[left + c]) + bottom_right * bottom[right + c])
            for c in range(VECTOR):
                bins[c] = total[c] / samples
            bins += VECTOR


cdef simd_void _maximum(const real *tile, const Axis *rows, const Axis *columns, ptrdiff_t lanes,
                        real *bins) noexcept nogil:
    """Sets bins[row][column][channel] to the largest sample: NaN if any is, and at least 0 if any is outside."""
    # `lanes` is VECTOR, but gcc 12 would unroll a loop of known length before it could vectorise the choice
    cdef real[VECTOR] largest
    cdef const real *row_weight = <const real *>rows.weight
    cdef const real *column_weight = <const real *>columns.weight
    cdef const real *top
    cdef const real *bottom
    cdef real top_left, top_right, bottom_left, bottom_right, value
    cdef ptrdiff_t b, x, t, u, left, right, c
    for b in range(rows.bins):
        for x in range(columns.bins):
            for c in range(lanes):
                largest[c] = 0 if rows.outside[b] or columns.outside[x] else -INFINITY
            for t in range(rows.begin[b], rows.begin[b + 1], 2):
                top = tile + rows.tap[t]
                bottom = tile + rows.tap[t + 1]
                for u in range(columns.begin[x], columns.begin[x + 1], 2):
                    left = columns.tap[u]
                    right = columns.tap[u + 1]
                    top_left = row_weight[t] * column_weight[u]
                    top_right = row_weight[t] * column_weight[u + 1]
                    bottom_left = row_weight[t + 1] * column_weight[u]
                    bottom_right = row_weight[t + 1] * column_weight[u + 1]
                    for c in range(lanes):
                        value = (((top_left * top[left + c] + top_right * top[right + c])
                                  + bottom_left * bottom[left + c]) + bottom_right * bottom[right + c])
                        largest[c] = value if (largest[c] < value) | (value != value) else largest[c]
            for c in range(lanes):
                bins[c] = largest[c]
            bins += VECTOR


cdef simd_void _write(const real *bins, ptrdiff_t count, ptrdiff_t channels, real *output) noexcept nogil:
    """Copies bins[bin][channel] to output[channel][bin]."""
    cdef ptrdiff_t b = 0, c, i
    if channels == VECTOR and count >= VECTOR:
        while b < count:
            b = min(b, count - VECTOR)  # the last block may overlap the one before
            for c in range(VECTOR):
                for i in range(VECTOR):
                    output[c * count + b + i] = bins[(b + i) * VECTOR + c]
            b += VECTOR
    else:
        for c in range(channels):
            for b in range(count):
                output[c * count + b] = bins[b * VECTOR + c]


cdef void _fill(real *output, ptrdiff_t size, real value) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(size):
        output[i] = value


# ---- regions ---------------------------------------------------------------------------------------------------------

cdef bint _find_axes(const mmk_call *call, const real *roi, Axis *axes) noexcept nogil:
    """Finds the taps of both axes; returns whether the region has samples at all, inside or outside."""
    cdef real[2] start
    cdef real[2] bin_size
    cdef real[2] grid
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start[axis], &bin_size[axis], &grid[axis])
    if grid[0] <= 0 or grid[1] <= 0:
        return False
    for axis in range(2):
        find_taps(&axes[axis], start[axis], bin_size[axis], grid[axis])
    return True


cdef real _samples(const mmk_call *call, const real *roi) noexcept nogil:
    """Returns the number of samples in a bin, 0 or less if there are none."""
    cdef real[2] grid
    cdef real start, bin_size
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start, &bin_size, &grid[axis])
    return grid[0] * grid[1] if grid[0] > 0 and grid[1] > 0 else 0


cdef void _steps(const mmk_call *call, ptrdiff_t channels, ptrdiff_t *steps) noexcept nogil:
    """Sets the distances of VECTOR planes, of which `channels` remain, from the first."""
    cdef ptrdiff_t k
    for k in range(VECTOR):  # a missing channel repeats the last one
        steps[k] = min(k, channels - 1) * call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]


cdef void _reduce(const mmk_call *call, const Axis *axes, const real *tile, real samples, ptrdiff_t channels,
                  real *bins, real *output) noexcept nogil:
    """Computes up to VECTOR channels of a region from a tile."""
    cdef ptrdiff_t size = axes[0].bins * axes[1].bins
    if call.attributes[MODE].i == AVG:
        _average(tile, &axes[0], &axes[1], samples, bins)
    else:
        _maximum(tile, &axes[0], &axes[1], VECTOR, bins)
    _write(bins, size, min(<ptrdiff_t>VECTOR, channels), output)


cdef bint _is_long(const Axis *axes) noexcept nogil:
    return axes[0].begin[axes[0].bins] * axes[1].begin[axes[1].bins] > LONG_REGION


cdef void _align_region(mmk_call *call, const real *roi, const real *planes, ptrdiff_t channels, _Workspace *w,
                        real *output) noexcept nogil:
    """Computes up to BLOCK channels of a region."""
    cdef Axis *rows = &w.axes[0]
    cdef Axis *columns = &w.axes[1]
    cdef ptrdiff_t size = rows.bins * columns.bins, plane_size = rows.pixels * columns.pixels, c = 0
    cdef ptrdiff_t[VECTOR] steps
    cdef real samples = _samples(call, roi)
    cdef bint is_long
    if not _find_axes(call, roi, w.axes):
        _fill(output, channels * size, 0 if call.attributes[MODE].i == AVG else EMPTY_MAX)
        return
    scale_taps(columns, VECTOR)
    scale_taps(rows, columns.used_count * VECTOR)
    is_long = _is_long(w.axes)
    while c < channels and not (is_long and mmk_is_stopped(call)):
        _steps(call, channels - c, steps)
        _gather(planes + c * plane_size, steps, rows, columns, <real *>w.tile)
        _reduce(call, w.axes, <real *>w.tile, samples, channels - c, <real *>w.bins, output + c * size)
        c += VECTOR


cdef void _align(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                 void *scratch) noexcept nogil:
    """Computes units [begin, end): BLOCK channels of one region after another, so that their planes stay in cache."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]
    cdef ptrdiff_t size = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t unit, k, channel
    cdef _Workspace w = _workspace(call, <const _Capacity *>call.scratch, scratch)
    cdef int axis
    for axis in range(2):
        memset(w.axes[axis].slot, 0, w.axes[axis].pixels * sizeof(ptrdiff_t))
    for unit in range(begin, end):
        k = unit % regions
        channel = unit // regions * BLOCK
        _align_region(call, rois + ROI * k, input + (<ptrdiff_t>rois[ROI * k] * channels + channel) * plane_size,
                      min(<ptrdiff_t>BLOCK, channels - channel), &w, output + (k * channels + channel) * size)


# ---- regions that share tiles ----------------------------------------------------------------------------------------

cdef void _stored_axes(const mmk_call *call, const _Region *region, Axis *axes) noexcept nogil:
    """Initialises both axes with the region's memory."""
    cdef size_t address = <size_t>call.scratch + region.offset
    set_sizes(call, axes)
    _take_axes(&address, axes, region.taps, element_size(call.inputs[INPUT].type))


cdef void _locate(mmk_call *call, const real *rois, int64_t begin, int64_t end) noexcept nogil:
    """Finds the axes of regions [begin, end), and sets their keys in the order."""
    cdef _Shared shared = _shared(call, call.scratch)
    cdef _Region *region
    cdef Axis[2] axes
    cdef ptrdiff_t k, t
    for k in range(begin, end):
        region = &shared.regions[k]
        _stored_axes(call, region, axes)
        region.top = axes[0].pixels
        region.bottom = 0
        if _find_axes(call, rois + ROI * k, axes):
            for t in range(axes[0].begin[axes[0].bins]):
                region.top = min(region.top, axes[0].tap[t])
                region.bottom = max(region.bottom, axes[0].tap[t] + 1)
            scale_taps(&axes[1], VECTOR)
            scale_taps(&axes[0], axes[1].pixels * VECTOR)


cdef void _align_shared(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                        void *scratch) noexcept nogil:
    """Computes units [begin, end): VECTOR channels of one region after another."""
    cdef _Shared shared = _shared(call, call.scratch)
    cdef _Workspace w = _workspace(call, shared.capacity, scratch)
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t pixels = w.axes[0].pixels * w.axes[1].pixels, size = w.axes[0].bins * w.axes[1].bins
    cdef ptrdiff_t width = w.axes[1].pixels, unit = begin, stop, channel, image, top, bottom, k
    cdef ptrdiff_t[VECTOR] steps
    cdef const _Region *region
    cdef real samples
    while unit < end:
        channel = unit // regions * VECTOR
        image = <ptrdiff_t>rois[ROI * shared.order[unit % regions].index]
        top = w.axes[0].pixels
        bottom = 0
        stop = unit
        while stop < min(end, (unit // regions + 1) * regions):
            k = shared.order[stop % regions].index
            if <ptrdiff_t>rois[ROI * k] != image:
                break
            top = min(top, shared.regions[k].top)
            bottom = max(bottom, shared.regions[k].bottom)
            stop += 1
        _steps(call, channels - channel, steps)
        if top < bottom:
            _copy(input + (image * channels + channel) * pixels, steps, top * width, bottom * width, <real *>w.tile)
        while unit < stop:
            k = shared.order[unit % regions].index
            region = &shared.regions[k]
            unit += 1
            _stored_axes(call, region, w.axes)
            samples = _samples(call, rois + ROI * k)
            if samples <= 0:
                _fill(output + (k * channels + channel) * size, min(<ptrdiff_t>VECTOR, channels - channel) * size,
                      0 if call.attributes[MODE].i == AVG else EMPTY_MAX)
                continue
            if _is_long(w.axes) and mmk_is_stopped(call):
                return
            _reduce(call, w.axes, <real *>w.tile, samples, channels - channel, <real *>w.bins,
                    output + (k * channels + channel) * size)


# ---- the operator ----------------------------------------------------------------------------------------------------

cdef struct _Work:  # of all regions, estimated for one channel
    double picoseconds  # but for gathering pixels
    double samples
    double pixels       # that each region uses


cdef void _add_work(const mmk_call *call, const double *bin_size, _Work *work) noexcept nogil:
    cdef double bins, pixels = 1, samples = 1, on_axis, sampled
    cdef int axis
    for axis in range(2):
        bins = <double>call.attributes[OUTPUT_HEIGHT + axis].i
        on_axis = min(fabs(bin_size[axis]) * bins + 2, <double>call.inputs[INPUT].shape[2 + axis])
        sampled = on_axis + bins
        if call.attributes[SAMPLING_RATIO].i > 0:
            sampled = bins * call.attributes[SAMPLING_RATIO].i
        pixels *= min(on_axis, 2 * sampled)
        samples *= sampled
    work.pixels += pixels
    work.samples += samples
    work.picoseconds += (SAMPLE_COST * samples + BIN_COST * <double>call.attributes[OUTPUT_HEIGHT].i
                         * <double>call.attributes[OUTPUT_WIDTH].i)


cdef int _check_regions(mmk_call *call, const real *rois, _Work *work) noexcept nogil:
    """Rejects regions that cannot be sampled, and adds up their work."""
    cdef const real *roi
    cdef real start, bin_size, grid
    cdef double[2] bin_sizes
    cdef int64_t k
    cdef int axis
    for k in range(call.inputs[ROIS].shape[0]):
        roi = rois + ROI * k
        if check_region(call, roi, ROI, k):
            return -1
        for axis in range(2):
            divide(call, roi, axis, &start, &bin_size, &grid)
            if not (isfinite(start) and isfinite(bin_size) and grid <= <real>2147483648.0):
                return mmk_fail(call, "rois[%lld] must not take more than 2147483648 samples along a bin, or overflow",
                                <long long>k)
            bin_sizes[axis] = <double>bin_size
        _add_work(call, bin_sizes, work)
    return 0


cdef size_t _axes_size(const mmk_call *call, const real *rois) noexcept nogil:
    """Returns how many bytes the axes of all regions take."""
    cdef size_t address = 0
    cdef ptrdiff_t[2] taps
    cdef Axis[2] axes
    cdef ptrdiff_t k
    set_sizes(call, axes)
    for k in range(call.inputs[ROIS].shape[0]):
        _count_taps(call, rois + ROI * k, axes, taps)
        _take_axes(&address, axes, taps, sizeof(real))
    return address


cdef void _add_phases(mmk_call *call, const _Work *work) noexcept nogil:
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef int64_t regions = rois.shape[0], channels = call.inputs[INPUT].shape[1]
    cdef double pixels = <double>call.inputs[INPUT].size / channels
    cdef size_t axes = 0
    if channels >= VECTOR and work.pixels > MIN_SHARES * pixels:
        if rois.type == MMK_FLOAT32:
            axes = _axes_size(call, <const float *>rois.data)
        else:
            axes = _axes_size(call, <const double *>rois.data)
    mmk_add_phase(call, 1, 1e-3 * MEASURE_COST * regions)
    if axes == 0 or axes > call.outputs[0].size * element_size(rois.type):
        call.scratch_size = sizeof(_Capacity)
        mmk_add_phase(call, (channels + BLOCK - 1) // BLOCK * regions,
                      1e-3 * (REGION_COST + (work.picoseconds + PIXEL_COST * work.pixels) / regions
                              * min(<int64_t>BLOCK, channels)))
        return
    call.scratch_size = _shared(call, NULL).size + axes
    mmk_add_phase(call, regions, 1e-3 * REGION_COST)
    mmk_add_phase(call, (channels + VECTOR - 1) // VECTOR * regions,
                  1e-3 * VECTOR * (work.picoseconds + PIXEL_COST * pixels) / regions)


cdef public int mmk_roi_align_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef _Work work
    cdef int failed
    memset(&work, 0, sizeof(work))
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]") or mmk_check_shape(call, ROIS, "rois", "[K, 5]")
            or check_attributes(call)):
        return -1
    if call.attributes[MODE].i != AVG and call.attributes[MODE].i != MAX:
        return mmk_fail(call, "mode must be 0 (avg) or 1 (max), got %lld", <long long>call.attributes[MODE].i)
    if rois.type == MMK_FLOAT32:
        failed = _check_regions(call, <const float *>rois.data, &work)
    else:
        failed = _check_regions(call, <const double *>rois.data, &work)
    if failed or set_output(call, work.samples):
        return -1
    if call.outputs[0].size:
        _add_phases(call, &work)
    return 0


cdef void _run(mmk_call *call, int phase, const real *input, const real *rois, int64_t begin, int64_t end,
               void *scratch) noexcept nogil:
    cdef real *output = <real *>call.outputs[0].data
    if phase == MEASURE:
        _measure(call, rois)
    elif not _shares(call):
        _align(call, input, rois, output, begin, end, scratch)
    elif phase == LOCATE:
        _locate(call, rois, begin, end)
    else:
        _align_shared(call, input, rois, output, begin, end, scratch)


cdef public void mmk_roi_align_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    cdef const void *rois = call.inputs[ROIS].data
    if call.inputs[INPUT].type == MMK_FLOAT32:
        _run(call, phase, <const float *>input, <const float *>rois, begin, end, scratch)
    else:
        _run(call, phase, <const double *>input, <const double *>rois, begin, end, scratch)
