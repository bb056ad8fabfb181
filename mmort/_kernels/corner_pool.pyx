"""corner_pool: running maximum along one axis of a feature map (CornerNet, Law and Deng 2018).

NaN propagates, as in torch.cummax; MMCV's kernel skipped it.
"""
from libc.stdint cimport (int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)

from element_types cimport number
from mmk cimport *

cdef enum:
    MODE  # attribute 0

cdef enum:
    TOP
    BOTTOM
    LEFT
    RIGHT


cdef simd_void _along_columns(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride, ptrdiff_t first,
                              ptrdiff_t last) noexcept nogil:
    """Columns [first, last) of a plane; successive rows are `stride` (negative: upwards) apart."""
    cdef ptrdiff_t _k, i
    cdef number previous, value
    for i in range(first, last):
        y[i] = x[i]
    for _k in range(1, steps):
        x += stride
        y += stride
        for i in range(first, last):
            previous = y[i - stride]
            value = x[i]
            y[i] = value if (previous < value) | (value != value) else previous


cdef inline void _walk_row(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride) noexcept nogil:
    cdef number largest = x[0], value
    cdef bint nan = False
    cdef ptrdiff_t k
    for k in range(steps):
        nan |= x[k * stride] != x[k * stride]
    if nan:
        for k in range(steps):
            value = x[k * stride]
            largest = value if (largest < value) | (value != value) else largest
            y[k * stride] = largest
    else:
        for k in range(steps):  # one instruction for the maximum, and no branch on noise
            value = x[k * stride]
            largest = value if largest < value else largest
            y[k * stride] = largest


cdef simd_void _along_row(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride) noexcept nogil:
    """A row of `steps` elements; `stride` is 1 or -1, and x and y point at the first element walked."""
    if stride == 1:  # a constant, so that the search for NaN becomes vectors
        _walk_row(x, y, steps, 1)
    else:
        _walk_row(x, y, steps, -1)


cdef void _lines(mmk_call *call, const number *x, number *y, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    cdef ptrdiff_t height = call.inputs[0].shape[2], width = call.inputs[0].shape[3]
    cdef int64_t mode = call.attributes[MODE].i
    cdef ptrdiff_t line = begin, last, plane, start
    if mode == TOP or mode == BOTTOM:  # a line is a column of a plane
        while line < end:
            last = min(end, (line // width + 1) * width)
            plane = line // width * width * height
            start = plane + (width * (height - 1) if mode == TOP else 0)
            _along_columns(x + start, y + start, height, -width if mode == TOP else width,
                           line % width, line % width + last - line)
            line = last
    else:  # a line is a row
        while line < end:
            start = line * width + (width - 1 if mode == LEFT else 0)
            _along_row(x + start, y + start, width, -1 if mode == LEFT else 1)
            line += 1


cdef public int mmk_corner_pool_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[0]
    cdef int64_t mode = call.attributes[MODE].i
    cdef bint vertical = mode == TOP or mode == BOTTOM
    if mmk_check_shape(call, 0, "input", "[N, C, H, W]"):
        return -1
    if mode < TOP or mode > RIGHT:
        return mmk_fail(call, "mode must be 0 (top), 1 (bottom), 2 (left) or 3 (right), got %lld", <long long>mode)
    if mmk_set_output(call, 0, x.type, 4, x.shape):
        return -1
    if x.size:
        mmk_add_phase(call, x.size // x.shape[2 if vertical else 3], 0.7 * x.shape[2 if vertical else 3])
    return 0


cdef public void mmk_corner_pool_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef const void *x = call.inputs[0].data
    cdef void *y = call.outputs[0].data
    cdef int type = call.inputs[0].type
    if type == MMK_FLOAT32:
        _lines(call, <const float *>x, <float *>y, begin, end)
    elif type == MMK_FLOAT64:
        _lines(call, <const double *>x, <double *>y, begin, end)
    elif type == MMK_INT8:
        _lines(call, <const int8_t *>x, <int8_t *>y, begin, end)
    elif type == MMK_INT16:
        _lines(call, <const int16_t *>x, <int16_t *>y, begin, end)
    elif type == MMK_INT32:
        _lines(call, <const int32_t *>x, <int32_t *>y, begin, end)
    elif type == MMK_INT64:
        _lines(call, <const int64_t *>x, <int64_t *>y, begin, end)
    elif type == MMK_UINT8 or type == MMK_BOOL:
        _lines(call, <const uint8_t *>x, <uint8_t *>y, begin, end)
    elif type == MMK_UINT16:
        _lines(call, <const uint16_t *>x, <uint16_t *>y, begin, end)
    elif type == MMK_UINT32:
        _lines(call, <const uint32_t *>x, <uint32_t *>y, begin, end)
    else:
        _lines(call, <const uint64_t *>x, <uint64_t *>y, begin, end)
