"""roi_align: features of regions of interest, sampled on a regular grid in each bin (Mask R-CNN, He et al. 2017).

The samples of a region form a grid, so each axis decides on its own where they lie, whether they are outside, and how
they clamp: that is worked out once a region.  Then, a few channels at a time, the pixels in use are brought together
with channels last, and all sums run along channels, each in MMCV's order of operations: the results equal MMCV's bit
for bit.  No bin uses a pixel that none of its samples needs, so no NaN leaks.
"""
from libc.math cimport INFINITY, ceil, fabs, isfinite
from libc.stdint cimport int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.workspace cimport take

cdef enum:  # attributes
    OUTPUT_HEIGHT
    OUTPUT_WIDTH
    SPATIAL_SCALE
    SAMPLING_RATIO
    MODE
    ALIGNED

cdef enum:
    AVG
    MAX

cdef enum:
    MEASURE  # phases
    ALIGN

cdef enum:
    VECTOR = 8  # channels, or columns, handled at once
    BLOCK = 32  # channels of a piece of work: enough to share the preparation of a region
    LARGEST_SAMPLING_RATIO = 1024
    EMPTY_MAX = -10000  # MMCV's maximum over no samples


cdef struct Axis:  # how bins are made of the pixels along one axis
    ptrdiff_t bins
    ptrdiff_t pixels
    ptrdiff_t *begin  # bin b has the taps [begin[b], begin[b + 1]), two for each sample on the map
    char *outside  # whether bin b has samples outside the map
    ptrdiff_t *tap  # the pixel, then its slot, then that in numbers
    void *weight  # of each tap
    ptrdiff_t *slot  # of a pixel in use, 1 for the first; 0: not in use
    ptrdiff_t *used  # the pixels in use, by slot
    ptrdiff_t used_count


cdef struct _Capacity:  # for the largest of the regions
    ptrdiff_t[2] taps
    ptrdiff_t pixels


cdef struct _Workspace:
    Axis[2] axes  # rows, columns
    void *bins  # [bin][channel]
    void *tile  # [row slot][column slot][channel]
    size_t size


cdef inline void _set_sizes(const mmk_call *call, Axis *axes) noexcept nogil:
    cdef bint empty = call.inputs[0].shape[2] * call.inputs[0].shape[3] == 0
    cdef int axis
    for axis in range(2):
        axes[axis].bins = call.attributes[OUTPUT_HEIGHT + axis].i
        axes[axis].pixels = 0 if empty else call.inputs[0].shape[2 + axis]
        axes[axis].used_count = 0


cdef _Workspace _workspace(const mmk_call *call, const _Capacity *capacity, const void *scratch) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>scratch
    cdef size_t width = sizeof(float) if call.inputs[0].type == MMK_FLOAT32 else sizeof(double)
    cdef Axis *axis
    cdef int i
    _set_sizes(call, w.axes)
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


cdef inline void _divide(const mmk_call *call, const real *roi, int axis, real *start, real *bin_size,
                         real *grid) noexcept nogil:
    """Along axis 0 (y) or 1 (x): where the bins start, their size in pixels, and the number of samples in each."""
    cdef real scale = <real>call.attributes[SPATIAL_SCALE].f
    cdef real shift = <real>0.5 if call.attributes[ALIGNED].i else 0
    cdef real size
    start[0] = roi[2 - axis] * scale - shift
    size = (roi[4 - axis] * scale - shift) - start[0]
    if not call.attributes[ALIGNED].i and size < 1:
        size = 1
    bin_size[0] = size / <real>call.attributes[OUTPUT_HEIGHT + axis].i
    grid[0] = <real>call.attributes[SAMPLING_RATIO].i
    if grid[0] <= 0:
        grid[0] = <real>ceil(bin_size[0])


cdef inline real _sample(real start, real bin_size, real grid, ptrdiff_t b, ptrdiff_t i) noexcept nogil:
    """The coordinate of sample i of bin b.  Rounding keeps order: it never turns back as b or i grows."""
    return (start + <real>b * bin_size) + ((<real>i + <real>0.5) * bin_size) / grid


