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
Each cell has memory for all boxes that may be kept in it, side by side, so that candidates are compared in vectors: in
float32, with a margin for its rounding, by what rectangles must share.  Few are left for the exact overlap.
"""
from libc.math cimport fabs, sqrt
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated.rotated cimport Rectangle, are_apart, reaches
from mmort._kernels.shared.cells cimport bucket_of, floor_of, largest_side, level_of, per_largest_side

cdef extern from "<math.h>" nogil:
    float fabsf(float)

cdef enum:
    KEPT_PER_CELL = 16  # looking up a cell takes as long as comparing this many kept boxes: nms_rotated
    MANY_KEPT = 4096  # from which on cells are not counted before they are looked up: nms_rotated, uniform
    MIN_VECTOR = 5  # boxes of a cell compared together
    BLOCK = 64


cdef struct Cell:
    uint32_t begin
    uint32_t end  # after its last kept box


cdef struct Upright:  # rectangle around a box, to compare in vectors
    float x
    float y
    float reach_x
    float reach_y


cdef struct Grid:
    const Rectangle *rectangles
    Cell *cells          # by bucket
    Upright *uprights    # of kept boxes
    int32_t *boxes       # indices of their rectangles
    int shift            # of the hash, to fit the number of buckets
    int64_t first_level  # of the boxes in it
    int64_t last_level
    uint64_t populated   # bits of the levels, modulo 64, that have boxes
    double bound         # a little below the threshold, which covers all rounding
    double shared        # the least part of the larger reach that rectangles share
    double cells_per_reach  # of the largest of a level: 1 / the maximum distance of two boxes that have it


cdef struct Window:  # of a box that is looked up
    Upright upright
    float margin  # for the rounding of coordinates
    float shared  # a little less than the grid's, for other rounding


cdef inline size_t grid_size(size_t count) noexcept nogil:
    """Returns the bytes of memory for `count` boxes: up to two cells for each, and its numbers."""
    return count * (2 * sizeof(Cell) + sizeof(Upright) + sizeof(int32_t))


cdef inline double _reach(const Rectangle *box) noexcept nogil:
    return max(box.reach_x, box.reach_y)


cdef inline bint fits_grid(const Rectangle *box) noexcept nogil:
    """Returns whether sides and coordinates are within 2**20 and 2**30 times each other, and float32 has them."""
    cdef double reach = _reach(box)
    return (1e-27 < reach < 1e27 and box.area > reach * reach / (1 << 20) and fabs(box.x) < reach * (1 << 30)
            and fabs(box.y) < reach * (1 << 30))


cdef inline double _cells_per_length(const Grid *grid, int64_t level) noexcept nogil:
    return grid.cells_per_reach * per_largest_side(level)


cdef inline Cell *_cell_of(const Grid *grid, const Rectangle *box) noexcept nogil:
    cdef int64_t level = level_of(_reach(box))
    cdef double per_length = _cells_per_length(grid, level)
    return grid.cells + bucket_of(level, 0, floor_of(box.x * per_length), floor_of(box.y * per_length), grid.shift)


cdef inline Grid empty_grid(void *memory, const Rectangle *rectangles, const int32_t *boxes, ptrdiff_t count,
                            double threshold) noexcept nogil:
    """Returns a grid that has room for all `boxes` which fit.  `memory` has grid_size(count) bytes."""
    cdef Grid grid
    cdef int64_t buckets = 1, bucket
    cdef uint32_t before = 0, size
    cdef ptrdiff_t i
    grid.shift = 64
    while buckets <= count:
        buckets *= 2
        grid.shift -= 1
    grid.rectangles = rectangles
    grid.cells = <Cell *>memory
    grid.uprights = <Upright *>(grid.cells + 2 * count)
    grid.boxes = <int32_t *>(grid.uprights + count)
    grid.first_level = 1 << 11
    grid.last_level = 0
    grid.populated = 0
    grid.bound = threshold * 0.999
    grid.shared = 2 * min(grid.bound, 0.5)
    grid.cells_per_reach = 1 / (2 - grid.shared)
    memset(grid.cells, 0, buckets * sizeof(Cell))
    for i in range(count):
        if fits_grid(rectangles + boxes[i]):
            _cell_of(&grid, rectangles + boxes[i]).end += 1
    for bucket in range(buckets):
        size = grid.cells[bucket].end
        grid.cells[bucket].begin = grid.cells[bucket].end = before
        before += size
    return grid


cdef inline Upright _upright(const Rectangle *box) noexcept nogil:
    cdef Upright upright
    upright.x = <float>box.x
    upright.y = <float>box.y
    upright.reach_x = <float>box.reach_x
    upright.reach_y = <float>box.reach_y
    return upright


cdef inline void add_box(Grid *grid, int32_t index) noexcept nogil:
    """Adds one of the boxes that the grid has room for."""
    cdef const Rectangle *box = grid.rectangles + index
    cdef int64_t level = level_of(_reach(box))
    cdef Cell *cell = _cell_of(grid, box)
    grid.uprights[cell.end] = _upright(box)
    grid.boxes[cell.end] = index
    cell.end += 1
    grid.first_level = min(grid.first_level, level)
    grid.last_level = max(grid.last_level, level)
    grid.populated |= <uint64_t>1 << (level & 63)


cdef inline Window _window(const Grid *grid, const Rectangle *box) noexcept nogil:
    cdef Window window
    window.upright = _upright(box)
    window.margin = <float>(max(fabs(box.x), fabs(box.y)) / (1 << 20))
    window.shared = <float>(grid.shared - 2.0 / (1 << 20))
    return window


cdef inline bint _may_share(const Upright *a, const Upright *b, float shared, float margin) noexcept nogil:
    """Returns whether the rectangles around two boxes may share enough on both axes."""
    cdef float larger_x = a.reach_x if b.reach_x < a.reach_x else b.reach_x
    cdef float larger_y = a.reach_y if b.reach_y < a.reach_y else b.reach_y
    return ((fabsf(a.x - b.x) < ((a.reach_x + b.reach_x) - shared * larger_x) + margin)
            & (fabsf(a.y - b.y) < ((a.reach_y + b.reach_y) - shared * larger_y) + margin))


cdef inline simd_void _find_candidates(const Grid *grid, ptrdiff_t begin, ptrdiff_t count, const Window *window,
                                       int32_t *candidates, ptrdiff_t *number) noexcept nogil:
    """Lists the boxes among `count` kept ones from `begin` on whose rectangles may share enough with the window's."""
    cdef const Upright *uprights = grid.uprights + begin
    cdef Upright box = window.upright
    cdef float shared = window.shared, margin = window.margin
    cdef int32_t[BLOCK] near
    cdef int32_t i, size = <int32_t>count, any_near = 0
    cdef ptrdiff_t listed = 0
    for i in range(size):
        near[i] = _may_share(uprights + i, &box, shared, margin)
        any_near |= near[i]
    if any_near:
        for i in range(size):
            candidates[listed] = grid.boxes[begin + i]
            listed += near[i]
    number[0] = listed


