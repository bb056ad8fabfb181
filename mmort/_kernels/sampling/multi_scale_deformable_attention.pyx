"""multi_scale_deformable_attention: weighted bilinear samples of feature maps of several sizes (Zhu et al. 2021).

The channels of a head are adjacent in memory, so each sample is a weighted sum of up to four short vectors.  Their
offsets and weights are computed once for each query and head.
"""
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.shared.workspace cimport element_size

cdef enum:
    VALUE  # inputs
    SPATIAL_SHAPES
    LEVEL_STARTS
    LOCATIONS
    WEIGHTS

cdef enum:
    MAX_BLOCK = 32  # channels summed in registers; a head usually has as many

cdef enum:  # picoseconds per sample; multi_scale_deformable_attention takes half of that
    FIND_TAPS = 10000
    ADD_TAPS = 1000  # and per channel

ctypedef struct _Sizes:
    ptrdiff_t keys, heads, channels, queries, levels, points


cdef inline ptrdiff_t _add_tap(ptrdiff_t *offsets, real *weights, ptrdiff_t count, ptrdiff_t row, ptrdiff_t column,
                               ptrdiff_t height, ptrdiff_t width, ptrdiff_t start, ptrdiff_t stride,
                               real weight) noexcept nogil:
    """Adds a pixel if it is on the map; returns the number of taps."""
    if row < 0 or row >= height or column < 0 or column >= width:
        return count
    offsets[count] = (start + row * width + column) * stride
    weights[count] = weight
    return count + 1


cdef inline ptrdiff_t _find_taps(const _Sizes *s, const int64_t *shapes, const int64_t *starts, const real *locations,
                                 const real *attention, ptrdiff_t *offsets, real *weights) noexcept nogil:
    """Finds the offsets and weights of all pixels in the sum of a query and head; returns their number."""
    cdef ptrdiff_t count = 0, level, point, i, height, width, row, column, stride = s.heads * s.channels
    cdef real x, y, right, below
    for level in range(s.levels):
        height = shapes[2 * level]
        width = shapes[2 * level + 1]
        for point in range(s.points):
            i = level * s.points + point
            x = locations[2 * i] * <real>width - <real>0.5
            y = locations[2 * i + 1] * <real>height - <real>0.5
            if not (x > -1 and y > -1 and x < <real>width and y < <real>height):  # NaN is outside
                continue
            column = <ptrdiff_t>(x + 1) - 1
            row = <ptrdiff_t>(y + 1) - 1
            right = x - <real>column
            below = y - <real>row
            count = _add_tap(offsets, weights, count, row, column, height, width, starts[level], stride,
                             (1 - below) * (1 - right) * attention[i])
            count = _add_tap(offsets, weights, count, row, column + 1, height, width, starts[level], stride,
                             (1 - below) * right * attention[i])
            count = _add_tap(offsets, weights, count, row + 1, column, height, width, starts[level], stride,
                             below * (1 - right) * attention[i])
            count = _add_tap(offsets, weights, count, row + 1, column + 1, height, width, starts[level], stride,
                             below * right * attention[i])
    return count


cdef inline ptrdiff_t _sum_channels(const real *image, const ptrdiff_t *offsets, const real *weights, ptrdiff_t count,
                                    ptrdiff_t channel, ptrdiff_t channels, ptrdiff_t block,
                                    real *target) noexcept nogil:
    """Sums channels from `channel` on, `block` of them (a constant) at a time; returns the first that is left."""
    cdef ptrdiff_t tap, k
    cdef const real *pixel
    cdef real weight
    cdef real[MAX_BLOCK] total
    while channel + block <= channels:
        for k in range(block):
            total[k] = 0
        for tap in range(count):
            pixel = image + offsets[tap] + channel
            weight = weights[tap]
            for k in range(block):
                total[k] += weight * pixel[k]
        for k in range(block):
            target[channel + k] = total[k]
        channel += block
    return channel


cdef simd_void _attend(const _Sizes *s, const real *values, const int64_t *shapes, const int64_t *starts,
                       const real *locations, const real *attention, real *out, ptrdiff_t begin, ptrdiff_t end,
                       ptrdiff_t *offsets, real *weights) noexcept nogil:
    """Computes heads [begin, end), counted through all images and queries."""
    cdef ptrdiff_t samples = s.levels * s.points, unit, head, count, channel
    cdef const real *image
    cdef real *target
    for unit in range(begin, end):
        head = unit % s.heads
        image = values + unit // (s.heads * s.queries) * s.keys * s.heads * s.channels + head * s.channels
        target = out + unit * s.channels
        count = _find_taps(s, shapes, starts, locations + 2 * unit * samples, attention + unit * samples, offsets,
                           weights)
        channel = _sum_channels(image, offsets, weights, count, 0, s.channels, MAX_BLOCK, target)
        channel = _sum_channels(image, offsets, weights, count, channel, s.channels, 8, target)
        _sum_channels(image, offsets, weights, count, channel, s.channels, 1, target)


