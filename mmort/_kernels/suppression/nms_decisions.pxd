"""nms: suppression by a grid, in the order of scores or in that of the plane.

In a crowd few boxes are kept.  In the order of scores, each kept box is compared with its neighbours and marks those
that it suppresses; suppressed boxes cost nothing more.

Where few boxes overlap, most are kept, and the order of scores would read memory here and there.  Whether a box is kept
depends only on the boxes of higher score that overlap it by more than the threshold, so boxes may be visited in any
order, if those that a box depends on are visited first.  They are visited as they lie in memory, row by row of the
plane, on several threads; where a neighbour of higher score is still open, it is visited next.

The grid (nms_grid.pxd) has the candidates of a box in a few ranges, which are compared in vectors.  Candidates are
compared by the same arithmetic as all pairs would be, so results are the same.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport intersection, iou_of
from mmort._kernels.shared.kernels cimport mmk_load_state, mmk_store_state
from mmort._kernels.suppression.nms_grid cimport LANES, NO_BUCKET, OPEN, Grid, Lookup, fill_grid, look_up, next_range
from mmort._kernels.suppression.suppression cimport may_continue

cdef enum:  # decisions, and states of boxes that are not OPEN; from 0 on: an open box that is to be decided first
    KEPT = -1
    SUPPRESSED = -2

cdef enum:  # picoseconds per box: nms, uniform, 100,000 boxes
    DECIDE_COST = 40000
    FLAG_COST = 2000


# ---- in the order of scores ------------------------------------------------------------------------------------------

cdef inline void mark_range(const real *planes, ptrdiff_t count, ptrdiff_t begin, ptrdiff_t end, const real *box,
                            real threshold, real offset, int32_t *marks) noexcept nogil:
    """Marks the entries [begin, end), and some after them, that a box of x1, y1, x2, y2 and area suppresses."""
    cdef ptrdiff_t i = begin, k
    cdef real common
    while i < end:
        for k in range(LANES):
            common = intersection(planes[i + k], planes[count + i + k], planes[2 * count + i + k],
                                  planes[3 * count + i + k], box[0], box[1], box[2], box[3], offset)
            marks[i + k] |= iou_of(common, planes[4 * count + i + k], box[4]) > threshold
        i += LANES


cdef inline simd_void _keep_by_score(mmk_call *call, Grid *grid, const real *planes,
                                     ptrdiff_t max_kept) noexcept nogil:
    """Flags the suppressed boxes, until as many are kept."""
    cdef int64_t uncounted = 0
    cdef const real *by_rank = <const real *>grid.by_rank
    cdef ptrdiff_t count = grid.stride, kept = 0, rank, begin = 0, end = 0, entry
    cdef real threshold = <real>grid.threshold, offset = <real>grid.offset
    cdef real[5] box
    cdef Lookup lookup
    cdef int k
    for rank in range(grid.begin, grid.end):
        if grid.state.flags[rank]:
            continue
        if kept >= max_kept:
            return
        kept += 1
        entry = grid.table.keys[rank]
        if entry == <ptrdiff_t>NO_BUCKET:
            continue
        if grid.state.marks[entry]:
            grid.state.flags[rank] = True
            kept -= 1
            continue
        for k in range(5):
            box[k] = by_rank[k * count + rank]
        lookup = look_up(grid, by_rank, rank, entry < grid.table.regular)
        while next_range(grid, &lookup, &begin, &end):
            uncounted += end - begin + 1
            mark_range(planes, count, begin, end, box, threshold, offset, grid.state.marks)
        if not may_continue(call, &grid.state.comparisons, &uncounted, count):
            return


# ---- in the order of the plane ---------------------------------------------------------------------------------------

cdef inline bint _any_reaches(const real *planes, ptrdiff_t count, const int32_t *ranks, ptrdiff_t begin,
                              ptrdiff_t end, ptrdiff_t box, real low, real offset) noexcept nogil:
    """Returns whether a box of higher score among the entries [begin, end), or after, could suppress the box."""
    cdef real box_x1 = planes[box], box_y1 = planes[count + box]
    cdef real box_x2 = planes[2 * count + box], box_y2 = planes[3 * count + box], area = planes[4 * count + box], common
    cdef int32_t rank = ranks[box], is_reached = 0
    cdef ptrdiff_t i
    for i in range(begin, end):
        common = intersection(planes[i], planes[count + i], planes[2 * count + i], planes[3 * count + i],
                              box_x1, box_y1, box_x2, box_y2, offset)
        is_reached |= (common > low * ((planes[4 * count + i] + area) - common)) & (ranks[i] < rank)
    return is_reached


cdef inline void _ask(const Grid *grid, const real *planes, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t box,
                      int64_t *decision) noexcept nogil:
    """Decides by the entries [begin, end): SUPPRESSED by one, or perhaps by one that is open; else nothing changes."""
    cdef real threshold = <real>grid.threshold, offset = <real>grid.offset, common
    cdef ptrdiff_t count = grid.stride, i
    cdef int state
    for i in range(begin, end):
        if grid.table.ranks[i] >= grid.table.ranks[box]:
            continue
        common = intersection(planes[i], planes[count + i], planes[2 * count + i], planes[3 * count + i], planes[box],
                              planes[count + box], planes[2 * count + box], planes[3 * count + box], offset)
        if common > 0 and iou_of(common, planes[4 * count + i], planes[4 * count + box]) > threshold:
            state = mmk_load_state(grid.state.states + i)
            if state == KEPT:
                decision[0] = SUPPRESSED
                return
            if state == OPEN:
                decision[0] = i


cdef inline simd_void _decide(const Grid *grid, const real *planes, ptrdiff_t box, int64_t *decision,
                              int64_t *comparisons) noexcept nogil:
    """Decides about the box of an entry: KEPT, SUPPRESSED, or an open entry of higher score that it depends on."""
    cdef real offset = <real>grid.offset, low = <real>(grid.threshold * 0.99999)
    cdef ptrdiff_t begin = 0, end = 0
    cdef bint is_regular = box < grid.table.regular
    cdef Lookup lookup = look_up(grid, planes, box, is_regular)
    decision[0] = KEPT
    while next_range(grid, &lookup, &begin, &end):
        comparisons[0] += end - begin + 1
        if (end > grid.table.regular or not is_regular
                or _any_reaches(planes, grid.stride, grid.table.ranks, begin, end, box, low, offset)):
            _ask(grid, planes, begin, end, box, decision)
            if decision[0] == SUPPRESSED:
                return


cdef inline void _decide_entries(mmk_call *call, Grid *grid, const real *planes, ptrdiff_t begin, ptrdiff_t end,
                                 int32_t *stack, ptrdiff_t depth_limit) noexcept nogil:
    """Decides about the open entries of [begin, end), and what they depend on.

    An entry that depends on a chain of `depth_limit` others, and those after it, stay open.
    """
    cdef int64_t uncounted = 0, decision = KEPT
    cdef ptrdiff_t entry, depth
    for entry in range(begin, end):
        if mmk_load_state(grid.state.states + entry) != OPEN:
            continue
        depth = 0
        stack[0] = <int32_t>entry
        while 0 <= depth < depth_limit:
            if not may_continue(call, &grid.state.comparisons, &uncounted, grid.stride):
                return
            _decide(grid, planes, stack[depth], &decision, &uncounted)
            if decision >= 0:
                depth += 1
                if depth < depth_limit:
                    stack[depth] = <int32_t>decision
                continue
            mmk_store_state(grid.state.states + stack[depth], <int>decision)
            depth -= 1
            if decision == KEPT and depth >= 0:  # it suppresses the box that depended on it
                mmk_store_state(grid.state.states + stack[depth], SUPPRESSED)
                depth -= 1
        if depth == depth_limit:
            return


cdef inline void _decide_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    if grid.type == MMK_FLOAT32:
        _decide_entries(call, grid, <const float *>grid.table.planes, begin, end, grid.state.stack + begin, end - begin)
    else:
        _decide_entries(call, grid, <const double *>grid.table.planes, begin, end, grid.state.stack + begin,
                        end - begin)


cdef inline void _flag_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const Grid *grid = <const Grid *>argument
    cdef int64_t i
    for i in range(begin, end):
        if grid.state.states[i] == SUPPRESSED:
            grid.state.flags[grid.table.ranks[i]] = True


cdef inline void _keep_by_plane(mmk_call *call, Grid *grid) noexcept nogil:
    """Flags the suppressed boxes."""
    mmk_parallel(call, grid.table.entries, 1e-3 * DECIDE_COST, _decide_range, grid)
    if not mmk_is_stopped(call) and memchr(grid.state.states, OPEN, grid.table.entries) != NULL:
        _decide_range(call, grid, 0, grid.table.entries)  # chains that were too long for a range
    mmk_parallel(call, grid.table.entries, 1e-3 * FLAG_COST, _flag_range, grid)


cdef inline int suppress_by_grid(mmk_call *call, Grid *grid, ptrdiff_t max_kept, char *memory) noexcept nogil:
    """Flags the suppressed boxes of ranks [begin, end), but perhaps not those after `max_kept` kept ones.

    `memory` has grid_size(type) bytes per box, aligned for a number.  `choose_levels` was called for this range.
    Returns -1 if the call is stopped.
    """
    fill_grid(call, grid, False, memory)
    if not grid.state.by_score:
        _keep_by_plane(call, grid)
    elif grid.type == MMK_FLOAT32:
        _keep_by_score(call, grid, <const float *>grid.table.planes, max_kept)
    else:
        _keep_by_score(call, grid, <const double *>grid.table.planes, max_kept)
    return -1 if mmk_is_stopped(call) else 0
