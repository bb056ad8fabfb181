"""nms: suppression by a grid, in the order of the plane instead of that of scores.

Whether a box is kept depends only on the boxes of higher score that overlap it by more than the threshold, so boxes may
be visited in any order, if those that a box depends on are visited first.  Here they are visited as they lie in memory,
row by row of the plane, on several threads; where a neighbour of higher score is still open, it is visited next.

IoU > t bounds, on each axis, the ratio of the sides (within [t, 1 / t]) and the distance of the centres (below
(1 - t) / (1 + t) times the mean side).  Boxes are keyed by the magnitude of both sides, their levels, and by a cell of
the plane whose size follows from them.  The cells of a row are neighbours in the table, so the candidates of a box are
a few ranges, compared in vectors; the time is nearly linear.  Candidates are compared by the same arithmetic as all
pairs would be, so results are the same.
"""
from libc.math cimport isfinite
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes cimport BOX_NUMBERS, intersection, iou_of, pack_box
from mmort._kernels.cells cimport bucket_of, floor_of, largest_side, level_of
from mmort._kernels.kernels cimport mmk_load_state, mmk_store_state
from mmort._kernels.suppression cimport goes_on
from mmort._kernels.workspace cimport element_size

cdef enum:
    MIN_OCTAVE_BITS = 2  # 4 powers of two; fewer make more ranges, which are shorter
    MAX_OCTAVE_BITS = 4
    NO_BUCKET = 0xFFFFFFFF

cdef enum:  # picoseconds per box: nms, uniform, 100,000 boxes
    KEY_COST = 8000
    GATHER_COST = 10000
    DECIDE_COST = 40000
    FLAG_COST = 2000

cdef enum:  # states of a box, and decisions; a decision from 0 on is an open box that is to be decided first
    OPEN = 0
    KEPT = -1
    SUPPRESSED = -2


cdef struct Grid:
    int type
    double threshold
    double offset
    double bound         # a little below the threshold, which covers all rounding
    double reach         # maximum distance of centres, in mean sides; edge of a cell, in largest sides of its level
    int64_t lowest       # exponent of the smallest side
    int octave_bits      # a level spans 2 ** octave_bits powers of two
    int64_t last_x       # the largest levels
    int64_t last_y
    const void *boxes
    const int64_t *order
    ptrdiff_t begin      # the first rank in the grid
    ptrdiff_t end        # the rank after the last
    ptrdiff_t stride     # of planes
    const void *by_rank  # planes
    uint32_t *keys       # buckets, by rank
    uint32_t *starts     # by bucket: its first entry; after the last, the number of entries
    int shift            # of the hash, to fit the number of buckets
    ptrdiff_t entries
    void *planes         # by entry
    int32_t *ranks
    int32_t *stack
    int8_t *states
    int32_t *flags
    int64_t comparisons  # of all threads


cdef inline size_t grid_size(int type) noexcept nogil:
    """Returns the bytes of memory that a grid takes for each box, a multiple of 8."""
    return BOX_NUMBERS * element_size(type) + 10 * sizeof(uint32_t)


cdef inline bint _participates(const real *planes, ptrdiff_t count, ptrdiff_t i, real offset) noexcept nogil:
    """Returns whether the box can suppress or be suppressed; if not, its IoU with any box is 0 or NaN."""
    cdef real area = planes[4 * count + i]
    return ((planes[2 * count + i] - planes[i]) + offset > 0
            and (planes[3 * count + i] - planes[count + i]) + offset > 0 and area > 0 and isfinite(area))


# ---- levels and cells ------------------------------------------------------------------------------------------------

cdef inline int64_t _level(const Grid *grid, double side) noexcept nogil:
    return max(level_of(side) - grid.lowest, 0) >> grid.octave_bits


cdef inline double _largest(const Grid *grid, int64_t level) noexcept nogil:
    return largest_side(grid.lowest + ((level + 1) << grid.octave_bits) - 1)


cdef inline double _cells_per_length(const Grid *grid, int64_t level) noexcept nogil:
    return 1 / (grid.reach * _largest(grid, level))


