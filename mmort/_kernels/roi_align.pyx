"""roi_align: features of regions of interest, sampled on a regular grid in each bin (Mask R-CNN, He et al. 2017).

The samples of a region form a grid, and each axis decides on its own whether they lie outside and how they clamp.  So
bilinear sampling is separable: first rows of the feature map are blended into one for each row of bins, then columns
of that blend into bins.  Samples that share a pixel are merged beforehand, so an adaptive grid costs little more than
a fixed one.  The first step runs along the map's rows as they lie in memory; its result is turned to have channels
last, and the second runs along channels.  No bin uses a pixel that none of its samples needs, so no NaN leaks.
"""
from libc.math cimport INFINITY, ceil, fabs, isfinite
from libc.stdint cimport int64_t
from libc.stdlib cimport calloc, free, realloc

from mmort._kernels.mmk cimport *

ctypedef fused number:
    float
    double

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
    VECTOR = 8  # channels, or columns, handled at once
    BLOCK = 32  # channels of a piece of work: enough to share the preparation of a region
    LARGEST_SAMPLING_RATIO = 1024
    EMPTY_MAX = -10000  # MMCV's maximum over no samples


cdef struct Axis:  # how bins are made of the pixels along one axis
    ptrdiff_t bins
    ptrdiff_t pixels
    ptrdiff_t *begin  # bin b has the taps [begin[b], begin[b + 1])
    char *outside  # whether bin b has samples outside the map
    ptrdiff_t *offset  # of each tap's pixel
    void *weight  # of each tap
    ptrdiff_t capacity  # for taps
    ptrdiff_t first  # pixel in use
    ptrdiff_t last


cdef inline void _divide(const mmk_call *call, const number *roi, int axis, number *start, number *bin_size,
                         number *grid) noexcept nogil:
    """Along axis 0 (y) or 1 (x): where the bins start, their size in pixels, and the number of samples in each."""
    cdef number scale = <number>call.attributes[SPATIAL_SCALE].f
    cdef number shift = <number>0.5 if call.attributes[ALIGNED].i else 0
    cdef number size
    start[0] = roi[2 - axis] * scale - shift
    size = (roi[4 - axis] * scale - shift) - start[0]
    if not call.attributes[ALIGNED].i and size < 1:
        size = 1
    bin_size[0] = size / <number>call.attributes[OUTPUT_HEIGHT + axis].i
    grid[0] = <number>call.attributes[SAMPLING_RATIO].i
    if grid[0] <= 0:
        grid[0] = <number>ceil(bin_size[0])


cdef inline number _sample(number start, number bin_size, number grid, ptrdiff_t b, ptrdiff_t i) noexcept nogil:
    """The coordinate of sample i of bin b.  Rounding keeps order: it never turns back as b or i grows."""
    return (start + <number>b * bin_size) + ((<number>i + <number>0.5) * bin_size) / grid


cdef inline int _side(number coordinate, number bin_size, ptrdiff_t pixels) noexcept nogil:
    """-1: not yet on the map, 0: on it, 1: past it, going from sample to sample."""
    cdef int side = (coordinate > <number>pixels) - (coordinate < -1)
    return -side if bin_size < 0 else side