cdef void _run(mmk_call *call, const real *values, const real *locations, const real *attention, real *out,
               int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef _Sizes s = _sizes(call)
    cdef ptrdiff_t *offsets = <ptrdiff_t *>scratch
    _attend(&s, values, <const int64_t *>call.inputs[SPATIAL_SHAPES].data,
            <const int64_t *>call.inputs[LEVEL_STARTS].data, locations, attention, out, begin, end, offsets,
            <real *>(offsets + _max_taps(&s)))


cdef inline ptrdiff_t _max_taps(const _Sizes *s) noexcept nogil:
    """Returns how many taps a query and head can have."""
    return 4 * s.levels * s.points


cdef _Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef _Sizes s
    s.keys = call.inputs[VALUE].shape[1]
    s.heads = call.inputs[VALUE].shape[2]
    s.channels = call.inputs[VALUE].shape[3]
    s.queries = call.inputs[LOCATIONS].shape[1]
    s.levels = call.inputs[LOCATIONS].shape[3]
    s.points = call.inputs[LOCATIONS].shape[4]
    return s


cdef public int mmk_multi_scale_deformable_attention_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *inputs = call.inputs
    cdef const int64_t *shapes
    cdef const int64_t *starts
    cdef int64_t[3] shape
    cdef int64_t level, height, width
    cdef _Sizes s
    if mmk_check_shape(call, VALUE, "value", "[B, S, M, D]"):
        return -1
    if mmk_check_shape(call, SPATIAL_SHAPES, "spatial_shapes", "[L, 2]"):
        return -1
    if mmk_check_shape(call, LEVEL_STARTS, "level_start_index", "[L]"):
        return -1
    if mmk_check_shape(call, LOCATIONS, "sampling_locations", "[B, Q, M, L, P, 2]"):
        return -1
    if mmk_check_shape(call, WEIGHTS, "attention_weights", "[B, Q, M, L, P]"):
        return -1
    s = _sizes(call)
    shapes = <const int64_t *>inputs[SPATIAL_SHAPES].data
    starts = <const int64_t *>inputs[LEVEL_STARTS].data
    for level in range(s.levels):
        height = shapes[2 * level]
        width = shapes[2 * level + 1]
        if height < 0 or width < 0 or starts[level] < 0 or starts[level] > s.keys or (
                width > 0 and height > (s.keys - starts[level]) // width):
            return mmk_fail(call, "level %lld of %lld x %lld pixels from %lld on must lie within value's S = %lld",
                            <long long>level, <long long>height, <long long>width, <long long>starts[level],
                            <long long>s.keys)
    shape[0] = inputs[VALUE].shape[0]
    shape[1] = s.queries
    shape[2] = s.heads * s.channels
    if mmk_set_output(call, 0, inputs[VALUE].type, 3, shape):
        return -1
    if mmk_check_steps(call, <double>s.levels * s.points * call.outputs[0].size, "samples"):
        return -1
    if call.outputs[0].size:
        mmk_add_phase(call, shape[0] * s.queries * s.heads,
                      1e-3 * s.levels * s.points * (FIND_TAPS + <double>ADD_TAPS * s.channels))
        call.worker_scratch_size[0] = <size_t>_max_taps(&s) * (
            sizeof(ptrdiff_t) + element_size(inputs[VALUE].type))
    return 0


cdef public void mmk_multi_scale_deformable_attention_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                                          void *scratch) noexcept nogil:
    cdef mmk_tensor *inputs = call.inputs
    if inputs[VALUE].type == MMK_FLOAT32:
        _run(call, <const float *>inputs[VALUE].data, <const float *>inputs[LOCATIONS].data,
             <const float *>inputs[WEIGHTS].data, <float *>call.outputs[0].data, begin, end, scratch)
    else:
        _run(call, <const double *>inputs[VALUE].data, <const double *>inputs[LOCATIONS].data,
             <const double *>inputs[WEIGHTS].data, <double *>call.outputs[0].data, begin, end, scratch)
