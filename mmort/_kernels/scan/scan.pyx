"""corner_pool, cummax and cummin: running extrema along one dimension, for every real element type.

corner_pool is the running maximum along a row or column of a feature map (CornerNet, Law and Deng 2018); cummax and
cummin also give the index of each extremum, the last one among equal values.  NaN propagates, as in torch; MMCV's
kernels skipped it.  A line is the elements that one extremum runs along; the units of work are lines.
"""
from libc.stdint cimport (INT32_MAX, int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t)

from element_types cimport number
from mmk cimport *

cdef extern from "lanes.h" nogil:
    bint has_lanes() noexcept
    ptrdiff_t pool_lanes(const float *x, float *y, ptrdiff_t steps, ptrdiff_t stride, float *largest) noexcept
    void accumulate_floats(const float *x, float *values, int64_t *indices, ptrdiff_t steps, int64_t first,
                           bint maximum, float *best, int64_t *index) noexcept
    enum:
        KEY_BITS
        KEY_STEP
    void accumulate_keys(int32_t *keys, int64_t *indices, ptrdiff_t steps, int64_t first, int32_t best,
                         int64_t *index) noexcept

cdef enum Scan:
    CORNER_POOL
    CUMMAX
    CUMMIN

cdef enum:
    MODE = 0  # the attribute of corner_pool
    DIM = 0  # the attribute of cummax and cummin

cdef enum:  # modes
    TOP
    BOTTOM
    LEFT
    RIGHT

cdef enum:
    BLOCK = 32  # elements of a line that are tested together
    FEW_LINES = 4
    TOGETHER = 4  # elements of a row; a loop over single ones may cross a cache line, and takes 1.5 times as long then
    MIN_ROW = 8  # adjacent elements of different lines, from which on vectors are faster: cummin, 143x82x2 and 705x4

cdef enum:  # picoseconds per element
    POOL = 300  # corner_pool, 1x128x128x128, left
    ACCUMULATE = 1000  # cummax, 100000x5; longer lines take less


# ---- corner_pool -----------------------------------------------------------------------------------------------------

cdef simd_void _pool_columns(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride, ptrdiff_t first,
                             ptrdiff_t last) noexcept nogil:
    """Pools columns [first, last) of a plane; successive rows are `stride` apart (negative: upwards)."""
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


cdef inline void _pool_elements(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride,
                                bint lanes) noexcept nogil:
    cdef number largest = x[0], value
    cdef bint nan = False
    cdef ptrdiff_t k, begin = 0
    for k in range(steps):
        nan |= x[k * stride] != x[k * stride]
    if nan:
        for k in range(steps):
            value = x[k * stride]
            largest = value if (largest < value) | (value != value) else largest
            y[k * stride] = largest
    else:
        if number is float:
            begin = pool_lanes(x, y, steps, stride, &largest) if lanes else 0
        # Without NaN the maximum is one instruction, and no branch is mispredicted.
        while begin + TOGETHER <= steps:
            for k in range(TOGETHER):
                value = x[(begin + k) * stride]
                largest = value if largest < value else largest
                y[(begin + k) * stride] = largest
            begin += TOGETHER
        for k in range(begin, steps):
            value = x[k * stride]
            largest = value if largest < value else largest
            y[k * stride] = largest


cdef simd_void _pool_row(const number *x, number *y, ptrdiff_t steps, ptrdiff_t stride, bint lanes) noexcept nogil:
    """Pools a row of `steps` elements; `stride` is 1 or -1, and x and y point at the first element visited."""
    if stride == 1:  # a constant, so that the search for NaN is vectorised
        _pool_elements(x, y, steps, 1, lanes)
    else:
        _pool_elements(x, y, steps, -1, lanes)


