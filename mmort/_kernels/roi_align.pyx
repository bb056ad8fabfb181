"""roi_align: features of regions of interest, sampled on a regular grid in each bin (Mask R-CNN, He et al. 2017).

The positions of samples are computed once per region, axis by axis (roi_axis.pxd).  Then, VECTOR channels at a time,
the pixels in use are gathered into a tile with channels last, and all sums run along channels, each in MMCV's order of
operations: the results equal MMCV's bit for bit.  No bin uses a pixel that none of its samples needs, so no NaN leaks.
"""
from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions cimport (INPUT, OUTPUT_HEIGHT, OUTPUT_WIDTH, ROIS, SAMPLING_RATIO, check_attributes,
                                     check_region, set_output)
from mmort._kernels.roi_axis cimport MODE, Axis, count_taps, divide, find_taps, scale_taps, set_sizes
from mmort._kernels.workspace cimport element_size, take

cdef enum:  # modes
    AVG
    MAX

cdef enum:  # phases
    MEASURE
    ALIGN

cdef enum:
    ROI = 5  # batch index, x1, y1, x2, y2
    VECTOR = 8  # channels, or columns, handled at once
    BLOCK = 32  # channels of a unit of work: enough to amortise the preparation of a region
    EMPTY_MAX = -10000  # MMCV's maximum over no samples
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


cdef struct _Workspace:
    Axis[2] axes  # rows, columns
    void *bins    # [bin][channel]
    void *tile    # [row slot][column slot][channel]
    size_t size


cdef _Workspace _workspace(const mmk_call *call, const _Capacity *capacity, const void *scratch) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>scratch, width = element_size(call.inputs[INPUT].type)
    cdef Axis *axis
    cdef int i
    set_sizes(call, w.axes)
    for i in range(2):
        axis = &w.axes[i]
        axis.begin = <ptrdiff_t *>take(&address, (axis.bins + 1) * sizeof(ptrdiff_t))
        axis.outside = <char *>take(&address, axis.bins)
        axis.slot = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
        axis.used = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
        axis.tap = <ptrdiff_t *>take(&address, capacity.taps[i] * sizeof(ptrdiff_t))
        axis.weight = take(&address, capacity.taps[i] * width)
    w.bins = take(&address, w.axes[0].bins * w.axes[1].bins * VECTOR * width)
    w.tile = take(&address, capacity.pixels * VECTOR * width)
    w.size = address - <size_t>scratch
    return w


cdef void _measure(mmk_call *call, const real *rois) noexcept nogil:
    """Computes how much scratch memory the largest region needs."""
    cdef _Capacity *capacity = <_Capacity *>call.scratch
    cdef real start, bin_size, grid
    cdef ptrdiff_t[2] taps
    cdef Axis[2] axes
    cdef int64_t k
    cdef int axis
    memset(capacity, 0, sizeof(_Capacity))
    set_sizes(call, axes)
    for k in range(call.inputs[ROIS].shape[0]):
        for axis in range(2):
            divide(call, rois + ROI * k, axis, &start, &bin_size, &grid)
            taps[axis] = count_taps(&axes[axis], start, bin_size, grid) if grid > 0 else 0
            capacity.taps[axis] = max(capacity.taps[axis], taps[axis])
        capacity.pixels = max(capacity.pixels, min(axes[0].pixels, taps[0]) * min(axes[1].pixels, taps[1]))
    call.worker_scratch_size[ALIGN] = _workspace(call, capacity, NULL).size


# ---- VECTOR channels of a region -------------------------------------------------------------------------------------

cdef simd_void _gather(const real *planes, const ptrdiff_t *steps, const Axis *rows, const Axis *columns,
                       real *tile) noexcept nogil:
    """Sets tile[row slot][column slot][channel] to the pixels in use, of VECTOR channels at `steps` from `planes`."""
    cdef ptrdiff_t r, j, c, i
    cdef ptrdiff_t width = columns.used_count
    cdef const ptrdiff_t *used = columns.used
    cdef const real *row
    cdef const real *block
    cdef bint adjacent = width >= VECTOR and used[width - 1] - used[0] == width - 1
    for r in range(rows.used_count):
        row = planes + rows.used[r] * columns.pixels
        if adjacent:
            j = 0
            while j < width:
                j = min(j, width - VECTOR)  # the last block may overlap the one before
                block = row + used[0] + j
                for c in range(VECTOR):
                    for i in range(VECTOR):
                        tile[(j + i) * VECTOR + c] = block[steps[c] + i]
                j += VECTOR
        else:
            for j in range(width):
                for c in range(VECTOR):
                    tile[j * VECTOR + c] = row[steps[c] + used[j]]
        tile += width * VECTOR


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
    cdef ptrdiff_t b, c
    for c in range(channels):
        for b in range(count):
            output[c * count + b] = bins[b * VECTOR + c]