cdef inline bint _any_reaches(const Grid *grid, const Cell *cell, const Window *window, const Rectangle *box,
                              real threshold, bint equal) noexcept nogil:
    """Returns whether a kept box of the cell suppresses the box."""
    cdef int32_t[BLOCK] candidates
    cdef ptrdiff_t begin = cell.begin, end = cell.end, candidate_count, i
    cdef const Rectangle *candidate
    while begin < end:
        if end - begin < MIN_VECTOR:
            candidate_count = _may_share(grid.uprights + begin, &window.upright, window.shared, window.margin)
            candidates[0] = grid.boxes[begin]
            begin += 1
        else:
            _find_candidates(grid, begin, min(<ptrdiff_t>BLOCK, end - begin), window, candidates, &candidate_count)
            begin += BLOCK
        for i in range(candidate_count):
            candidate = grid.rectangles + candidates[i]
            if reaches(candidate, box, threshold, equal) and not are_apart(candidate, box):
                return True
    return False


cdef inline void _find_range(const Grid *grid, const Rectangle *box, int64_t level, double *per_length,
                             double *range_x, double *range_y) noexcept nogil:
    """Finds how far from a box, in cells of a level, the centres of candidates are."""
    cdef double largest = largest_side(level)
    per_length[0] = _cells_per_length(grid, level)
    range_x[0] = (box.reach_x + largest - grid.shared * max(box.reach_x, largest)) * per_length[0] + 1e-3
    range_y[0] = (box.reach_y + largest - grid.shared * max(box.reach_y, largest)) * per_length[0] + 1e-3


cdef inline bint look_up(const Grid *grid, ptrdiff_t kept, const Rectangle *box, real threshold, bint equal,
                         int64_t *comparisons, bint *is_suppressed) noexcept nogil:
    """Finds whether one of the kept boxes suppresses a box; returns False if comparing all of them is faster."""
    cdef double reach = _reach(box), per_length = 0, range_x = 0, range_y = 0, cells = 0
    cdef double smallest_reach = max(reach * grid.bound, sqrt(grid.bound * box.area)) / 2
    cdef int64_t first_level = max(level_of(smallest_reach), grid.first_level)
    cdef int64_t level = min(level_of(2 * reach / grid.bound), grid.last_level)  # fewest cells first
    cdef int64_t first_column, last_column, line, last_line, column, counted
    cdef const Cell *cell
    cdef Window window
    is_suppressed[0] = False
    for counted in range(first_level if kept < MANY_KEPT else level + 1, level + 1):
        if not grid.populated >> (counted & 63) & 1:
            continue
        _find_range(grid, box, counted, &per_length, &range_x, &range_y)
        cells += (2 * range_x + 1) * (2 * range_y + 1)
        if KEPT_PER_CELL * cells > kept:
            return False
    window = _window(grid, box)
    for level in range(level, first_level - 1, -1):
        if not grid.populated >> (level & 63) & 1:
            continue
        _find_range(grid, box, level, &per_length, &range_x, &range_y)
        if KEPT_PER_CELL * (2 * range_x + 1) * (2 * range_y + 1) > kept:
            return False
        first_column = floor_of(box.x * per_length - range_x)
        last_column = floor_of(box.x * per_length + range_x)
        line = floor_of(box.y * per_length - range_y)
        last_line = floor_of(box.y * per_length + range_y)
        while line <= last_line:
            for column in range(first_column, last_column + 1):
                cell = grid.cells + bucket_of(level, 0, column, line, grid.shift)
                comparisons[0] += 1 + cell.end - cell.begin
                if cell.begin < cell.end and _any_reaches(grid, cell, &window, box, threshold, equal):
                    is_suppressed[0] = True
                    return True
            line += 1
    return True