cdef inline bint fit_grid(Grid *grid, const real *planes, ptrdiff_t count, ptrdiff_t begin) noexcept nogil:
    """Chooses levels; returns False if the bounds may not hold because of rounding, as they do but for very odd input.

    `threshold` and `offset` are set.
    """
    cdef real offset = <real>grid.offset
    cdef double smallest = 1e300, widest = 0, highest = 0, farthest = 0, width, height
    cdef ptrdiff_t i
    cdef int k
    if not grid.threshold >= <real>0.05:
        return False
    for i in range(begin, count):
        if not _participates(planes, count, i, offset):
            continue
        width = (planes[2 * count + i] - planes[i]) + offset
        height = (planes[3 * count + i] - planes[count + i]) + offset
        smallest = min(smallest, min(width, height))
        widest = max(widest, width)
        highest = max(highest, height)
        for k in range(4):
            farthest = max(farthest, <double>(planes[k * count + i] if planes[k * count + i] > 0
                                              else -planes[k * count + i]))
    if not (smallest * 256 >= (offset if offset > 0 else -offset) and farthest < 1e300
            and farthest < smallest * <double>(1 << 30)):
        return False
    grid.bound = min(grid.threshold, 1.0) * 0.999
    grid.reach = (1 - grid.bound) / (1 + grid.bound)
    grid.lowest = level_of(smallest)
    grid.octave_bits = MIN_OCTAVE_BITS
    # two levels, seldom three, hold all sides between t and 1 / t
    while (grid.bound * grid.bound * 1.4 * (1 << (1 << grid.octave_bits)) < 1 and grid.octave_bits < MAX_OCTAVE_BITS):
        grid.octave_bits += 1
    grid.last_x = _level(grid, widest)
    grid.last_y = _level(grid, highest)
    return True


cdef inline uint64_t _row(const Grid *grid, int64_t level_x, int64_t level_y, int64_t line) noexcept nogil:
    """Returns the bucket of column 0; others follow, and after the last bucket comes the first."""
    return bucket_of(level_x, level_y, line, 0, grid.shift)


