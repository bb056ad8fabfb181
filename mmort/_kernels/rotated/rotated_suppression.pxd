"""Greedy suppression among rotated boxes of one class, for nms_rotated and nms_rotated_indices.

Boxes are visited by descending score, and each is compared with the boxes kept so far: first their upright bounding
rectangles, in vectors of float32 with a margin for its rounding, then the exact overlap of those that meet.  Once many
are kept, a grid finds those that could meet (rotated_grid.pxd).  Both ways compare by the same arithmetic, so results
are the same.
"""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated.rotated cimport BOX, Rectangle, are_apart, measure, reaches
from mmort._kernels.rotated.rotated_grid cimport Grid, add_box, empty_grid, fits_grid, grid_size, look_up
from mmort._kernels.shared.kernels cimport mmk_prefetch
from mmort._kernels.shared.workspace cimport take
from mmort._kernels.suppression.suppression cimport may_continue

cdef enum:
    BLOCK = 64  # kept boxes compared together
    AHEAD = 8  # boxes, of which the one after is loaded: nms_rotated, nested, 17,499 boxes
    MIN_VECTOR = 16  # kept boxes, from which on vectors find those that are near: nms_rotated, anchors
    MIN_CHOSEN = 8  # boxes of a block that are near, from which on vectors choose among them: nms_rotated, clusters
    GRID_MIN_KEPT = 256  # from which on a grid is faster: nms_rotated, uniform and clustered

cdef enum:  # picoseconds per box, estimated: no benchmark row
    MEASURE_COST = 50000
    SUPPRESS_COST = 100000
    COLLECT_COST = 10000


cdef extern from "<math.h>" nogil:
    float fabsf(float)


cdef struct Kept:
    float *x
    float *y
    float *reach_x   # a little more; infinite where float32 may not have the numbers
    float *reach_y
    float *areas
    int32_t *boxes   # indices of their rectangles
    char *grid       # its memory
    bint are_regular  # all fit a grid


cdef inline Kept take_kept(size_t *address, size_t count) noexcept nogil:
    cdef Kept kept
    kept.x = <float *>take(address, count * sizeof(float))
    kept.y = <float *>take(address, count * sizeof(float))
    kept.reach_x = <float *>take(address, count * sizeof(float))
    kept.reach_y = <float *>take(address, count * sizeof(float))
    kept.areas = <float *>take(address, count * sizeof(float))
    kept.boxes = <int32_t *>take(address, count * sizeof(int32_t))
    kept.grid = <char *>take(address, grid_size(count))
    kept.are_regular = True
    return kept


cdef inline Kept kept_from(const Kept *all_kept, ptrdiff_t first) noexcept nogil:
    """Returns the share of the memory that belongs to the boxes from position `first` on."""
    cdef Kept kept
    kept.x = all_kept.x + first
    kept.y = all_kept.y + first
    kept.reach_x = all_kept.reach_x + first
    kept.reach_y = all_kept.reach_y + first
    kept.areas = all_kept.areas + first
    kept.boxes = all_kept.boxes + first
    kept.grid = all_kept.grid + grid_size(first)
    kept.are_regular = True
    return kept


cdef struct Window:  # upright rectangle around a box, with a margin for the rounding of its numbers
    float x
    float y
    float reach_x
    float reach_y


cdef inline Window _window(const Rectangle *box) noexcept nogil:
    cdef Window window
    cdef double largest = max(max(fabs(box.x), fabs(box.y)), max(box.reach_x, box.reach_y))
    window.x = <float>box.x
    window.y = <float>box.y
    window.reach_x = window.reach_y = INFINITY
    if largest < 1e30:  # with room for sums in float32
        window.reach_x = <float>(box.reach_x + (box.reach_x + fabs(box.x)) / (1 << 22) + 1e-40)
        window.reach_y = <float>(box.reach_y + (box.reach_y + fabs(box.y)) / (1 << 22) + 1e-40)
    return window


cdef struct Shares:  # what a box must share with another for the threshold, with margins for rounding
    float axis      # the least part of the larger reach
    float margin    # of coordinates
    float min_area  # of the other box
    float max_area