cdef void _fill(real *output, ptrdiff_t size, real value) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(size):
        output[i] = value


# ---- regions ---------------------------------------------------------------------------------------------------------

cdef void _align_region(mmk_call *call, const real *roi, const real *planes, ptrdiff_t channels, _Workspace *w,
                        real *output) noexcept nogil:
    """Computes up to BLOCK channels of a region."""
    cdef bint average = call.attributes[MODE].i == AVG
    cdef Axis *rows = &w.axes[0]
    cdef Axis *columns = &w.axes[1]
    cdef ptrdiff_t size = rows.bins * columns.bins, plane_size = rows.pixels * columns.pixels, c = 0, k
    cdef real[2] start
    cdef real[2] bin_size
    cdef real[2] grid
    cdef ptrdiff_t[VECTOR] steps
    cdef real *tile = <real *>w.tile
    cdef real *bins = <real *>w.bins
    cdef bint is_long
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start[axis], &bin_size[axis], &grid[axis])
    if grid[0] <= 0 or grid[1] <= 0:
        _fill(output, channels * size, 0 if average else EMPTY_MAX)
        return
    for axis in range(2):
        find_taps(&w.axes[axis], start[axis], bin_size[axis], grid[axis])
    scale_taps(columns, VECTOR)
    scale_taps(rows, columns.used_count * VECTOR)
    is_long = rows.begin[rows.bins] * columns.begin[columns.bins] > LONG_REGION
    while c < channels and not (is_long and mmk_is_stopped(call)):
        for k in range(VECTOR):  # a missing channel repeats the last one
            steps[k] = min(k, channels - 1 - c) * plane_size
        _gather(planes + c * plane_size, steps, rows, columns, tile)
        if average:
            _average(tile, rows, columns, grid[0] * grid[1], bins)
        else:
            _maximum(tile, rows, columns, VECTOR, bins)
        _write(bins, size, min(<ptrdiff_t>VECTOR, channels - c), output + c * size)
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


# ---- the operator ----------------------------------------------------------------------------------------------------

cdef double _picoseconds(const mmk_call *call, const double *bin_size, double *all_samples) noexcept nogil:
    """Returns an estimate of the time that one channel of a region takes, and adds its samples to those of all."""
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
    all_samples[0] += samples
    return (PIXEL_COST * pixels + SAMPLE_COST * samples +
            BIN_COST * <double>call.attributes[OUTPUT_HEIGHT].i * <double>call.attributes[OUTPUT_WIDTH].i)


cdef int _check_regions(mmk_call *call, const real *rois, double *picoseconds, double *samples) noexcept nogil:
    """Rejects regions that cannot be sampled, and adds up the estimated times and the samples of one channel."""
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
        picoseconds[0] += _picoseconds(call, bin_sizes, samples)
    return 0


cdef public int mmk_roi_align_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef int64_t regions, channels
    cdef double picoseconds = 0, samples = 0
    cdef int failed
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]") or mmk_check_shape(call, ROIS, "rois", "[K, 5]")
            or check_attributes(call)):
        return -1
    if call.attributes[MODE].i != AVG and call.attributes[MODE].i != MAX:
        return mmk_fail(call, "mode must be 0 (avg) or 1 (max), got %lld", <long long>call.attributes[MODE].i)
    if rois.type == MMK_FLOAT32:
        failed = _check_regions(call, <const float *>rois.data, &picoseconds, &samples)
    else:
        failed = _check_regions(call, <const double *>rois.data, &picoseconds, &samples)
    if failed or set_output(call, samples):
        return -1
    if call.outputs[0].size:
        regions = rois.shape[0]
        channels = call.inputs[INPUT].shape[1]
        call.scratch_size = sizeof(_Capacity)
        mmk_add_phase(call, 1, 1e-3 * MEASURE_COST * regions)
        mmk_add_phase(call, (channels + BLOCK - 1) // BLOCK * regions,
                      1e-3 * (REGION_COST + picoseconds / regions * min(<int64_t>BLOCK, channels)))
    return 0


cdef public void mmk_roi_align_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    cdef const void *rois = call.inputs[ROIS].data
    cdef void *output = call.outputs[0].data
    if call.inputs[INPUT].type == MMK_FLOAT32:
        if phase == MEASURE:
            _measure(call, <const float *>rois)
        else:
            _align(call, <const float *>input, <const float *>rois, <float *>output, begin, end, scratch)
    elif phase == MEASURE:
        _measure(call, <const double *>rois)
    else:
        _align(call, <const double *>input, <const double *>rois, <double *>output, begin, end, scratch)
