"""nms: suppression by a hash table, which finds the kept boxes that could suppress a box.

IoU > t bounds, on each axis, the ratio of the sides (within [t, 1 / t]) and the distance of the centres
(below (1 - t) / (1 + t) times the mean side).  Kept boxes are keyed by the magnitude of both sides, their levels, and
by a cell of the plane whose size follows from them, so that the few candidates of a box are in a few cells and the
time is nearly linear.  Candidates are compared by the same arithmetic as all pairs would be, so results are the same.
"""
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t

from element_types cimport real
from mmk cimport mmk_call
from mmort._kernels.boxes cimport BOX_NUMBERS, intersection, iou_of
from mmort._kernels.cells cimport Table, add_entry, bucket_of, empty_table, floor_of, largest_side, level_of
from mmort._kernels.suppression cimport goes_on

cdef enum:
    MAX_OCTAVES = 16  # of a level


cdef struct _Grid:
    Table table         # of kept boxes
    int64_t octaves     # powers of two that a level spans
    double threshold    # of the bounds: a little below the real one, which covers all rounding
    double reach        # maximum distance of centres, in mean sides; edge of a cell, in largest sides of its level


cdef inline bint _participates(const real *box, real offset) noexcept nogil:
    """Returns whether the box can suppress or be suppressed; if not, its IoU with any box is 0 or NaN."""
    return ((box[2] - box[0]) + offset > 0 and (box[3] - box[1]) + offset > 0 and box[4] > 0 and isfinite(box[4]))


cdef inline bint fits_grid(const real *boxes, ptrdiff_t begin, ptrdiff_t count, real threshold,
                           real offset) noexcept nogil:
    """Returns whether the bounds hold for these boxes in spite of rounding, as they do for all but very odd input."""
    cdef ptrdiff_t i
    cdef int k
    cdef double smallest = 1e300, farthest = 0
    cdef const real *box
    if not threshold >= <real>0.05:
        return False
    for i in range(begin, count):
        box = boxes + BOX_NUMBERS * i
        if _participates(box, offset):
            smallest = min(smallest, <double>min((box[2] - box[0]) + offset, (box[3] - box[1]) + offset))
            for k in range(4):
                farthest = max(farthest, <double>(box[k] if box[k] > 0 else -box[k]))
    return (smallest * 256 >= (offset if offset > 0 else -offset) and farthest < 1e300
            and farthest < smallest * <double>(1 << 30))


cdef inline bint _is_suppressed(const _Grid *grid, const real *boxes, const real *box, real threshold, real offset,
                                int64_t *comparisons) noexcept nogil:
    cdef double width = (box[2] - box[0]) + offset, height = (box[3] - box[1]) + offset
    cdef double x = (<double>box[0] + <double>box[2]) / 2, y = (<double>box[1] + <double>box[3]) / 2
    cdef int64_t octaves = grid.octaves
    cdef int64_t last_x = level_of(width / grid.threshold, octaves), last_y = level_of(height / grid.threshold, octaves)
    cdef int64_t first_y = level_of(height * grid.threshold, octaves)
    cdef int64_t level_x = level_of(width * grid.threshold, octaves), level_y, column, line, last_column, last_line
    cdef double largest, reach_x, reach_y, per_x, per_y
    cdef uint32_t candidate
    cdef const real *kept
    cdef real common
    while level_x <= last_x:
        largest = largest_side(level_x, octaves)
        reach_x = grid.reach * (width + min(largest, width / grid.threshold)) / 2
        per_x = 1 / (grid.reach * largest)
        last_column = floor_of((x + reach_x) * per_x)
        level_y = first_y
        while level_y <= last_y:
            largest = largest_side(level_y, octaves)
            reach_y = grid.reach * (height + min(largest, height / grid.threshold)) / 2
            per_y = 1 / (grid.reach * largest)
            last_line = floor_of((y + reach_y) * per_y)
            column = floor_of((x - reach_x) * per_x)
            while column <= last_column:
                line = floor_of((y - reach_y) * per_y)
                while line <= last_line:
                    candidate = grid.table.heads[bucket_of(level_x, level_y, column, line, grid.table.shift)]
                    while candidate:
                        kept = boxes + BOX_NUMBERS * <ptrdiff_t>(candidate - 1)
                        comparisons[0] += 1
                        common = intersection(kept[0], kept[1], kept[2], kept[3], box[0], box[1], box[2], box[3],
                                              offset)
                        if common > 0 and iou_of(common, kept[4], box[4]) > threshold:
                            return True
                        candidate = grid.table.nexts[candidate - 1]
                    line += 1
                column += 1
            level_y += 1
        level_x += 1
    return False


cdef inline void _insert(const _Grid *grid, const real *box, ptrdiff_t i, real offset) noexcept nogil:
    cdef int64_t level_x = level_of((box[2] - box[0]) + offset, grid.octaves)
    cdef int64_t level_y = level_of((box[3] - box[1]) + offset, grid.octaves)
    cdef double per_x = 1 / (grid.reach * largest_side(level_x, grid.octaves))
    cdef double per_y = 1 / (grid.reach * largest_side(level_y, grid.octaves))
    cdef int64_t column = floor_of((<double>box[0] + <double>box[2]) / 2 * per_x)
    cdef int64_t line = floor_of((<double>box[1] + <double>box[3]) / 2 * per_y)
    add_entry(&grid.table, bucket_of(level_x, level_y, column, line, grid.table.shift), i)


cdef inline int suppress_by_grid(mmk_call *call, const real *boxes, ptrdiff_t begin, ptrdiff_t count, real threshold,
                                 real offset, ptrdiff_t max_kept, uint32_t *memory, int32_t *flags) noexcept nogil:
    """Suppresses boxes from position `begin` on; those that a box before it suppresses are flagged already.

    `boxes` have BOX_NUMBERS numbers each; `memory` has table_size(count) numbers.  Returns -1 if the call is stopped.
    """
    cdef _Grid grid
    cdef ptrdiff_t i, kept = 0
    cdef int64_t comparisons = 0, unasked = 0
    cdef double span
    grid.table = empty_table(memory, count)
    grid.threshold = min(<double>threshold, 1.0) * 0.999
    grid.reach = (1 - grid.threshold) / (1 + grid.threshold)
    grid.octaves = 1
    span = grid.threshold * grid.threshold * 2.8  # two levels, seldom three, hold all sides between t and 1 / t
    while span < 1 and grid.octaves < MAX_OCTAVES:
        grid.octaves += 1
        span *= 2
    for i in range(begin):
        kept += not flags[i]
    for i in range(begin, count):
        flags[i] |= kept >= max_kept
        if flags[i]:
            continue
        if _participates(boxes + BOX_NUMBERS * i, offset):
            if not goes_on(call, &comparisons, &unasked, count):
                return -1
            if _is_suppressed(&grid, boxes, boxes + BOX_NUMBERS * i, threshold, offset, &unasked):
                flags[i] = 1
                continue
            _insert(&grid, boxes + BOX_NUMBERS * i, i, offset)
        kept += 1
    return 0