cdef void _pool(const mmk_call *call, const number *x, number *y, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    cdef ptrdiff_t height = call.inputs[0].shape[2], width = call.inputs[0].shape[3]
    cdef int64_t mode = call.attributes[MODE].i
    cdef ptrdiff_t line = begin, last, plane, start
    cdef bint lanes = has_lanes()
    if mode == TOP or mode == BOTTOM:  # a line is a column of a plane
        while line < end:
            last = min(end, (line // width + 1) * width)
            plane = line // width * width * height
            start = plane + (width * (height - 1) if mode == TOP else 0)
            _pool_columns(x + start, y + start, height, -width if mode == TOP else width,
                          line % width, line % width + last - line)
            line = last
    else:  # a line is a row
        while line < end:
            start = line * width + (width - 1 if mode == LEFT else 0)
            _pool_row(x + start, y + start, width, -1 if mode == LEFT else 1, lanes)
            line += 1


# ---- cummax and cummin -----------------------------------------------------------------------------------------------

cdef inline bint _replaces(number value, number best, bint largest) noexcept nogil:
    """Returns whether `value` becomes the extremum: also if it is NaN, but not if only `best` is."""
    return ((value >= best) if largest else (value <= best)) | (value != value)


cdef simd_void _accumulate_lines(const number *x, number *values, int64_t *indices, ptrdiff_t steps, ptrdiff_t stride,
                                 ptrdiff_t first, ptrdiff_t last, bint largest) noexcept nogil:
    """Scans lines [first, last), which are adjacent; successive elements of a line are `stride` apart."""
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


cdef inline void _accumulate_few(const number *x, number *values, int64_t *indices, ptrdiff_t steps, ptrdiff_t stride,
                                 int width, bint largest) noexcept nogil:
    """Scans up to FEW_LINES adjacent lines, whose extrema stay in registers; the last two arguments are constants."""
    cdef number[FEW_LINES] best
    cdef int64_t[FEW_LINES] index
    cdef number value
    cdef bint replaces
    cdef ptrdiff_t k
    cdef int i
    for i in range(width):
        best[i] = x[i]
        index[i] = 0
    for k in range(steps):
        for i in range(width):
            value = x[k * stride + i]
            replaces = _replaces(value, best[i], largest)
            best[i] = value if replaces else best[i]
            index[i] = max(index[i], k & -<int64_t>replaces)  # else gcc would make it a branch
            values[k * stride + i] = best[i]
            indices[k * stride + i] = index[i]


cdef void _accumulate_short_rows(const number *x, number *values, int64_t *indices, ptrdiff_t steps, ptrdiff_t stride,
                                 ptrdiff_t first, ptrdiff_t last, bint largest) noexcept nogil:
    """Scans lines [first, last) like _accumulate_lines, where rows are too short for vectors."""
    while first < last:
        if last - first >= 4:
            if largest:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 4, True)
            else:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 4, False)
            first += 4
        elif last - first >= 2:
            if largest:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 2, True)
            else:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 2, False)
            first += 2
        else:
            if largest:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 1, True)
            else:
                _accumulate_few(x + first, values + first, indices + first, steps, stride, 1, False)
            first += 1


cdef inline bint _accumulate_block(const number *x, number *values, int64_t *indices, int64_t first, bint largest,
                                   number *best, int64_t *index) noexcept nogil:
    """Scans BLOCK elements, of which the first has the index `first`, in vectors; returns whether the type has any."""
    cdef int32_t[BLOCK] keys
    cdef int32_t sign = 1 if largest else -1
    cdef ptrdiff_t k
    if number is float:
        accumulate_floats(x, values, indices, BLOCK, first, largest, best, index)
        return True
    elif number is int8_t or number is uint8_t or number is int16_t or number is uint16_t:
        for k in range(BLOCK):
            keys[k] = sign * <int32_t>x[k] * KEY_STEP + <int32_t>k + 1
        accumulate_keys(keys, indices, BLOCK, first, sign * <int32_t>best[0] * KEY_STEP, index)
        for k in range(BLOCK):
            values[k] = <number>(sign * (keys[k] >> KEY_BITS))
        best[0] = values[BLOCK - 1]
        return True
    else:
        return False


cdef inline void _accumulate_elements(const number *x, number *values, int64_t *indices, ptrdiff_t steps,
                                      bint largest, bint lanes) noexcept nogil:
    """Scans a line block by block: most blocks of a long line change nothing, which a vectorised test shows."""
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
        elif not nan and end - begin == BLOCK and lanes and _accumulate_block(
                x + begin, values + begin, indices + begin, begin, largest, &best, &index):
            pass  # done, in vectors
        elif not nan:
            for k in range(begin, end):
                value = x[k]
                stays = best > value if largest else best < value
                best = best if stays else value  # one instruction; with NaN it would be several
                if number is float or number is double:
                    index = index if stays else k
                else:  # gcc would turn that into a branch
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


cdef simd_void _accumulate_line(const number *x, number *values, int64_t *indices, ptrdiff_t steps,
                                bint largest, bint lanes) noexcept nogil:
    """Scans a line of adjacent elements."""
    if largest:  # a constant from here on
        _accumulate_elements(x, values, indices, steps, True, lanes)
    else:
        _accumulate_elements(x, values, indices, steps, False, lanes)