cdef inline Shares _shares(const Rectangle *box, double threshold) noexcept nogil:
    """Returns the bounds of a grid (rotated_grid.pxd), which hold if both boxes fit; an area bounds what is shared."""
    cdef Shares shares
    shares.axis = <float>(2 * min(threshold * 0.999, 0.5) - 4.0 / (1 << 20))
    shares.margin = <float>(max(fabs(box.x), fabs(box.y)) / (1 << 20))
    shares.min_area = <float>(box.area * threshold * 0.9999)
    shares.max_area = <float>(box.area / threshold * 1.0001)
    return shares


cdef inline simd_void _find_near(const Kept *kept, ptrdiff_t begin, ptrdiff_t count, const Window *box,
                                 int32_t *near, int32_t *near_count) noexcept nogil:
    """Finds which of `count` kept boxes from position `begin` on have an upright rectangle that may meet the box's."""
    cdef const float *x = kept.x + begin
    cdef const float *y = kept.y + begin
    cdef const float *reach_x = kept.reach_x + begin
    cdef const float *reach_y = kept.reach_y + begin
    cdef float box_x = box.x, box_y = box.y, box_reach_x = box.reach_x, box_reach_y = box.reach_y
    cdef int32_t total = 0
    cdef ptrdiff_t i
    for i in range(count):  # NaN is near
        near[i] = not ((fabsf(x[i] - box_x) > reach_x[i] + box_reach_x)
                       | (fabsf(y[i] - box_y) > reach_y[i] + box_reach_y))
        total += near[i]
    near_count[0] = total


cdef inline bint _may_share(float x, float y, float reach_x, float reach_y, float area, const Window *box,
                            const Shares *shares) noexcept nogil:
    """Returns whether a kept box may share enough with a box on both axes, and their areas may be alike enough."""
    cdef float larger_x = box.reach_x if reach_x < box.reach_x else reach_x
    cdef float larger_y = box.reach_y if reach_y < box.reach_y else reach_y
    return not ((fabsf(x - box.x) > ((reach_x + box.reach_x) - shares.axis * larger_x) + shares.margin)
                | (fabsf(y - box.y) > ((reach_y + box.reach_y) - shares.axis * larger_y) + shares.margin)
                | (area < shares.min_area) | (area > shares.max_area))


cdef inline simd_void _keep_candidates(const Kept *kept, ptrdiff_t begin, ptrdiff_t count, const Window *box,
                                       const Shares *shares, int32_t *near) noexcept nogil:
    """Of `count` near boxes, leaves those that may share enough."""
    cdef const float *x = kept.x + begin
    cdef const float *y = kept.y + begin
    cdef const float *reach_x = kept.reach_x + begin
    cdef const float *reach_y = kept.reach_y + begin
    cdef const float *areas = kept.areas + begin
    cdef Window window = box[0]
    cdef Shares least = shares[0]
    cdef ptrdiff_t i
    for i in range(count):
        near[i] &= _may_share(x[i], y[i], reach_x[i], reach_y[i], areas[i], &window, &least)


cdef inline bint _is_suppressed_by_any(const Rectangle *rectangles, const Rectangle *box, const Kept *kept,
                                       ptrdiff_t count, real threshold, bint equal) noexcept nogil:
    """Compares a box with all kept boxes."""
    cdef const Rectangle *other
    cdef Window window
    cdef Shares shares
    cdef int32_t[BLOCK] near
    cdef int32_t near_count
    cdef bint may_choose = kept.are_regular, has_shares = False, is_chosen
    cdef ptrdiff_t begin = 0, size, i, k
    if not threshold > 0 or count < MIN_VECTOR:
        for i in range(count):
            other = rectangles + kept.boxes[i]
            if threshold > 0 and are_apart(other, box):  # else boxes that do not meet may be above it
                continue
            if reaches(other, box, threshold, equal):
                return True
        return False
    window = _window(box)
    while begin < count:
        size = min(<ptrdiff_t>BLOCK, count - begin)
        _find_near(kept, begin, size, &window, near, &near_count)
        is_chosen = near_count < MIN_CHOSEN
        if near_count and near_count < MIN_CHOSEN and may_choose and not has_shares:
            may_choose = has_shares = fits_grid(box)
            shares = _shares(box, threshold)
        for i in range(size if near_count else 0):
            if not near[i]:
                continue
            k = begin + i
            if has_shares and near_count < MIN_CHOSEN and not _may_share(
                    kept.x[k], kept.y[k], kept.reach_x[k], kept.reach_y[k], kept.areas[k], &window, &shares):
                continue
            other = rectangles + kept.boxes[k]
            if reaches(other, box, threshold, equal) and not are_apart(other, box):
                return True
            if may_choose and not has_shares:
                may_choose = has_shares = fits_grid(box)
                shares = _shares(box, threshold)
            if has_shares and not is_chosen:  # in a crowd, the first one that is near often suppresses the box
                is_chosen = True
                _keep_candidates(kept, begin, size, &window, &shares, near)
        begin += BLOCK
    return False