cdef inline int _side(real coordinate, real bin_size, ptrdiff_t pixels) noexcept nogil:
    """-1: not yet on the map, 0: on it, 1: past it, going from sample to sample."""
    cdef int side = (coordinate > <real>pixels) - (coordinate < -1)
    return -side if bin_size < 0 else side


cdef ptrdiff_t _first_on_side(real start, real bin_size, real grid, ptrdiff_t b, ptrdiff_t pixels,
                              int side) noexcept nogil:
    """The first sample of bin b that is on that side or further: a region may have billions of samples outside."""
    cdef ptrdiff_t low = 0, high = <ptrdiff_t>grid, middle
    while low < high:
        middle = low + (high - low) // 2
        if _side(_sample(start, bin_size, grid, b, middle), bin_size, pixels) < side:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint _all_on_map(const Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    """Whether the first and the last sample, and so all, are on the map."""
    return (_side(_sample(start, bin_size, grid, 0, 0), bin_size, axis.pixels) == 0 and
            _side(_sample(start, bin_size, grid, axis.bins - 1, <ptrdiff_t>grid - 1), bin_size, axis.pixels) == 0)


cdef inline ptrdiff_t _slot(Axis *axis, ptrdiff_t pixel) noexcept nogil:
    if axis.slot[pixel] == 0:
        axis.used[axis.used_count] = pixel
        axis.used_count += 1
        axis.slot[pixel] = axis.used_count
    return axis.slot[pixel] - 1


cdef void _place(Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    """Finds the taps of all bins, and the slots of the pixels they use."""
    cdef ptrdiff_t samples = <ptrdiff_t>grid, taps = 0, b, i, first, last, low, high
    cdef real coordinate, fraction
    cdef real *weight = <real *>axis.weight
    cdef bint all_on_map = _all_on_map(axis, start, bin_size, grid)
    for i in range(axis.used_count):
        axis.slot[axis.used[i]] = 0
    axis.used_count = 0
    for b in range(axis.bins):
        axis.begin[b] = taps
        first = 0
        last = samples
        if axis.pixels == 0:
            last = 0
        elif not all_on_map:
            first = _first_on_side(start, bin_size, grid, b, axis.pixels, 0)
            last = _first_on_side(start, bin_size, grid, b, axis.pixels, 1)
        axis.outside[b] = last - first < samples
        for i in range(first, last):
            coordinate = _sample(start, bin_size, grid, b, i)
            if coordinate <= 0:
                coordinate = 0
            low = <ptrdiff_t>coordinate
            high = low + 1
            if low >= axis.pixels - 1:
                low = high = axis.pixels - 1
                coordinate = <real>low
            fraction = coordinate - <real>low
            axis.tap[taps] = _slot(axis, low)
            axis.tap[taps + 1] = _slot(axis, high)
            weight[taps] = 1 - fraction
            weight[taps + 1] = fraction
            taps += 2
    axis.begin[axis.bins] = taps


cdef void _count_in(Axis *axis, ptrdiff_t stride) noexcept nogil:
    """Turns the taps' slots into numbers of the tile."""
    cdef ptrdiff_t t
    for t in range(axis.begin[axis.bins]):
        axis.tap[t] *= stride


cdef simd_void _gather(const real *planes, const ptrdiff_t *steps, const Axis *rows, const Axis *columns,
                       real *tile) noexcept nogil:
    """tile[row slot][column slot][channel], for VECTOR channels that are `steps` apart."""
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
    """bins[row][column][channel] = the sum of the samples / their number"""
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
    """The same with the largest of the samples; NaN counts as larger than anything, a sample outside is 0."""
    # `lanes`, not VECTOR: gcc 12 unrolls a loop of known length before it could vectorise the choice.
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
    """output[channel][bin] = bins[bin][channel]"""
    cdef ptrdiff_t b, c
    for c in range(channels):
        for b in range(count):
            output[c * count + b] = bins[b * VECTOR + c]


cdef void _fill(real *output, ptrdiff_t size, real value) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(size):
        output[i] = value


cdef void _align(const mmk_call *call, const real *roi, const real *planes, ptrdiff_t channels, _Workspace *w,
                 real *output) noexcept nogil:
    """One region, up to BLOCK channels."""
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
    cdef int axis
    for axis in range(2):
        _divide(call, roi, axis, &start[axis], &bin_size[axis], &grid[axis])
    if grid[0] <= 0 or grid[1] <= 0:
        _fill(output, channels * size, 0 if average else EMPTY_MAX)
        return
    for axis in range(2):
        _place(&w.axes[axis], start[axis], bin_size[axis], grid[axis])
    _count_in(columns, VECTOR)
    _count_in(rows, columns.used_count * VECTOR)
    while c < channels:
        for k in range(VECTOR):  # a missing channel repeats the last one
            steps[k] = min(k, channels - 1 - c) * plane_size
        _gather(planes + c * plane_size, steps, rows, columns, tile)
        if average:
            _average(tile, rows, columns, grid[0] * grid[1], bins)
        else:
            _maximum(tile, rows, columns, VECTOR, bins)
        _write(bins, size, min(<ptrdiff_t>VECTOR, channels - c), output + c * size)
        c += VECTOR


cdef void _pieces(const mmk_call *call, const real *input, const real *rois, real *output, int64_t begin,
                  int64_t end, void *scratch) noexcept nogil:
    """A piece is a region in a block of channels; regions of one block are neighbours, so its planes stay in cache."""
    cdef ptrdiff_t regions = call.inputs[1].shape[0], channels = call.inputs[0].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    cdef ptrdiff_t size = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t piece, k, channel
    cdef _Workspace w = _workspace(call, <const _Capacity *>call.scratch, scratch)
    cdef int axis
    for axis in range(2):
        memset(w.axes[axis].slot, 0, w.axes[axis].pixels * sizeof(ptrdiff_t))
    for piece in range(begin, end):
        k = piece % regions
        channel = piece // regions * BLOCK
        _align(call, rois + 5 * k, input + (<ptrdiff_t>rois[5 * k] * channels + channel) * plane_size,
               min(<ptrdiff_t>BLOCK, channels - channel), &w, output + (k * channels + channel) * size)


cdef inline ptrdiff_t _count_taps(const Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    cdef ptrdiff_t taps = 0, b
    if axis.pixels == 0:
        return 0
    if _all_on_map(axis, start, bin_size, grid):
        return 2 * axis.bins * <ptrdiff_t>grid
    for b in range(axis.bins):
        taps += 2 * (_first_on_side(start, bin_size, grid, b, axis.pixels, 1)
                     - _first_on_side(start, bin_size, grid, b, axis.pixels, 0))
    return taps


cdef void _measure(mmk_call *call, const real *rois) noexcept nogil:
    """Finds out how much memory the largest region takes."""
    cdef _Capacity *capacity = <_Capacity *>call.scratch
    cdef real start, bin_size, grid
    cdef ptrdiff_t[2] taps
    cdef Axis[2] axes
    cdef int64_t k
    cdef int axis
    memset(capacity, 0, sizeof(_Capacity))
    _set_sizes(call, axes)
    for k in range(call.inputs[1].shape[0]):
        for axis in range(2):
            _divide(call, rois + 5 * k, axis, &start, &bin_size, &grid)
            taps[axis] = _count_taps(&axes[axis], start, bin_size, grid) if grid > 0 else 0
            capacity.taps[axis] = max(capacity.taps[axis], taps[axis])
        capacity.pixels = max(capacity.pixels, min(axes[0].pixels, taps[0]) * min(axes[1].pixels, taps[1]))
    call.worker_scratch_size[ALIGN] = _workspace(call, capacity, NULL).size


cdef double _nanoseconds(const mmk_call *call, const double *bin_size) noexcept nogil:
    """About what one channel of a region takes."""
    cdef double bins, pixels = 1, samples = 1, on_axis, sampled
    cdef int axis
    for axis in range(2):
        bins = <double>call.attributes[OUTPUT_HEIGHT + axis].i
        on_axis = min(fabs(bin_size[axis]) * bins + 2, <double>call.inputs[0].shape[2 + axis])
        sampled = on_axis + bins
        if call.attributes[SAMPLING_RATIO].i > 0:
            sampled = bins * call.attributes[SAMPLING_RATIO].i
        pixels *= min(on_axis, 2 * sampled)
        samples *= sampled
    return (0.3 * pixels + 0.4 * samples +
            0.2 * <double>call.attributes[OUTPUT_HEIGHT].i * <double>call.attributes[OUTPUT_WIDTH].i)


cdef int _check_rois(mmk_call *call, const real *rois, double *nanoseconds) noexcept nogil:
    """Refuses what cannot be sampled, and adds up the time that one channel takes."""
    cdef const real *roi
    cdef real start, bin_size, grid
    cdef double[2] bin_sizes
    cdef int64_t k
    cdef int axis, i
    for k in range(call.inputs[1].shape[0]):
        roi = rois + 5 * k
        if not (roi[0] > -1 and roi[0] < <real>call.inputs[0].shape[0]):
            return mmk_fail(call, "the batch index of rois[%lld] must be in [0, %lld), got %g", <long long>k,
                            <long long>call.inputs[0].shape[0], <double>roi[0])
        for i in range(1, 5):
            if not isfinite(roi[i]):
                return mmk_fail(call, "the coordinates of rois[%lld] must be finite, got %g", <long long>k,
                                <double>roi[i])
        for axis in range(2):
            _divide(call, roi, axis, &start, &bin_size, &grid)
            if not (isfinite(start) and isfinite(bin_size) and grid <= <real>2147483648.0):
                return mmk_fail(call, "rois[%lld] must not take more than 2147483648 samples along a bin, or overflow",
                                <long long>k)
            bin_sizes[axis] = <double>bin_size
        nanoseconds[0] += _nanoseconds(call, bin_sizes)
    return 0


cdef public int mmk_roi_align_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *input = &call.inputs[0]
    cdef mmk_tensor *rois = &call.inputs[1]
    cdef int64_t height = call.attributes[OUTPUT_HEIGHT].i, width = call.attributes[OUTPUT_WIDTH].i
    cdef int64_t[4] shape
    cdef double nanoseconds = 0
    cdef int failed
    if mmk_check_shape(call, 0, "input", "[N, C, H, W]") or mmk_check_shape(call, 1, "rois", "[K, 5]"):
        return -1
    if height < 1 or width < 1:
        return mmk_fail(call, "output_height and output_width must be at least 1, got %lld and %lld", <long long>height,
                        <long long>width)
    if not isfinite(call.attributes[SPATIAL_SCALE].f):
        return mmk_fail(call, "spatial_scale must be finite, got %g", call.attributes[SPATIAL_SCALE].f)
    if call.attributes[SAMPLING_RATIO].i > LARGEST_SAMPLING_RATIO:
        return mmk_fail(call, "sampling_ratio must be at most %d, got %lld", <int>LARGEST_SAMPLING_RATIO,
                        <long long>call.attributes[SAMPLING_RATIO].i)
    if call.attributes[MODE].i != AVG and call.attributes[MODE].i != MAX:
        return mmk_fail(call, "mode must be 0 (avg) or 1 (max), got %lld", <long long>call.attributes[MODE].i)
    if rois.type == MMK_FLOAT32:
        failed = _check_rois(call, <const float *>rois.data, &nanoseconds)
    else:
        failed = _check_rois(call, <const double *>rois.data, &nanoseconds)
    if failed:
        return -1
    shape[0] = rois.shape[0]
    shape[1] = input.shape[1]
    shape[2] = height
    shape[3] = width
    if mmk_set_output(call, 0, input.type, 4, shape):
        return -1
    if call.outputs[0].size:
        call.scratch_size = sizeof(_Capacity)
        mmk_add_phase(call, 1, 30.0 * shape[0])
        mmk_add_phase(call, (shape[1] + BLOCK - 1) // BLOCK * shape[0],
                      300 + nanoseconds / shape[0] * min(<int64_t>BLOCK, shape[1]))
    return 0


cdef public void mmk_roi_align_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[0].data
    cdef const void *rois = call.inputs[1].data
    cdef void *output = call.outputs[0].data
    if call.inputs[0].type == MMK_FLOAT32:
        if phase == MEASURE:
            _measure(call, <const float *>rois)
        else:
            _pieces(call, <const float *>input, <const float *>rois, <float *>output, begin, end, scratch)
    elif phase == MEASURE:
        _measure(call, <const double *>rois)
    else:
        _pieces(call, <const double *>input, <const double *>rois, <double *>output, begin, end, scratch)
