"""nms: suppression by a grid, in the order of the plane instead of that of scores.

Whether a box is kept depends only on the boxes of higher score that overlap it by more than the threshold, so boxes may
be visited in any order, if those that a box depends on are visited first.  Here they are visited as they lie in memory,
row by row of the plane, on several threads; where a neighbour of higher score is still open, it is visited next.

The grid (nms_grid.pxd) has the candidates of a box in a few ranges, which are compared in vectors.  Candidates are
compared by the same arithmetic as all pairs would be, so results are the same.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes cimport intersection, iou_of
from mmort._kernels.cells cimport floor_of
from mmort._kernels.kernels cimport mmk_load_state, mmk_store_state
from mmort._kernels.nms_grid cimport (OPEN, Grid, bucket_of_cell, cells_per_length, fill_grid, largest_of_level,
                                      level_of_side)
from mmort._kernels.suppression cimport goes_on

cdef enum:  # decisions, and states of boxes that are not OPEN; from 0 on: an open box that is to be decided first
    KEPT = -1
    SUPPRESSED = -2

cdef enum:  # picoseconds per box: nms, uniform, 100,000 boxes
    DECIDE_COST = 40000
    FLAG_COST = 2000


cdef inline bint _any_reaches(const real *planes, ptrdiff_t count, const int32_t *ranks, ptrdiff_t begin,
                              ptrdiff_t end, ptrdiff_t box, real low, real offset) noexcept nogil:
    """Returns whether a box of higher score among the entries [begin, end) could suppress the box."""
    cdef real box_x1 = planes[box], box_y1 = planes[count + box]
    cdef real box_x2 = planes[2 * count + box], box_y2 = planes[3 * count + box], area = planes[4 * count + box], common
    cdef int32_t rank = ranks[box], found = 0
    cdef ptrdiff_t i
    for i in range(begin, end):
        common = intersection(planes[i], planes[count + i], planes[2 * count + i], planes[3 * count + i],
                              box_x1, box_y1, box_x2, box_y2, offset)
        found |= (common > low * ((planes[4 * count + i] + area) - common)) & (ranks[i] < rank)
    return found


cdef inline void _ask(const Grid *grid, const real *planes, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t box,
                      int64_t *decision) noexcept nogil:
    """Decides by the entries [begin, end): SUPPRESSED by one, or perhaps by one that is open; else nothing changes."""
    cdef real threshold = <real>grid.threshold, offset = <real>grid.offset, common
    cdef ptrdiff_t count = grid.stride, i
    cdef int state
    for i in range(begin, end):
        if grid.ranks[i] >= grid.ranks[box]:
            continue
        common = intersection(planes[i], planes[count + i], planes[2 * count + i], planes[3 * count + i], planes[box],
                              planes[count + box], planes[2 * count + box], planes[3 * count + box], offset)
        if common > 0 and iou_of(common, planes[4 * count + i], planes[4 * count + box]) > threshold:
            state = mmk_load_state(grid.states + i)
            if state == KEPT:
                decision[0] = SUPPRESSED
                return
            if state == OPEN:
                decision[0] = i


cdef inline simd_void _decide(const Grid *grid, const real *planes, ptrdiff_t box, int64_t *decision,
                              int64_t *comparisons) noexcept nogil:
    """Decides about the box of an entry: KEPT, SUPPRESSED, or an open entry of higher score that it depends on."""
    cdef real offset = <real>grid.offset, low = <real>(grid.threshold * 0.99999)
    cdef ptrdiff_t count = grid.stride, begin, end
    cdef double width = (planes[2 * count + box] - planes[box]) + offset
    cdef double height = (planes[3 * count + box] - planes[count + box]) + offset
    cdef double x = (<double>planes[box] + <double>planes[2 * count + box]) / 2
    cdef double y = (<double>planes[count + box] + <double>planes[3 * count + box]) / 2
    cdef double range_x, range_y, per_x, per_y
    cdef int64_t last_x = min(level_of_side(grid, width / grid.bound), grid.last_x)
    cdef int64_t last_y = min(level_of_side(grid, height / grid.bound), grid.last_y), level_x, level_y, line, last_line
    cdef int64_t column, cells, left, bucket, size
    decision[0] = KEPT
    for level_x in range(level_of_side(grid, width * grid.bound), last_x + 1):
        per_x = cells_per_length(grid, level_x)
        range_x = grid.reach * (width + min(largest_of_level(grid, level_x), width / grid.bound)) / 2
        column = floor_of((x - range_x) * per_x)
        cells = floor_of((x + range_x) * per_x) - column + 1
        for level_y in range(level_of_side(grid, height * grid.bound), last_y + 1):
            per_y = cells_per_length(grid, level_y)
            range_y = grid.reach * (height + min(largest_of_level(grid, level_y), height / grid.bound)) / 2
            last_line = floor_of((y + range_y) * per_y)
            for line in range(floor_of((y - range_y) * per_y), last_line + 1):
                bucket = bucket_of_cell(grid, level_x, level_y, column, line)
                left = cells
                while left:
                    size = min(left, grid.buckets - bucket)
                    begin = grid.starts[bucket]
                    end = grid.starts[bucket + size]
                    comparisons[0] += end - begin + 1
                    if _any_reaches(planes, count, grid.ranks, begin, end, box, low, offset):
                        _ask(grid, planes, begin, end, box, decision)
                        if decision[0] == SUPPRESSED:
                            return
                    left -= size
                    bucket = 0


cdef inline void _decide_entries(mmk_call *call, Grid *grid, const real *planes, ptrdiff_t begin, ptrdiff_t end,
                                 int32_t *stack, ptrdiff_t depth_limit) noexcept nogil:
    """Decides about the open entries of [begin, end), and what they depend on.

    An entry that depends on a chain of `depth_limit` others, and those after it, stay open.
    """
    cdef int64_t unasked = 0, decision = KEPT
    cdef ptrdiff_t entry, depth
    for entry in range(begin, end):
        if mmk_load_state(grid.states + entry) != OPEN:
            continue
        depth = 0
        stack[0] = <int32_t>entry
        while 0 <= depth < depth_limit:
            if not goes_on(call, &grid.comparisons, &unasked, grid.stride):
                return
            _decide(grid, planes, stack[depth], &decision, &unasked)
            if decision >= 0:
                depth += 1
                if depth < depth_limit:
                    stack[depth] = <int32_t>decision
                continue
            mmk_store_state(grid.states + stack[depth], <int>decision)
            depth -= 1
            if decision == KEPT and depth >= 0:  # it suppresses the box that depended on it
                mmk_store_state(grid.states + stack[depth], SUPPRESSED)
                depth -= 1
        if depth == depth_limit:
            return


cdef inline void _decide_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    if grid.type == MMK_FLOAT32:
        _decide_entries(call, grid, <const float *>grid.planes, begin, end, grid.stack + begin, end - begin)
    else:
        _decide_entries(call, grid, <const double *>grid.planes, begin, end, grid.stack + begin, end - begin)


cdef inline void _flag_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const Grid *grid = <const Grid *>argument
    cdef int64_t i
    for i in range(begin, end):
        if grid.states[i] == SUPPRESSED:
            grid.flags[grid.ranks[i]] = True


cdef inline int suppress_by_grid(mmk_call *call, Grid *grid, char *memory) noexcept nogil:
    """Flags the suppressed boxes from rank `begin` on, but for those flagged already; -1 if the call is stopped.

    `memory` has grid_size(type) bytes per box, aligned for a number.  `fit_grid` has chosen the levels, and `end` is
    set.
    """
    fill_grid(call, grid, memory)
    mmk_parallel(call, grid.entries, 1e-3 * DECIDE_COST, _decide_range, grid)
    if not mmk_is_stopped(call) and memchr(grid.states, OPEN, grid.entries) != NULL:
        _decide_range(call, grid, 0, grid.entries)  # chains that were too long for a range
    if mmk_is_stopped(call):
        return -1
    mmk_parallel(call, grid.entries, 1e-3 * FLAG_COST, _flag_range, grid)
    return 0