cdef inline void _keep(Kept *kept, ptrdiff_t number, const Rectangle *rectangle, int32_t box) noexcept nogil:
    cdef Window window = _window(rectangle)
    kept.x[number] = window.x
    kept.y[number] = window.y
    kept.reach_x[number] = window.reach_x
    kept.reach_y[number] = window.reach_y
    kept.areas[number] = <float>rectangle.area
    kept.boxes[number] = box
    kept.are_regular &= fits_grid(rectangle)


cdef inline bint _fill_grid(Grid *grid, const Kept *kept, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    """Adds the kept boxes [begin, end) to the grid; returns False if one does not fit."""
    cdef const Rectangle *box
    cdef ptrdiff_t i
    for i in range(begin, end):
        box = grid.rectangles + kept.boxes[i]
        if fits_grid(box):
            add_box(grid, kept.boxes[i])
        elif box.area > 0:  # other boxes suppress nothing
            return False
    return True


cdef inline ptrdiff_t suppress(mmk_call *call, const Rectangle *rectangles, const int32_t *boxes, ptrdiff_t count,
                               real threshold, bint equal, Kept *kept) noexcept nogil:
    """Collects the boxes to keep of `count` boxes by descending score; returns their number, -1 if it is stopped."""
    cdef const Rectangle *box
    cdef Grid grid
    cdef ptrdiff_t i, number = 0
    cdef int64_t comparisons = 0, uncounted = 0
    cdef bint has_grid = False, is_suppressed
    for i in range(count):
        if not may_continue(call, &comparisons, &uncounted, count):
            return -1
        box = rectangles + boxes[i]
        if i + AHEAD < count:  # boxes by score lie anywhere
            mmk_prefetch(rectangles + boxes[i + AHEAD])
            mmk_prefetch(&rectangles[boxes[i + AHEAD]].reach_y)
        if not (has_grid and fits_grid(box) and look_up(&grid, number, box, threshold, equal, &uncounted,
                                                        &is_suppressed)):
            uncounted += number
            is_suppressed = _is_suppressed_by_any(rectangles, box, kept, number, threshold, equal)
        if is_suppressed:
            continue
        _keep(kept, number, box, boxes[i])
        number += 1
        # At low thresholds more cells are looked up for each of the boxes that are left.
        if number == GRID_MIN_KEPT and 3 * threshold * <real>(count - i) > GRID_MIN_KEPT:
            grid = empty_grid(kept.grid, rectangles, boxes, count, threshold)
            has_grid = _fill_grid(&grid, kept, 0, number)
        elif has_grid:
            has_grid = _fill_grid(&grid, kept, number - 1, number)
    return number


cdef inline void measure_boxes(const mmk_tensor *boxes, bint clockwise, Rectangle *rectangles, int64_t begin,
                               int64_t end) noexcept nogil:
    cdef int64_t i
    for i in range(begin, end):
        if boxes.type == MMK_FLOAT32:
            measure(<const float *>boxes.data + BOX * i, clockwise, rectangles + i)
        else:
            measure(<const double *>boxes.data + BOX * i, clockwise, rectangles + i)
