"""Rotated NMS: a hash table that finds the kept boxes which could suppress a box.

Let a box's reach be half the longer side of the upright rectangle around it.  Kept boxes are keyed by the power of two
of their reach, their level, and by the cell of the plane that has their centre, as wide as the level's largest reach.
An overlap of at least t bounds the other box, so that a few cells of a few levels have all candidates:

* Both boxes lie within their upright rectangles, so 4 * reach**2 is at least t times the area of the other box.
* Sections across an axis grow from one end of a box to its middle, then shrink.  So the longest is at most twice the
  mean one, and a range of 2 * r of the axis has at most 2 * r / reach of the area: reach is at most 2 * r / t.
* For the same reason an end of length l, up to half of the box, has at most l / (2 * reach) of the area.  So the
  rectangles share at least 2 * min(t, 1/2) times the larger reach on each axis.

The bounds hold for computed overlaps, too, since boxes with so long sides that rounding matters are not looked up.
"""
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint32_t

from element_types cimport real
from mmort._kernels.cells cimport Table, add_entry, bucket_of, empty_table, floor_of, largest_side, level_of
from mmort._kernels.rotated cimport Rectangle, are_apart, reaches

cdef enum:
    KEPT_PER_CELL = 16  # looking up a cell takes as long as comparing so many kept boxes: nms_rotated


cdef struct Grid:
    Table table
    int64_t first_level  # of the boxes in it
    int64_t last_level
    double bound         # a little below the threshold, which covers all rounding
    double shared        # the least part of the larger reach that rectangles share


cdef inline double _reach(const Rectangle *box) noexcept nogil:
    return max(box.reach_x, box.reach_y)


cdef inline bint fits_grid(const Rectangle *box) noexcept nogil:
    """Returns whether sides and coordinates are within 2**20 and 2**30 times each other, and finite."""
    cdef double reach = _reach(box)
    return (box.area > reach * reach / (1 << 20) and fabs(box.x) < reach * (1 << 30)
            and fabs(box.y) < reach * (1 << 30))


cdef inline Grid empty_grid(uint32_t *memory, int64_t count, double threshold) noexcept nogil:
    cdef Grid grid
    grid.table = empty_table(memory, count)
    grid.first_level = 1 << 11
    grid.last_level = 0
    grid.bound = threshold * 0.999
    grid.shared = 2 * min(grid.bound, 0.5)
    return grid


cdef inline double _cells_per_length(const Grid *grid, double largest) noexcept nogil:
    return 1 / ((2 - grid.shared) * largest)  # the maximum distance of two boxes of the largest reach


cdef inline void add_box(Grid *grid, const Rectangle *box, ptrdiff_t entry) noexcept nogil:
    cdef int64_t level = level_of(_reach(box))
    cdef double per_length = _cells_per_length(grid, largest_side(level))
    add_entry(&grid.table, bucket_of(level, 0, floor_of(box.x * per_length), floor_of(box.y * per_length),
                                     grid.table.shift), entry)
    grid.first_level = min(grid.first_level, level)
    grid.last_level = max(grid.last_level, level)


cdef inline bint look_up(const Grid *grid, const Rectangle *rectangles, const int32_t *boxes, ptrdiff_t kept,
                         const Rectangle *box, real threshold, bint equal, int64_t *comparisons,
                         bint *is_suppressed) noexcept nogil:
    """Finds whether one of the kept boxes suppresses a box; returns False if comparing all of them is faster."""
    cdef double reach = _reach(box), largest, per_length, range_x, range_y
    cdef double smallest_reach = max(reach * grid.bound, sqrt(grid.bound * box.area)) / 2
    cdef int64_t first_level = max(level_of(smallest_reach), grid.first_level)
    cdef int64_t level = min(level_of(2 * reach / grid.bound), grid.last_level)  # fewest cells first
    cdef int64_t first_column, last_column, line, last_line, column
    cdef uint32_t entry
    cdef const Rectangle *candidate
    is_suppressed[0] = False
    while level >= first_level:
        largest = largest_side(level)
        per_length = _cells_per_length(grid, largest)
        range_x = (box.reach_x + largest - grid.shared * max(box.reach_x, largest)) * per_length + 1e-3
        range_y = (box.reach_y + largest - grid.shared * max(box.reach_y, largest)) * per_length + 1e-3
        if KEPT_PER_CELL * (2 * range_x + 1) * (2 * range_y + 1) > kept:
            return False
        first_column = floor_of(box.x * per_length - range_x)
        last_column = floor_of(box.x * per_length + range_x)
        line = floor_of(box.y * per_length - range_y)
        last_line = floor_of(box.y * per_length + range_y)
        while line <= last_line:
            for column in range(first_column, last_column + 1):
                entry = grid.table.heads[bucket_of(level, 0, column, line, grid.table.shift)]
                comparisons[0] += 1
                while entry:
                    comparisons[0] += 1
                    candidate = rectangles + boxes[entry - 1]
                    if not are_apart(candidate, box) and reaches(candidate, box, threshold, equal):
                        is_suppressed[0] = True
                        return True
                    entry = grid.table.nexts[entry - 1]
            line += 1
        level -= 1
    return True
