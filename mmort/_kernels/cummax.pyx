"""cummax and cummin: running extremum and where it was found, along one dimension.

Among equal values the latest index is reported, and NaN propagates, both as in torch; MMCV's kernels skipped NaN.
"""
from libc.stdint cimport (int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)

from element_types cimport number
from mmk cimport *

cdef enum:
    DIM  # attribute 0

cdef enum:
    BLOCK = 32  # elements of a line that are looked at together


cdef inline bint _replaces(number value, number best, bint largest) noexcept nogil:
    """Also if the value is NaN; not, if only the best is."""
    return ((value >= best) if largest else (value <= best)) | (value != value)


cdef simd_void _across(const number *x, number *values, int64_t *indices, ptrdiff_t steps, ptrdiff_t stride,
                       ptrdiff_t first, ptrdiff_t last, bint largest) noexcept nogil:
    """Lines [first, last) that lie side by side; successive elements of a line are `stride` apart."""
    cdef ptrdiff_t k, i
    cdef number value, best
    cdef bint replaces
    for i in range(first, last):
        values[i] = x[i]
        indices[i] = 0
    for k in range(1, steps):
        x += stride
        values += stride
        indices += stride
        for i in range(first, last):
            best = values[i - stride]
            value = x[i]
            replaces = _replaces(value, best, largest)
            values[i] = value if replaces else best
            indices[i] = k if replaces else indices[i - stride]


cdef inline void _walk_along(const number *x, number *values, int64_t *indices, ptrdiff_t steps,
                             bint largest) noexcept nogil:
    """By blocks: most blocks of a long line change nothing, which is seen in vectors."""
    cdef number best = x[0], value
    cdef int64_t index = 0
    cdef ptrdiff_t begin = 0, end, k
    cdef bint changes, nan, stays
    while begin < steps:
        end = min(begin + BLOCK, steps)
        changes = False
        nan = best != best
        for k in range(begin, end):
            changes |= not (x[k] < best if largest else x[k] > best)
            nan |= x[k] != x[k]
        if not changes:
            for k in range(begin, end):
                values[k] = best
                indices[k] = index
        elif not nan:
            for k in range(begin, end):
                value = x[k]
                stays = best > value if largest else best < value
                best = best if stays else value  # one instruction, where NaN needs more
                if number is float or number is double:
                    index = index if stays else k
                else:  # gcc would make a branch of that
                    index = max(index, k & (<int64_t>stays - 1))
                values[k] = best
                indices[k] = index
        else:
            for k in range(begin, end):
                if _replaces(x[k], best, largest):
                    best = x[k]
                    index = k
                values[k] = best
                indices[k] = index
        begin = end


cdef simd_void _along(const number *x, number *values, int64_t *indices, ptrdiff_t steps, bint largest) noexcept nogil:
    """A line of adjacent elements."""
    if largest:  # a constant from here on
        _walk_along(x, values, indices, steps, True)
    else:
        _walk_along(x, values, indices, steps, False)


cdef ptrdiff_t _inner(const mmk_call *call) noexcept nogil:
    """How far apart the elements of a line are."""
    cdef ptrdiff_t d, inner = 1
    for d in range(call.attributes[DIM].i + 1, call.inputs[0].rank):
        inner *= call.inputs[0].shape[d]
    return inner


cdef void _lines(mmk_call *call, const number *x, number *values, ptrdiff_t begin, ptrdiff_t end,
                 bint largest) noexcept nogil:
    cdef int64_t *indices = <int64_t *>call.outputs[1].data
    cdef ptrdiff_t steps = call.inputs[0].shape[call.attributes[DIM].i], inner = _inner(call)
    cdef ptrdiff_t line = begin, last, start
    while line < end:
        if inner == 1:
            start = line * steps
            _along(x + start, values + start, indices + start, steps, largest)
            last = line + 1
        else:
            last = min(end, (line // inner + 1) * inner)
            start = line // inner * inner * steps
            _across(x + start, values + start, indices + start, steps, inner, line % inner,
                    line % inner + last - line, largest)
        line = last


cdef int _prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[0]
    cdef int64_t dim = call.attributes[DIM].i
    if x.rank == 0:
        return mmk_fail(call, "input must have at least one dimension, got a scalar")
    if dim < -x.rank or dim >= x.rank:
        return mmk_fail(call, "dim must be in [%d, %d] for an input of %d dimensions, got %lld", -x.rank, x.rank - 1,
                        x.rank, <long long>dim)
    if dim < 0:
        dim += x.rank
        call.attributes[DIM].i = dim
    if mmk_set_output(call, 0, x.type, x.rank, x.shape) or mmk_set_output(call, 1, MMK_INT64, x.rank, x.shape):
        return -1
    if x.size:
        mmk_add_phase(call, x.size // x.shape[dim], 1.5 * x.shape[dim])
    return 0


cdef void _run(mmk_call *call, int64_t begin, int64_t end, bint largest) noexcept nogil:
    cdef const void *x = call.inputs[0].data
    cdef void *y = call.outputs[0].data
    cdef int type = call.inputs[0].type
    if type == MMK_FLOAT32:
        _lines(call, <const float *>x, <float *>y, begin, end, largest)
    elif type == MMK_FLOAT64:
        _lines(call, <const double *>x, <double *>y, begin, end, largest)
    elif type == MMK_INT8:
        _lines(call, <const int8_t *>x, <int8_t *>y, begin, end, largest)
    elif type == MMK_INT16:
        _lines(call, <const int16_t *>x, <int16_t *>y, begin, end, largest)
    elif type == MMK_INT32:
        _lines(call, <const int32_t *>x, <int32_t *>y, begin, end, largest)
    elif type == MMK_INT64:
        _lines(call, <const int64_t *>x, <int64_t *>y, begin, end, largest)
    elif type == MMK_UINT8 or type == MMK_BOOL:
        _lines(call, <const uint8_t *>x, <uint8_t *>y, begin, end, largest)
    elif type == MMK_UINT16:
        _lines(call, <const uint16_t *>x, <uint16_t *>y, begin, end, largest)
    elif type == MMK_UINT32:
        _lines(call, <const uint32_t *>x, <uint32_t *>y, begin, end, largest)
    else:
        _lines(call, <const uint64_t *>x, <uint64_t *>y, begin, end, largest)


cdef public int mmk_cummax_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call)


cdef public void mmk_cummax_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    _run(call, begin, end, True)


cdef public int mmk_cummin_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call)


cdef public void mmk_cummin_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    _run(call, begin, end, False)