cdef ptrdiff_t _stride(const mmk_call *call) noexcept nogil:
    """Returns how far apart the elements of a line are."""
    cdef ptrdiff_t d, stride = 1
    for d in range(call.attributes[DIM].i + 1, call.inputs[0].rank):
        stride *= call.inputs[0].shape[d]
    return stride


cdef void _accumulate(const mmk_call *call, const number *x, number *values, ptrdiff_t begin, ptrdiff_t end,
                      bint largest) noexcept nogil:
    cdef int64_t *indices = <int64_t *>call.outputs[1].data
    cdef ptrdiff_t steps = call.inputs[0].shape[call.attributes[DIM].i], stride = _stride(call)
    cdef ptrdiff_t line = begin, last, start
    cdef bint lanes = has_lanes() and steps <= INT32_MAX
    while line < end:
        if stride == 1:
            start = line * steps
            _accumulate_line(x + start, values + start, indices + start, steps, largest, lanes)
            last = line + 1
        else:
            last = min(end, (line // stride + 1) * stride)
            start = line // stride * stride * steps
            if stride < MIN_ROW:
                _accumulate_short_rows(x + start, values + start, indices + start, steps, stride, line % stride,
                                       line % stride + last - line, largest)
            else:
                _accumulate_lines(x + start, values + start, indices + start, steps, stride, line % stride,
                                  line % stride + last - line, largest)
        line = last


# ---- the three operators ---------------------------------------------------------------------------------------------

cdef void _scan(const mmk_call *call, Scan scan, const number *x, number *y, int64_t begin, int64_t end) noexcept nogil:
    if scan == CORNER_POOL:
        _pool(call, x, y, begin, end)
    else:
        _accumulate(call, x, y, begin, end, scan == CUMMAX)


cdef void _run(const mmk_call *call, Scan scan, int64_t begin, int64_t end) noexcept nogil:
    """Scans lines [begin, end) of any element type."""
    cdef const void *x = call.inputs[0].data
    cdef void *y = call.outputs[0].data
    cdef int type = call.inputs[0].type
    if type == MMK_FLOAT32:
        _scan(call, scan, <const float *>x, <float *>y, begin, end)
    elif type == MMK_FLOAT64:
        _scan(call, scan, <const double *>x, <double *>y, begin, end)
    elif type == MMK_INT8:
        _scan(call, scan, <const int8_t *>x, <int8_t *>y, begin, end)
    elif type == MMK_INT16:
        _scan(call, scan, <const int16_t *>x, <int16_t *>y, begin, end)
    elif type == MMK_INT32:
        _scan(call, scan, <const int32_t *>x, <int32_t *>y, begin, end)
    elif type == MMK_INT64:
        _scan(call, scan, <const int64_t *>x, <int64_t *>y, begin, end)
    elif type == MMK_UINT8 or type == MMK_BOOL:
        _scan(call, scan, <const uint8_t *>x, <uint8_t *>y, begin, end)
    elif type == MMK_UINT16:
        _scan(call, scan, <const uint16_t *>x, <uint16_t *>y, begin, end)
    elif type == MMK_UINT32:
        _scan(call, scan, <const uint32_t *>x, <uint32_t *>y, begin, end)
    else:
        _scan(call, scan, <const uint64_t *>x, <uint64_t *>y, begin, end)


cdef int _prepare_accumulation(mmk_call *call) noexcept nogil:
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
        mmk_add_phase(call, x.size // x.shape[dim], 1e-3 * ACCUMULATE * x.shape[dim])
    return 0


cdef public int mmk_corner_pool_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[0]
    cdef int64_t mode = call.attributes[MODE].i, steps
    if mmk_check_shape(call, 0, "input", "[N, C, H, W]"):
        return -1
    if mode < TOP or mode > RIGHT:
        return mmk_fail(call, "mode must be 0 (top), 1 (bottom), 2 (left) or 3 (right), got %lld", <long long>mode)
    if mmk_set_output(call, 0, x.type, 4, x.shape):
        return -1
    if x.size:
        steps = x.shape[2 if mode == TOP or mode == BOTTOM else 3]
        mmk_add_phase(call, x.size // steps, 1e-3 * POOL * steps)
    return 0


cdef public void mmk_corner_pool_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    _run(call, CORNER_POOL, begin, end)


cdef public int mmk_cummax_prepare(mmk_call *call) noexcept nogil:
    return _prepare_accumulation(call)


cdef public void mmk_cummax_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    _run(call, CUMMAX, begin, end)


cdef public int mmk_cummin_prepare(mmk_call *call) noexcept nogil:
    return _prepare_accumulation(call)


cdef public void mmk_cummin_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    _run(call, CUMMIN, begin, end)