cdef ptrdiff_t _first_on_side(number start, number bin_size, number grid, ptrdiff_t b, ptrdiff_t pixels,
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


cdef int _reserve(Axis *axis, ptrdiff_t taps, size_t weight_size) noexcept nogil:
    cdef void *memory
    if taps <= axis.capacity:
        return 0
    taps += taps // 2
    memory = realloc(axis.offset, taps * sizeof(ptrdiff_t))
    if memory == NULL:
        return -1
    axis.offset = <ptrdiff_t *>memory
    memory = realloc(axis.weight, taps * weight_size)
    if memory == NULL:
        return -1
    axis.weight = memory
    axis.capacity = taps
    return 0


cdef inline ptrdiff_t _add_tap(Axis *axis, number *weight, ptrdiff_t first, ptrdiff_t used, ptrdiff_t pixel,
                               number value) noexcept nogil:
    """Merges with that pixel's tap at `first` or later: as samples come in order, it is one of the last three."""
    cdef ptrdiff_t t
    for t in range(used - 1, max(first, used - 3) - 1, -1):
        if axis.offset[t] == pixel:
            weight[t] += value
            return used
    axis.offset[used] = pixel
    weight[used] = value
    return used + 1


cdef int _place(Axis *axis, number start, number bin_size, number grid, bint merge) noexcept nogil:
    """Finds the taps of all bins: two for each sample on the map, or (merge) one for each pixel."""
    cdef ptrdiff_t samples = <ptrdiff_t>grid, used = 0, b, i, first, last, low, high
    cdef number coordinate, fraction
    cdef number *weight
    cdef bint all_on_map = (
        _side(_sample(start, bin_size, grid, 0, 0), bin_size, axis.pixels) == 0 and
        _side(_sample(start, bin_size, grid, axis.bins - 1, samples - 1), bin_size, axis.pixels) == 0)
    axis.first = axis.pixels
    axis.last = -1
    for b in range(axis.bins):
        axis.begin[b] = used
        first = 0
        last = samples
        if axis.pixels == 0:
            last = 0
        elif not all_on_map:
            first = _first_on_side(start, bin_size, grid, b, axis.pixels, 0)
            last = _first_on_side(start, bin_size, grid, b, axis.pixels, 1)
        axis.outside[b] = last - first < samples
        if _reserve(axis, used + 2 * (last - first), sizeof(number)):
            return -1
        weight = <number *>axis.weight
        for i in range(first, last):
            coordinate = _sample(start, bin_size, grid, b, i)
            if coordinate <= 0:
                coordinate = 0
            low = <ptrdiff_t>coordinate
            high = low + 1
            if low >= axis.pixels - 1:
                low = high = axis.pixels - 1
                coordinate = <number>low
            fraction = coordinate - <number>low
            used = _add_tap(axis, weight, axis.begin[b] if merge else used, used, low, 1 - fraction)
            used = _add_tap(axis, weight, axis.begin[b] if merge else used, used, high, fraction)
            axis.first = min(axis.first, low)
            axis.last = max(axis.last, high)
    axis.begin[axis.bins] = used
    return 0


cdef void _count_from(Axis *axis, ptrdiff_t origin, ptrdiff_t stride) noexcept nogil:
    """Turns the taps' pixels into offsets of elements."""
    cdef ptrdiff_t t
    for t in range(axis.begin[axis.bins]):
        axis.offset[t] = (axis.offset[t] - origin) * stride


cdef simd_void _blend_rows(const number *plane, ptrdiff_t plane_size, ptrdiff_t channels, const ptrdiff_t *begin,
                           ptrdiff_t bins, const ptrdiff_t *offset, const number *weight, ptrdiff_t width,
                           number *blend) noexcept nogil:
    """blend[bin][channel][column] = the weighted sum of the bin's rows, for up to VECTOR channels."""
    # Four channels at once, as finding the taps costs more than using them; a missing channel repeats the last one.
    # One loop over `i` for all four, or gcc 12 does not keep the sums in registers.
    cdef number[VECTOR] sum0
    cdef number[VECTOR] sum1
    cdef number[VECTOR] sum2
    cdef number[VECTOR] sum3
    cdef ptrdiff_t c = 0, b, j, t, i, step1, step2, step3
    cdef const number *row
    cdef number *line
    while c < channels:
        step1 = min(<ptrdiff_t>1, channels - 1 - c) * plane_size
        step2 = min(<ptrdiff_t>2, channels - 1 - c) * plane_size
        step3 = min(<ptrdiff_t>3, channels - 1 - c) * plane_size
        for b in range(bins):
            line = blend + (b * VECTOR + c) * width
            j = 0
            while j < width:
                j = min(j, width - VECTOR)  # the last vector may overlap the one before
                for i in range(VECTOR):
                    sum0[i] = sum1[i] = sum2[i] = sum3[i] = 0
                for t in range(begin[b], begin[b + 1]):
                    row = plane + offset[t] + j
                    for i in range(VECTOR):
                        sum0[i] += weight[t] * row[i]
                        sum1[i] += weight[t] * row[step1 + i]
                        sum2[i] += weight[t] * row[step2 + i]
                        sum3[i] += weight[t] * row[step3 + i]
                for i in range(VECTOR):
                    line[j + i] = sum0[i]
                for i in range(VECTOR):
                    line[width + j + i] = sum1[i]
                for i in range(VECTOR):
                    line[2 * width + j + i] = sum2[i]
                for i in range(VECTOR):
                    line[3 * width + j + i] = sum3[i]
                j += VECTOR
        plane += 4 * plane_size
        c += 4


cdef void _blend_narrow_rows(const number *plane, ptrdiff_t plane_size, ptrdiff_t channels, const ptrdiff_t *begin,
                             ptrdiff_t bins, const ptrdiff_t *offset, const number *weight, ptrdiff_t width,
                             number *blend) noexcept nogil:
    """The same on a map with fewer columns than VECTOR."""
    cdef ptrdiff_t b, c, j, t
    cdef number total
    for b in range(bins):
        for c in range(channels):
            for j in range(width):
                total = 0
                for t in range(begin[b], begin[b + 1]):
                    total += weight[t] * plane[c * plane_size + offset[t] + j]
                blend[(b * VECTOR + c) * width + j] = total


cdef simd_void _put_channels_last(const number *blend, ptrdiff_t width, number *tile) noexcept nogil:
    """tile[column][channel] = blend[channel][column]"""
    cdef ptrdiff_t j, c
    for j in range(width):
        for c in range(VECTOR):
            tile[j * VECTOR + c] = blend[c * width + j]


cdef simd_void _average_columns(const number *tile, const Axis *columns, number samples, number *bins) noexcept nogil:
    """bins[bin][channel] = the weighted sum of the bin's columns / samples"""
    cdef number[VECTOR] total
    cdef const number *weight = <const number *>columns.weight
    cdef ptrdiff_t b, t, c
    for b in range(columns.bins):
        for c in range(VECTOR):
            total[c] = 0
        for t in range(columns.begin[b], columns.begin[b + 1]):
            for c in range(VECTOR):
                total[c] += weight[t] * tile[columns.offset[t] + c]
        for c in range(VECTOR):
            bins[b * VECTOR + c] = total[c] / samples


cdef simd_void _raise_to_columns(const number *tile, const Axis *columns, ptrdiff_t lanes,
                                 number *bins) noexcept nogil:
    """bins[bin][channel] becomes the largest of itself and the bin's samples; NaN counts as larger than anything."""
    # `lanes`, not VECTOR: gcc 12 unrolls a loop of known length before it could vectorise the choice.
    cdef number[VECTOR] largest
    cdef const number *weight = <const number *>columns.weight
    cdef ptrdiff_t b, t, c
    cdef number value
    for b in range(columns.bins):
        for c in range(lanes):
            largest[c] = bins[b * VECTOR + c]
        for t in range(columns.begin[b], columns.begin[b + 1], 2):
            for c in range(lanes):
                value = weight[t] * tile[columns.offset[t] + c] + weight[t + 1] * tile[columns.offset[t + 1] + c]
                largest[c] = value if (largest[c] < value) | (value != value) else largest[c]
        for c in range(lanes):
            bins[b * VECTOR + c] = largest[c]


cdef simd_void _write(const number *bins, ptrdiff_t count, ptrdiff_t channels, number *output) noexcept nogil:
    """output[channel][bin] = bins[bin][channel]"""
    cdef ptrdiff_t b, c
    for c in range(channels):
        for b in range(count):
            output[c * count + b] = bins[b * VECTOR + c]


cdef void _fill(number *output, ptrdiff_t size, number value) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(size):
        output[i] = value


cdef void _align(const number *planes, ptrdiff_t channels, const Axis *rows, const Axis *columns, ptrdiff_t width,
                 bint average, number samples, number *memory, number *output) noexcept nogil:
    """One region, up to VECTOR channels; `planes` points at the first of `width` columns."""
    cdef ptrdiff_t plane_size = rows.pixels * columns.pixels
    cdef const number *weight = <const number *>rows.weight
    cdef number *blend = memory
    cdef number *tile = blend + rows.bins * VECTOR * width
    cdef number *bins = tile + VECTOR * width
    cdef number *line = bins
    cdef ptrdiff_t b, x, t
    cdef ptrdiff_t[2] pair
    if average:
        if width < VECTOR:
            _blend_narrow_rows(planes, plane_size, channels, rows.begin, rows.bins, rows.offset, weight, width, blend)
        else:
            _blend_rows(planes, plane_size, channels, rows.begin, rows.bins, rows.offset, weight, width, blend)
    for b in range(rows.bins):
        if average:
            _put_channels_last(blend + b * VECTOR * width, width, tile)
            _average_columns(tile, columns, samples, line)
        else:
            for x in range(columns.bins):  # a sample outside is 0
                _fill(line + x * VECTOR, VECTOR, 0 if rows.outside[b] or columns.outside[x] else -INFINITY)
            for t in range(rows.begin[b], rows.begin[b + 1], 2):
                pair[0] = t
                pair[1] = t + 2
                if width < VECTOR:
                    _blend_narrow_rows(planes, plane_size, channels, pair, 1, rows.offset, weight, width, blend)
                else:
                    _blend_rows(planes, plane_size, channels, pair, 1, rows.offset, weight, width, blend)
                _put_channels_last(blend, width, tile)
                _raise_to_columns(tile, columns, 4 if channels <= 4 else VECTOR, line)
        line += columns.bins * VECTOR
    _write(bins, rows.bins * columns.bins, channels, output)


cdef int _align_block(const mmk_call *call, const number *roi, const number *planes, ptrdiff_t channels, Axis *axes,
                      number *memory, number *output) noexcept nogil:
    """One region, up to BLOCK channels."""
    cdef bint average = call.attributes[MODE].i == AVG
    cdef Axis *rows = &axes[0]
    cdef Axis *columns = &axes[1]
    cdef ptrdiff_t size = rows.bins * columns.bins, c = 0, width
    cdef number[2] start
    cdef number[2] bin_size
    cdef number[2] grid
    cdef int axis
    for axis in range(2):
        _divide(call, roi, axis, &start[axis], &bin_size[axis], &grid[axis])
    if grid[0] <= 0 or grid[1] <= 0:
        _fill(output, channels * size, 0 if average else EMPTY_MAX)
        return 0
    for axis in range(2):
        if _place(&axes[axis], start[axis], bin_size[axis], grid[axis], average):
            return -1
    if rows.last < 0 or columns.last < 0:  # nothing on the map
        _fill(output, channels * size, 0)
        return 0
    width = max(columns.last + 1 - columns.first, min(<ptrdiff_t>VECTOR, columns.pixels))
    columns.first = min(columns.first, columns.pixels - width)
    _count_from(rows, 0, columns.pixels)
    _count_from(columns, columns.first, VECTOR)
    while c < channels:
        _align(planes + c * rows.pixels * columns.pixels + columns.first, min(<ptrdiff_t>VECTOR, channels - c), rows,
               columns, width, average, grid[0] * grid[1], memory, output + c * size)
        c += VECTOR
    return 0


cdef int _pieces(const mmk_call *call, const number *input, const number *rois, number *output, int64_t begin,
                 int64_t end) noexcept nogil:
    """A piece is a region in a block of channels; regions of one block are neighbours, so its planes stay in cache."""
    cdef ptrdiff_t regions = call.inputs[1].shape[0], channels = call.inputs[0].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    cdef ptrdiff_t size = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t piece, k, channel
    cdef number *memory
    cdef Axis[2] axes
    cdef int axis, failed = 0
    for axis in range(2):
        axes[axis].bins = call.attributes[OUTPUT_HEIGHT + axis].i
        axes[axis].pixels = call.inputs[0].shape[2 + axis] if plane_size else 0
        axes[axis].begin = <ptrdiff_t *>calloc(axes[axis].bins + 1, sizeof(ptrdiff_t))
        axes[axis].outside = <char *>calloc(axes[axis].bins, 1)
        axes[axis].offset = NULL
        axes[axis].weight = NULL
        axes[axis].capacity = 0
        failed |= axes[axis].begin == NULL or axes[axis].outside == NULL
    memory = <number *>calloc((axes[0].bins + 1) * axes[1].pixels + size, VECTOR * sizeof(number))
    failed |= memory == NULL
    for piece in range(begin, end):
        if failed:
            break
        k = piece % regions
        channel = piece // regions * BLOCK
        failed = _align_block(call, rois + 5 * k, input + (<ptrdiff_t>rois[5 * k] * channels + channel) * plane_size,
                              min(<ptrdiff_t>BLOCK, channels - channel), axes, memory,
                              output + (k * channels + channel) * size)
    for axis in range(2):
        free(axes[axis].begin)
        free(axes[axis].outside)
        free(axes[axis].offset)
        free(axes[axis].weight)
    free(memory)
    return -1 if failed else 0


cdef double _nanoseconds(const mmk_call *call, const double *bin_size) noexcept nogil:
    """About what one channel of a region takes."""
    cdef bint average = call.attributes[MODE].i == AVG
    cdef double bins, lines
    cdef double[2] pixels
    cdef double[2] samples
    cdef double[2] taps
    cdef int axis
    for axis in range(2):
        bins = <double>call.attributes[OUTPUT_HEIGHT + axis].i
        pixels[axis] = min(fabs(bin_size[axis]) * bins + 2, <double>call.inputs[0].shape[2 + axis])
        samples[axis] = pixels[axis] + bins
        if call.attributes[SAMPLING_RATIO].i > 0:
            samples[axis] = bins * call.attributes[SAMPLING_RATIO].i
        taps[axis] = 2 * samples[axis]
        if average:
            taps[axis] = min(taps[axis], pixels[axis] + 2 * bins)
    bins = <double>call.attributes[OUTPUT_HEIGHT].i
    lines = bins if average else samples[0]
    pixels[1] = max(pixels[1], <double>VECTOR)
    return (0.06 * taps[0] * pixels[1] + 0.05 * lines * (pixels[1] + taps[1]) +
            0.2 * bins * call.attributes[OUTPUT_WIDTH].i)


cdef int _check_rois(mmk_call *call, const number *rois, double *nanoseconds) noexcept nogil:
    """Refuses what cannot be sampled, and adds up the time that one channel takes."""
    cdef const number *roi
    cdef number start, bin_size, grid
    cdef double[2] bin_sizes
    cdef int64_t k
    cdef int axis, i
    for k in range(call.inputs[1].shape[0]):
        roi = rois + 5 * k
        if not (roi[0] > -1 and roi[0] < <number>call.inputs[0].shape[0]):
            return mmk_fail(call, "the batch index of rois[%lld] must be in [0, %lld), got %g", <long long>k,
                            <long long>call.inputs[0].shape[0], <double>roi[0])
        for i in range(1, 5):
            if not isfinite(roi[i]):
                return mmk_fail(call, "the coordinates of rois[%lld] must be finite, got %g", <long long>k,
                                <double>roi[i])
        for axis in range(2):
            _divide(call, roi, axis, &start, &bin_size, &grid)
            if not (isfinite(start) and isfinite(bin_size) and grid <= <number>2147483648.0):
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
        mmk_add_phase(call, (shape[1] + BLOCK - 1) // BLOCK * shape[0],
                      300 + nanoseconds / shape[0] * min(<int64_t>BLOCK, shape[1]))
    return 0


cdef public int mmk_roi_align_run(mmk_call *call, int phase, int64_t begin, int64_t end) noexcept nogil:
    if call.inputs[0].type == MMK_FLOAT32:
        return _pieces(call, <const float *>call.inputs[0].data, <const float *>call.inputs[1].data,
                       <float *>call.outputs[0].data, begin, end)
    return _pieces(call, <const double *>call.inputs[0].data, <const double *>call.inputs[1].data,
                   <double *>call.outputs[0].data, begin, end)
