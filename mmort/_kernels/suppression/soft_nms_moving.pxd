"""soft_nms of many boxes: only those that overlap the emitted one change.

Boxes keep their planes and are numbered by their first positions; scores and these numbers move.  Positions are in
blocks with an upper bound of their scores, by which the largest is found.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS
from mmort._kernels.shared.kernels cimport mmk_item, mmk_sort
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.soft_nms_decay cimport GAUSSIAN, Rule, find_factors
from mmort._kernels.suppression.soft_nms_grid cimport Grid, fill_cells, find_hits, remove_box, soft_grid
from mmort._kernels.suppression.suppression cimport may_continue

cdef enum:
    LANES = 8  # independent running maxima
    BLOCK_BITS = 6  # of a position, within its block
    BLOCK = 1 << BLOCK_BITS
    SCORE = BOX_NUMBERS  # the plane after x1, y1, x2, y2 and area
    COMPARISONS_PER_BOX = 64  # that finding the next box takes the time of


cdef struct Moving:
    int32_t *positions  # by box
    int32_t *boxes      # by position
    void *bounds        # by block: no score is larger
    mmk_item *dropped   # positions
    mmk_item *spare
    Grid grid
    size_t size


cdef inline real _largest(const real *score, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    """Returns the maximum of the scores [begin, end) that are numbers."""
    cdef real[LANES] lanes
    cdef ptrdiff_t i = begin, k
    for k in range(LANES):
        lanes[k] = -INFINITY
    while i + LANES <= end:
        for k in range(LANES):
            lanes[k] = score[i + k] if lanes[k] < score[i + k] else lanes[k]
        i += LANES
    while i < end:
        lanes[0] = score[i] if lanes[0] < score[i] else lanes[0]
        i += 1
    for k in range(1, LANES):
        lanes[0] = lanes[k] if lanes[0] < lanes[k] else lanes[0]
    return lanes[0]


cdef inline simd_void find_largest(const real *score, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t *position,
                                   real *largest) noexcept nogil:
    """Finds the first maximum of the scores [begin, end) that are numbers; `begin` if there is none above -inf."""
    cdef real value = _largest(score, begin, end)
    cdef ptrdiff_t i = begin, k
    cdef int32_t is_here = 0
    largest[0] = value
    position[0] = begin
    if value == -INFINITY:
        return
    while not is_here:  # a block at a time, in vectors
        for k in range(i, min(i + BLOCK, end)):
            is_here |= score[k] == value
        i += BLOCK
    i -= BLOCK
    while score[i] != value:
        i += 1
    position[0] = i


cdef inline Moving moving(int type, size_t n, void *scratch) noexcept nogil:
    cdef Moving m
    cdef size_t address = <size_t>scratch
    m.positions = <int32_t *>take(&address, n * sizeof(int32_t))
    m.boxes = <int32_t *>take(&address, n * sizeof(int32_t))
    m.bounds = take(&address, ((n >> BLOCK_BITS) + 1) * element_size(type))
    m.dropped = <mmk_item *>take(&address, n * sizeof(mmk_item))
    m.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    m.grid = soft_grid(type, n, address)
    m.size = address + m.grid.size - <size_t>scratch
    return m


cdef inline void _set_score(const Moving *m, real *score, ptrdiff_t position, real value) noexcept nogil:
    cdef real *bound = <real *>m.bounds + (position >> BLOCK_BITS)
    score[position] = value
    if value > bound[0]:
        bound[0] = value


cdef inline void _place(const Moving *m, real *score, int64_t *indices, ptrdiff_t position, int32_t box, real value,
                        int64_t index) noexcept nogil:
    m.boxes[position] = box
    m.positions[box] = <int32_t>position
    indices[position] = index
    _set_score(m, score, position, value)


cdef inline ptrdiff_t _find_by_bounds(const Moving *m, const real *score, ptrdiff_t begin,
                                      ptrdiff_t end) noexcept nogil:
    """Returns the position of the first maximum of [begin, end), or `begin` if that is NaN; lowers bounds."""
    cdef real *bounds = <real *>m.bounds
    cdef ptrdiff_t block, position
    cdef real bound
    while True:
        find_largest(bounds, begin >> BLOCK_BITS, ((end - 1) >> BLOCK_BITS) + 1, &block, &bound)
        if not bound > score[begin]:  # nor if that is NaN
            return begin
        position = max(begin, block << BLOCK_BITS)
        bounds[block] = _largest(score, position, min(end, (block + 1) << BLOCK_BITS))
        if bounds[block] == bound:
            while score[position] != bound:
                position += 1
            return position


cdef inline void suppress_by_grid(mmk_call *call, real *planes, int64_t *indices, int64_t *count, const Rule *rule,
                                  Moving *m) noexcept nogil:
    """Emits all boxes of the grid, if `choose_cells` accepts them; scores below `min_score` are dropped already."""
    cdef Grid *grid = &m.grid
    cdef real *score = planes + SCORE * grid.stride
    cdef real *factors = <real *>grid.ious
    cdef real min_score = <real>rule.min_score, value
    cdef real min_iou = <real>rule.iou_threshold
    cdef ptrdiff_t i, k, hits, position, dropped
    cdef mmk_item *items
    cdef int32_t box
    cdef int64_t index, comparisons = 0, uncounted = 0
    if rule.method == GAUSSIAN:
        min_iou = <real>(1e-45 if sizeof(real) == sizeof(float) else 5e-324)  # the smallest above 0
    fill_cells(grid, planes)
    for i in range((grid.stride >> BLOCK_BITS) + 1):
        (<real *>m.bounds)[i] = -INFINITY
    for i in range(grid.begin, grid.end):
        _place(m, score, indices, i, <int32_t>i, score[i], indices[i])
    i = grid.begin
    while i < count[0]:
        position = _find_by_bounds(m, score, i, count[0])
        box = m.boxes[position]
        if position != i:
            value = score[position]
            index = indices[position]
            _place(m, score, indices, position, m.boxes[i], score[i], indices[i])
            _place(m, score, indices, i, box, value, index)
        remove_box(grid, planes, box)
        uncounted += COMPARISONS_PER_BOX
        find_hits(grid, planes, box, <real>rule.offset, min_iou, &hits, &uncounted)
        if not may_continue(call, &comparisons, &uncounted, grid.stride):
            return
        find_factors(factors, hits, rule)
        dropped = 0
        for k in range(hits):
            position = m.positions[grid.hits[k]]
            value = score[position] * factors[k]
            _set_score(m, score, position, value)
            m.dropped[dropped].key = position
            dropped += value < min_score
        items = mmk_sort(call, m.dropped, m.spare, dropped)
        i += 1
        for k in range(dropped):
            position = items[k].key
            while position < count[0] and score[position] < min_score:
                count[0] -= 1
                remove_box(grid, planes, m.boxes[position])
                if position < count[0]:
                    _place(m, score, indices, position, m.boxes[count[0]], score[count[0]], indices[count[0]])