cdef inline void _find_keys(const Grid *grid, const real *planes, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    cdef real offset = <real>grid.offset
    cdef ptrdiff_t count = grid.stride, i
    cdef int64_t level_x, level_y, column, line
    for i in range(begin, end):
        if grid.flags[i] or not _participates(planes, count, i, offset):
            grid.keys[i] = NO_BUCKET
            continue
        level_x = _level(grid, (planes[2 * count + i] - planes[i]) + offset)
        level_y = _level(grid, (planes[3 * count + i] - planes[count + i]) + offset)
        column = floor_of((<double>planes[i] + <double>planes[2 * count + i]) / 2 * _cells_per_length(grid, level_x))
        line = floor_of((<double>planes[count + i] + <double>planes[3 * count + i]) / 2
                        * _cells_per_length(grid, level_y))
        grid.keys[i] = <uint32_t>((_row(grid, level_x, level_y, line) + <uint64_t>column)
                                  & ((<uint64_t>1 << (64 - grid.shift)) - 1))


cdef inline void _key_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const Grid *grid = <const Grid *>argument
    if grid.type == MMK_FLOAT32:
        _find_keys(grid, <const float *>grid.by_rank, grid.begin + begin, grid.begin + end)
    else:
        _find_keys(grid, <const double *>grid.by_rank, grid.begin + begin, grid.begin + end)


cdef inline void _fill_buckets(Grid *grid) noexcept nogil:
    """Sorts the boxes by bucket, then rank."""
    cdef ptrdiff_t buckets = <ptrdiff_t>1 << (64 - grid.shift), bucket, i
    cdef uint32_t *ends = grid.starts + 1  # the end of a bucket is the start of the next
    cdef uint32_t before = 0, size
    memset(grid.starts, 0, (buckets + 1) * sizeof(uint32_t))
    for i in range(grid.begin, grid.end):
        if grid.keys[i] != NO_BUCKET:
            ends[grid.keys[i]] += 1
    for bucket in range(buckets):
        size = ends[bucket]
        ends[bucket] = before
        before += size
    grid.entries = before
    for i in range(grid.begin, grid.end):
        if grid.keys[i] != NO_BUCKET:
            grid.ranks[ends[grid.keys[i]]] = <int32_t>i
            ends[grid.keys[i]] += 1


cdef inline void _gather_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Writes the planes of the entries [begin, end)."""
    cdef const Grid *grid = <const Grid *>argument
    cdef int64_t i, source
    for i in range(begin, end):
        source = 4 * grid.order[grid.ranks[i]]
        if grid.type == MMK_FLOAT32:
            pack_box(<const float *>grid.boxes + source, <float>grid.offset, <float *>grid.planes, grid.stride, i)
        else:
            pack_box(<const double *>grid.boxes + source, grid.offset, <double *>grid.planes, grid.stride, i)
        grid.states[i] = OPEN


# ---- decisions -------------------------------------------------------------------------------------------------------

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
    cdef int64_t last_x = min(_level(grid, width / grid.bound), grid.last_x)
    cdef int64_t last_y = min(_level(grid, height / grid.bound), grid.last_y), level_x, level_y, line, last_line
    cdef int64_t column, cells, left, buckets = <int64_t>1 << (64 - grid.shift), bucket, size
    decision[0] = KEPT
    for level_x in range(_level(grid, width * grid.bound), last_x + 1):
        per_x = _cells_per_length(grid, level_x)
        range_x = grid.reach * (width + min(_largest(grid, level_x), width / grid.bound)) / 2
        column = floor_of((x - range_x) * per_x)
        cells = floor_of((x + range_x) * per_x) - column + 1
        for level_y in range(_level(grid, height * grid.bound), last_y + 1):
            per_y = _cells_per_length(grid, level_y)
            range_y = grid.reach * (height + min(_largest(grid, level_y), height / grid.bound)) / 2
            last_line = floor_of((y + range_y) * per_y)
            for line in range(floor_of((y - range_y) * per_y), last_line + 1):
                bucket = <int64_t>((_row(grid, level_x, level_y, line) + <uint64_t>column) & <uint64_t>(buckets - 1))
                left = cells
                while left:
                    size = min(left, buckets - bucket)
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
        grid.flags[grid.ranks[i]] = grid.states[i] == SUPPRESSED


cdef inline int suppress_by_grid(mmk_call *call, Grid *grid, char *memory) noexcept nogil:
    """Flags the suppressed boxes from rank `begin` on, but for those flagged already; -1 if the call is stopped.

    `memory` has grid_size(type) bytes per box, aligned for a number.  `fit_grid` has chosen the levels, and the inputs
    (type, boxes, order, by_rank, begin, end, stride and flags) are set.
    """
    cdef ptrdiff_t count = grid.stride
    grid.planes = memory
    memory += BOX_NUMBERS * count * element_size(grid.type)
    grid.starts = <uint32_t *>memory
    grid.ranks = <int32_t *>(grid.starts + 4 * count + 1)
    grid.stack = grid.ranks + count
    grid.keys = <uint32_t *>(grid.stack + count)
    grid.states = <int8_t *>(grid.keys + count)
    grid.comparisons = 0
    grid.shift = 64
    while <int64_t>1 << (65 - grid.shift) <= 4 * (grid.end - grid.begin):
        grid.shift -= 1
    mmk_parallel(call, grid.end - grid.begin, 1e-3 * KEY_COST, _key_range, grid)
    _fill_buckets(grid)
    mmk_parallel(call, grid.entries, 1e-3 * GATHER_COST, _gather_range, grid)
    mmk_parallel(call, grid.entries, 1e-3 * DECIDE_COST, _decide_range, grid)
    if not mmk_is_stopped(call):
        _decide_range(call, grid, 0, grid.entries)  # chains that were too long for a range
    if mmk_is_stopped(call):
        return -1
    mmk_parallel(call, grid.entries, 1e-3 * FLAG_COST, _flag_range, grid)
    return 0
