"""nms: a grid of boxes, in which the candidates that could suppress a box are neighbours.

IoU > t bounds, on each axis, the ratio of the sides (within [t, 1 / t]) and the distance of the centres (below
(1 - t) / (1 + t) times the mean side).  Boxes are keyed by the magnitude of both sides, their levels, and by a cell of
the plane whose size follows from them.  The cells of a row are neighbours in the table, so the candidates of a box are
a few ranges.

Narrow levels and small cells make more ranges, wide levels and large cells more candidates.  Which is faster depends on
the density and the sizes of the boxes; a grid of a sample of them tells (`choose_levels`).

::

    the plane, at one level of widths and heights                the table

           column 0      1      2      3                         starts  0   0   2   3   3   4 ...  regular
           +------+------+------+------+                                 |       |   |       |
    line 0 |      | 4  7 |  2   |      |   bucket = hash(levels, line)   v       v   v       v
           +------+------+------+------+            + column     ranks   4   7   2   ...   | irregular boxes |
    line 1 |      |      |      |  9   |                         planes  x1 of each, y1 of each, x2, y2, area
           +------+------+------+------+
             a look-up of columns 1 to 3 of a line is one range of entries: starts[bucket of column 1] and on

A `Grid` has the boxes, its `Levels` (how sides and centres become keys), its `Table` (boxes by bucket, then rank) and
the `State` of the visits.

The bounds hold for computed overlaps if the sides are accurate, for which each box is checked by itself.  Irregular
boxes come after all buckets, and are compared with all boxes.
"""
from libc.math cimport INFINITY, fabs
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS, intersection, iou_of, pack_box
from mmort._kernels.shared.cells cimport bucket_of, floor_of, level_of
from mmort._kernels.shared.counting cimport replace_sizes_by_starts
from mmort._kernels.shared.workspace cimport element_size

cdef enum:
    LEVELS = 64  # of widths and of heights; the last has all smaller sides
    TOP_EXPONENT = 1022  # of numbers from 1/2 to 1, biased
    MAX_OCTAVE_BITS = 3
    DETAILS = 5  # choices of levels and cells; more gained nothing in scenes of benchmarks/scenes.py
    LANES = 8  # entries that are compared at once; those after a range may be among them
    SLICES = 16  # of the boxes, which are keyed and divided on several threads
    PART_BITS = 6
    PARTS = 1 << PART_BITS  # of the table, whose entries are sorted on several threads; irregular boxes are one more

cdef enum:
    NO_BUCKET = 0xFFFFFFFF  # key of a box that is not in the grid

cdef enum:  # the sample by which levels are chosen
    BOXES_PER_SAMPLED = 16  # twice as many of MIN_LARGE boxes and more
    MIN_SAMPLE = 128
    MAX_LOOKUPS = 128
    SIDES = 64  # by which the usual ones are judged
    SAMPLED_PER_LOOKUP = 8

cdef enum:
    MAX_IRREGULAR = 64  # boxes, from which on the order of scores, which compares in vectors, is faster
    MAX_SUPPRESSED = 1  # boxes by a box, up to which the order of the plane can be faster
    BOXES_PER_ASKED = 64  # to judge that
    MAX_ASKED = 64
    MIN_LARGE = 32768  # boxes of float32, which no longer fit the second-level cache

cdef enum:  # picoseconds: nms, scenes of benchmarks/scenes.py
    RANGE_COST = 12000  # of a look-up
    CANDIDATE_COST = 700

cdef enum:  # picoseconds per box: nms, uniform, 100,000 boxes
    EXTREMES_COST = 1000
    KEY_COST = 8000
    DIVIDE_COST = 2000
    BUCKET_COST = 4000
    GATHER_COST = 10000

cdef enum:
    OPEN = 0  # the state of a box that is not decided yet


cdef struct Keyed:
    uint32_t bucket
    int32_t rank


cdef struct Levels:  # how boxes are keyed
    double bound         # a little below the threshold, which covers all rounding
    double max_ratio     # of sides
    double reach         # maximum distance of centres, in mean sides
    double[SLICES] widest   # of the boxes of a slice
    double[SLICES] highest
    double scale_x       # 1 / the largest width, a little less
    double scale_y
    int octave_bits      # a level spans 2 ** octave_bits powers of two
    double max_range     # in cells, of half the largest side of a level
    double[LEVELS] ranges_x  # of a level: half a box's width in cells, if they are as far apart as centres may be
    double[LEVELS] ranges_y
    double[LEVELS] cells_x   # of a level, per length
    double[LEVELS] cells_y
    uint64_t[SLICES][LEVELS] populated_slice
    uint64_t[LEVELS] populated  # by level of the width: bits of the levels of heights


cdef struct Table:  # boxes by bucket
    uint32_t *keys       # buckets by rank, then entries by rank
    uint32_t *starts     # by bucket: its first entry; after the last, the number of regular entries
    int shift            # of the hash, to fit the number of buckets
    int64_t buckets
    int part_shift       # from a bucket to its part of the table
    Keyed *keyed         # boxes, by part
    uint32_t[SLICES][PARTS + 1] positions  # in `keyed`, of the boxes of a slice and part
    uint32_t[PARTS + 2] parts              # in `keyed`, the first box of a part
    ptrdiff_t regular    # entries
    ptrdiff_t entries    # with irregular boxes
    void *planes         # by entry
    int32_t *ranks       # by entry


cdef struct State:  # what is known of boxes while they are visited
    bint by_score        # whether that is in the order of scores
    int32_t *flags       # by rank: 1 if it is suppressed
    int32_t *marks       # by entry: the same, in the order of scores
    int8_t *states       # by entry, in the order of the plane
    int32_t *stack
    int64_t comparisons  # of all threads


cdef struct Grid:
    int type
    double threshold
    double offset
    const void *boxes
    ptrdiff_t box_stride  # numbers from a box to the next
    const int64_t *order
    void *by_rank        # planes
    ptrdiff_t begin      # the first rank in the grid
    ptrdiff_t end        # the rank after the last
    ptrdiff_t step       # between ranks; more than 1 in a sample
    ptrdiff_t stride     # of planes
    Levels levels
    Table table
    State state


cdef inline size_t grid_size(int type) noexcept nogil:
    """Returns the bytes of memory that a grid takes for each box, a multiple of 8."""
    return BOX_NUMBERS * element_size(type) + 10 * sizeof(uint32_t)


cdef enum:  # what a box is to the grid
    ABSENT     # its IoU with any box is 0 or NaN
    IRREGULAR  # the bounds may not hold for it, because of rounding
    REGULAR


cdef inline bint _is_accurate(real low, real high, real side, real min_side) noexcept nogil:
    """Returns whether rounding changes the side, and cells of its size, by much less than the bounds allow for."""
    cdef real far = side * <real>(1 << 25)
    if sizeof(real) > sizeof(float):
        far = min(far, <real>1e300)
    return low > -far and high < far and side >= min_side


cdef inline int _kind(const real *planes, ptrdiff_t count, ptrdiff_t i, real offset, real min_side) noexcept nogil:
    """Returns what the box is; sides from `min_side` on are accurate in spite of the offset."""
    cdef real x1 = planes[i], y1 = planes[count + i], x2 = planes[2 * count + i], y2 = planes[3 * count + i]
    cdef real area = planes[4 * count + i], width = (x2 - x1) + offset, height = (y2 - y1) + offset
    cdef real min_area = <real>(1e-290 if sizeof(real) > sizeof(float) else 1e-30)  # no product is denormal
    if (area > min_area and area < <real>INFINITY and _is_accurate(x1, x2, width, min_side)
            and _is_accurate(y1, y2, height, min_side)):
        return REGULAR
    return IRREGULAR if width > 0 and height > 0 and area > 0 and area < <real>INFINITY else ABSENT


# ---- levels and cells ------------------------------------------------------------------------------------------------

cdef inline int64_t level_of_side(double side, double scale, int octave_bits) noexcept nogil:
    """Returns the level, from 0 for the largest sides on."""
    cdef int64_t octave = TOP_EXPONENT - level_of(side * scale)
    return min(max(octave, 0) >> octave_bits, LEVELS - 1)


cdef inline void set_levels(Grid *grid, int detail) noexcept nogil:
    """Sets levels and cells, from detail 0 for the widest levels and largest cells on."""
    cdef Levels *levels = &grid.levels
    cdef int[DETAILS] octave_bits = [3, 3, 2, 2, 1], cell_bits = [4, 2, 1, 0, 0]
    cdef double part = 1  # of the largest side
    cdef int level
    levels.octave_bits = octave_bits[detail]
    levels.max_range = 0.5 / (1 << cell_bits[detail])
    for level in range(LEVELS):
        levels.ranges_x[level] = levels.max_range * levels.scale_x / part
        levels.ranges_y[level] = levels.max_range * levels.scale_y / part
        levels.cells_x[level] = 2 * levels.ranges_x[level] / levels.reach
        levels.cells_y[level] = 2 * levels.ranges_y[level] / levels.reach
        part /= 1 << (1 << levels.octave_bits)


cdef inline simd_void _find_extremes(const real *planes, ptrdiff_t count, ptrdiff_t begin, ptrdiff_t end, real offset,
                                     double *widest, double *highest) noexcept nogil:
    """Finds the largest width and height of boxes that participate, by vectors."""
    cdef real[LANES] widths, heights
    cdef real width, height
    cdef ptrdiff_t i = begin, k, lanes
    cdef bint takes_part
    for k in range(LANES):
        widths[k] = heights[k] = 0
    while i < end:
        lanes = min(<ptrdiff_t>LANES, end - i)
        for k in range(lanes):
            width = (planes[2 * count + i + k] - planes[i + k]) + offset
            height = (planes[3 * count + i + k] - planes[count + i + k]) + offset
            takes_part = ((width > 0) & (height > 0) & (planes[4 * count + i + k] > 0)
                          & (planes[4 * count + i + k] < <real>INFINITY))
            widths[k] = width if takes_part & (widths[k] < width) else widths[k]
            heights[k] = height if takes_part & (heights[k] < height) else heights[k]
        i += lanes
    for k in range(1, LANES):
        widths[0] = max(widths[0], widths[k])
        heights[0] = max(heights[0], heights[k])
    widest[0] = widths[0]
    highest[0] = heights[0]


cdef inline void _find_slice_extremes(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef ptrdiff_t count = grid.stride - grid.begin, slice, first, last
    for slice in range(begin, end):
        first = grid.begin + count * slice // SLICES
        last = grid.begin + count * (slice + 1) // SLICES
        if grid.type == MMK_FLOAT32:
            _find_extremes(<const float *>grid.by_rank, grid.stride, first, last, <float>grid.offset,
                           grid.levels.widest + slice, grid.levels.highest + slice)
        else:
            _find_extremes(<const double *>grid.by_rank, grid.stride, first, last, grid.offset,
                           grid.levels.widest + slice, grid.levels.highest + slice)


cdef inline int64_t _bucket_of_cell(const Grid *grid, int64_t level_x, int64_t level_y, int64_t column,
                                    int64_t line) noexcept nogil:
    """Returns a bucket; those of a line follow each other, and after the last bucket comes the first."""
    return <int64_t>((bucket_of(level_x, level_y, line, 0, grid.table.shift) + <uint64_t>column)
                     & <uint64_t>(grid.table.buckets - 1))


cdef inline uint32_t _bucket_of_box(const Grid *grid, const real *planes, ptrdiff_t i,
                                    uint64_t *populated) noexcept nogil:
    cdef const Levels *levels = &grid.levels
    cdef real offset = <real>grid.offset
    cdef ptrdiff_t count = grid.stride
    cdef int64_t level_x, level_y, column, line
    level_x = level_of_side((planes[2 * count + i] - planes[i]) + offset, levels.scale_x, levels.octave_bits)
    level_y = level_of_side((planes[3 * count + i] - planes[count + i]) + offset, levels.scale_y, levels.octave_bits)
    column = floor_of((<double>planes[i] + <double>planes[2 * count + i]) / 2 * levels.cells_x[level_x])
    line = floor_of((<double>planes[count + i] + <double>planes[3 * count + i]) / 2 * levels.cells_y[level_y])
    populated[level_x] |= <uint64_t>1 << level_y
    return <uint32_t>_bucket_of_cell(grid, level_x, level_y, column, line)


# ---- the table -------------------------------------------------------------------------------------------------------
# Boxes are sorted by bucket, then rank: slices of the boxes are divided by parts of the table, which are then sorted.

cdef inline ptrdiff_t _sampled(const Grid *grid) noexcept nogil:
    return (grid.end - grid.begin + grid.step - 1) // grid.step


cdef inline ptrdiff_t _slice_start(const Grid *grid, int64_t slice) noexcept nogil:
    return grid.begin + _sampled(grid) * slice // SLICES * grid.step


cdef inline void _find_keys(Grid *grid, const real *planes, int64_t slice) noexcept nogil:
    """Finds the buckets of a slice, and counts the boxes of each part."""
    cdef Table *table = &grid.table
    cdef uint32_t *sizes = table.positions[slice]
    cdef uint64_t *populated = grid.levels.populated_slice[slice]
    cdef real offset = <real>grid.offset
    cdef real min_side = <real>max(fabs(grid.offset) / 256, 1e-140 if sizeof(real) > sizeof(float) else 0)
    cdef int kind
    cdef ptrdiff_t i = _slice_start(grid, slice), end = min(_slice_start(grid, slice + 1), grid.end)
    memset(sizes, 0, (PARTS + 1) * sizeof(uint32_t))
    memset(populated, 0, LEVELS * sizeof(uint64_t))
    while i < end:
        kind = ABSENT if grid.state.flags[i] else _kind(planes, grid.stride, i, offset, min_side)
        if kind == REGULAR:
            table.keys[i] = _bucket_of_box(grid, planes, i, populated)
            sizes[table.keys[i] >> table.part_shift] += 1
        elif kind == IRREGULAR:
            table.keys[i] = <uint32_t>table.buckets
            sizes[PARTS] += 1
        else:
            table.keys[i] = NO_BUCKET
        i += grid.step


cdef inline void _key_slices(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef int64_t slice
    for slice in range(begin, end):
        if grid.type == MMK_FLOAT32:
            _find_keys(grid, <const float *>grid.by_rank, slice)
        else:
            _find_keys(grid, <const double *>grid.by_rank, slice)


cdef inline void _place_parts(Grid *grid) noexcept nogil:
    """Replaces the numbers of boxes by positions."""
    cdef Table *table = &grid.table
    cdef uint32_t before = 0, size
    cdef int part, slice, level
    for part in range(PARTS + 1):
        table.parts[part] = before
        for slice in range(SLICES):
            size = table.positions[slice][part]
            table.positions[slice][part] = before
            before += size
    table.parts[PARTS + 1] = before
    table.regular = table.parts[PARTS]
    table.entries = before
    for level in range(LEVELS):
        grid.levels.populated[level] = 0
        for slice in range(SLICES):
            grid.levels.populated[level] |= grid.levels.populated_slice[slice][level]


cdef inline void _divide_slices(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef Table *table = &grid.table
    cdef uint32_t *positions
    cdef uint32_t key, part
    cdef int64_t slice
    cdef ptrdiff_t i, last
    for slice in range(begin, end):
        positions = table.positions[slice]
        i = _slice_start(grid, slice)
        last = min(_slice_start(grid, slice + 1), grid.end)
        while i < last:
            key = table.keys[i]
            if key != NO_BUCKET:
                part = PARTS if key == <uint32_t>table.buckets else key >> table.part_shift
                table.keyed[positions[part]].bucket = key
                table.keyed[positions[part]].rank = <int32_t>i
                positions[part] += 1
            i += grid.step


cdef inline void _sort_part(const Grid *grid, int64_t part) noexcept nogil:
    cdef const Table *table = &grid.table
    cdef ptrdiff_t first = part << table.part_shift, bucket, i
    cdef ptrdiff_t last = min((part + 1) << table.part_shift, table.buckets)
    cdef uint32_t *ends = table.starts + 1  # the end of a bucket is the start of the next
    for bucket in range(first, last):
        ends[bucket] = 0
    for i in range(table.parts[part], table.parts[part + 1]):
        ends[table.keyed[i].bucket] += 1
    replace_sizes_by_starts(ends + first, last - first, table.parts[part])
    for i in range(table.parts[part], table.parts[part + 1]):
        table.ranks[ends[table.keyed[i].bucket]] = table.keyed[i].rank
        ends[table.keyed[i].bucket] += 1


cdef inline void _sort_parts(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t part
    for part in range(begin, end):
        _sort_part(<const Grid *>argument, part)


cdef inline void _sort_table(mmk_call *call, Grid *grid, char *memory) noexcept nogil:
    """Finds the entries of the ranks [begin, end), each `step`, that are not flagged.

    `memory` has grid_size(type) bytes per box, aligned for a number.
    """
    cdef Table *table = &grid.table
    cdef ptrdiff_t stride = grid.stride, count = _sampled(grid), i
    table.planes = memory
    table.keyed = <Keyed *>memory  # until the planes are gathered
    memory += BOX_NUMBERS * stride * element_size(grid.type)
    table.starts = <uint32_t *>memory
    table.ranks = <int32_t *>(table.starts + 4 * stride + 1)
    table.keys = <uint32_t *>(table.ranks + stride)
    grid.state.stack = grid.state.marks = <int32_t *>(table.keys + stride)  # either is needed
    grid.state.states = <int8_t *>(grid.state.stack + stride)
    grid.state.comparisons = 0
    table.shift = 64
    while <int64_t>1 << (65 - table.shift) <= 4 * count:
        table.shift -= 1
    table.buckets = <int64_t>1 << (64 - table.shift)
    table.part_shift = max(64 - table.shift - PART_BITS, 0)
    table.starts[0] = 0
    mmk_parallel(call, SLICES, 1e-3 * KEY_COST * count / SLICES, _key_slices, grid)
    _place_parts(grid)
    mmk_parallel(call, SLICES, 1e-3 * DIVIDE_COST * count / SLICES, _divide_slices, grid)
    mmk_parallel(call, PARTS, 1e-3 * BUCKET_COST * count / PARTS, _sort_parts, grid)
    for i in range(table.regular, table.entries):
        table.ranks[i] = table.keyed[i].rank


cdef inline void _pack(const Grid *grid, ptrdiff_t rank, void *planes, ptrdiff_t i) noexcept nogil:
    cdef ptrdiff_t first = grid.box_stride * grid.order[rank]
    if grid.type == MMK_FLOAT32:
        pack_box(<const float *>grid.boxes + first, <float>grid.offset, <float *>planes, grid.stride, i)
    else:
        pack_box(<const double *>grid.boxes + first, grid.offset, <double *>planes, grid.stride, i)


cdef inline void pack_by_rank(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef int64_t rank
    for rank in range(begin, end):
        _pack(grid, rank, grid.by_rank, rank)


cdef inline void _gather_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Writes the planes of the entries [begin, end)."""
    cdef const Grid *grid = <const Grid *>argument
    cdef const Table *table = &grid.table
    cdef int64_t i
    for i in range(begin, end):
        _pack(grid, table.ranks[i], table.planes, i)
        if grid.state.by_score:
            table.keys[table.ranks[i]] = <uint32_t>i
            grid.state.marks[i] = 0
        else:
            grid.state.states[i] = OPEN


cdef inline bint _is_large(const Grid *grid) noexcept nogil:
    """Returns whether the planes do not fit the second-level cache."""
    return (grid.end - grid.begin) * element_size(grid.type) >= MIN_LARGE * sizeof(float)


# ---- look-ups --------------------------------------------------------------------------------------------------------

cdef enum:  # what is left of a look-up
    NOTHING
    EVERYTHING  # all entries
    CELLS  # and irregular boxes


cdef struct Lookup:
    int left
    double x, y, width, height
    int64_t level_x, last_x, level_y, first_y, last_y
    int64_t column, cells, line, last_line
    int64_t bucket, cells_left  # of the last line


cdef inline Lookup look_up(const Grid *grid, const real *planes, ptrdiff_t box, bint is_regular) noexcept nogil:
    """Returns the look-up of a box, whose ranges of candidates `next_range` has; an irregular one has all entries."""
    cdef const Levels *levels = &grid.levels
    cdef Lookup lookup
    cdef ptrdiff_t count = grid.stride
    cdef real offset = <real>grid.offset
    lookup.left = CELLS if is_regular else EVERYTHING
    lookup.width = (planes[2 * count + box] - planes[box]) + offset
    lookup.height = (planes[3 * count + box] - planes[count + box]) + offset
    lookup.x = (<double>planes[box] + <double>planes[2 * count + box]) / 2
    lookup.y = (<double>planes[count + box] + <double>planes[3 * count + box]) / 2
    # before the first level; `next_range` goes to the next one
    lookup.level_x = level_of_side(lookup.width * levels.max_ratio, levels.scale_x, levels.octave_bits) - 1
    lookup.last_x = level_of_side(lookup.width * levels.bound, levels.scale_x, levels.octave_bits)
    lookup.first_y = level_of_side(lookup.height * levels.max_ratio, levels.scale_y, levels.octave_bits)
    lookup.last_y = lookup.level_y = level_of_side(lookup.height * levels.bound, levels.scale_y, levels.octave_bits)
    lookup.line = 0
    lookup.last_line = -1
    lookup.cells_left = 0
    return lookup


cdef inline void _next_level(const Grid *grid, Lookup *lookup) noexcept nogil:
    """Goes on to the next level that has boxes, and to its first line; `left` changes after the last level."""
    cdef const Levels *levels = &grid.levels
    cdef double x, y, range_x, range_y
    cdef bint has_boxes = False
    while not has_boxes:
        lookup.level_y += 1
        if lookup.level_y > lookup.last_y:
            lookup.level_y = lookup.first_y
            lookup.level_x += 1
            while lookup.level_x <= lookup.last_x and not levels.populated[lookup.level_x]:
                lookup.level_x += 1
            if lookup.level_x > lookup.last_x:
                lookup.left = NOTHING
                return
        has_boxes = levels.populated[lookup.level_x] >> lookup.level_y & 1
    x = lookup.x * levels.cells_x[lookup.level_x]
    y = lookup.y * levels.cells_y[lookup.level_y]
    range_x = lookup.width * levels.ranges_x[lookup.level_x]
    range_y = lookup.height * levels.ranges_y[lookup.level_y]
    range_x += min(range_x * levels.max_ratio, levels.max_range)
    range_y += min(range_y * levels.max_ratio, levels.max_range)
    if not (range_x < 1e9 and range_y * (2 + range_x) < grid.table.entries and fabs(x) < 1e18 and fabs(y) < 1e18):
        lookup.left = EVERYTHING  # the level has more cells there than there are boxes
        return
    lookup.column = floor_of(x - range_x)
    lookup.cells = floor_of(x + range_x) - lookup.column + 1
    lookup.line = floor_of(y - range_y)
    lookup.last_line = floor_of(y + range_y)


cdef inline bint next_range(const Grid *grid, Lookup *lookup, ptrdiff_t *begin, ptrdiff_t *end) noexcept nogil:
    """Sets a further range of entries that has candidates; returns False if there is none."""
    cdef const Table *table = &grid.table
    cdef int64_t size
    if lookup.left == NOTHING:
        return False
    if lookup.cells_left == 0:
        if lookup.left == CELLS and lookup.line > lookup.last_line:
            _next_level(grid, lookup)
        if lookup.left != CELLS:
            begin[0] = 0 if lookup.left == EVERYTHING else table.regular
            end[0] = table.entries
            lookup.left = NOTHING
            return begin[0] < end[0]
        lookup.bucket = _bucket_of_cell(grid, lookup.level_x, lookup.level_y, lookup.column, lookup.line)
        lookup.cells_left = min(lookup.cells, table.buckets)
        lookup.line += 1
    size = min(lookup.cells_left, table.buckets - lookup.bucket)
    begin[0] = table.starts[lookup.bucket]
    end[0] = table.starts[lookup.bucket + size]
    lookup.cells_left -= size
    lookup.bucket = 0
    return True


# ---- filling the grid ------------------------------------------------------------------------------------------------

cdef inline bint _suppress_many(const Grid *grid, const real *planes) noexcept nogil:
    """Returns whether a box suppresses more than MAX_SUPPRESSED others, judged by some."""
    cdef const Table *table = &grid.table
    cdef ptrdiff_t asked = min(<ptrdiff_t>MAX_ASKED, table.regular // BOXES_PER_ASKED + 1), i, k, a, b
    cdef ptrdiff_t begin = 0, end = 0, stride = grid.stride, hits = 0
    cdef real common
    cdef Lookup lookup
    for i in range(min(asked, table.regular)):
        a = table.ranks[i * table.regular // asked]
        lookup = look_up(grid, planes, a, True)
        while next_range(grid, &lookup, &begin, &end):
            for k in range(begin, end):
                b = table.ranks[k]
                common = intersection(planes[a], planes[stride + a], planes[2 * stride + a], planes[3 * stride + a],
                                      planes[b], planes[stride + b], planes[2 * stride + b], planes[3 * stride + b],
                                      <real>grid.offset)
                hits += (common > 0 and iou_of(common, planes[4 * stride + a], planes[4 * stride + b])
                         > <real>grid.threshold)
            if hits > (1 + MAX_SUPPRESSED) * asked:  # each meets itself, too
                return True
    return False


cdef inline bint _by_score(const mmk_call *call, const Grid *grid) noexcept nogil:
    """Returns whether the order of scores seems to be faster than that of the plane, by all boxes of the grid.

    A sample would not do: one box in so many of a regular pattern has none of its neighbours.
    """
    cdef bint is_divided = call.max_chunks > 1 and not call.is_split  # among threads
    if not (is_divided or _is_large(grid)) or grid.table.entries - grid.table.regular > MAX_IRREGULAR:
        return True
    if grid.type == MMK_FLOAT32:
        return _suppress_many(grid, <const float *>grid.by_rank)
    return _suppress_many(grid, <const double *>grid.by_rank)


cdef inline void fill_grid(mmk_call *call, Grid *grid, bint by_score, char *memory) noexcept nogil:
    """Fills the grid with the boxes of ranks [begin, end) that are not flagged, and chooses the order of visits.

    If `by_score` is true, it is that of scores; else it is the one that seems to be faster.
    """
    grid.step = 1
    _sort_table(call, grid, memory)
    grid.state.by_score = by_score or _by_score(call, grid)
    mmk_parallel(call, grid.table.entries, 1e-3 * GATHER_COST, _gather_range, grid)


# ---- choosing levels -------------------------------------------------------------------------------------------------

cdef inline ptrdiff_t _lookups(const Grid *grid) noexcept nogil:
    return min(<ptrdiff_t>MAX_LOOKUPS, grid.table.regular // SAMPLED_PER_LOOKUP + 1) if grid.table.regular else 0


cdef struct _Cost:  # of look-ups
    double ranges
    double candidates


cdef inline _Cost _measure_sample(const Grid *grid, const real *planes) noexcept nogil:
    """Returns what a look-up takes, judged by some in a grid of a sample."""
    cdef ptrdiff_t lookups = _lookups(grid), i, begin = 0, end = 0
    cdef int64_t ranges = 0, candidates = 0
    cdef Lookup lookup
    cdef _Cost cost
    for i in range(lookups):
        lookup = look_up(grid, planes, grid.table.ranks[i * grid.table.regular // lookups], True)
        while next_range(grid, &lookup, &begin, &end):
            ranges += 1
            candidates += end - begin
    cost.ranges = <double>RANGE_COST * ranges / max(lookups, <ptrdiff_t>1)
    cost.candidates = <double>CANDIDATE_COST * grid.step * candidates / max(lookups, <ptrdiff_t>1)
    return cost


cdef inline double _scale(double largest, double usual) noexcept nogil:
    """Returns what makes the largest side almost 1 at most, so that a level ends at the largest usual side.

    A few boxes that are far larger than all others do not change the levels of these.
    """
    usual *= 1.125  # a few more than those of the sample
    if largest > 2 * usual > 0:
        while usual < largest:
            usual *= 1 << (1 << MAX_OCTAVE_BITS)
        largest = usual
    return (1 - 1e-6) / max(largest, 1e-140)


cdef inline void _insert_largest(double *two, double side) noexcept nogil:
    """Keeps the two largest sides."""
    two[1] = max(two[1], min(two[0], side))
    two[0] = max(two[0], side)


cdef inline void _set_scales(mmk_call *call, Grid *grid, const real *planes) noexcept nogil:
    cdef ptrdiff_t count = grid.stride, rank = grid.begin, step = max((grid.end - grid.begin) // SIDES, <ptrdiff_t>1)
    cdef double widest = 0, highest = 0
    cdef double[2] widths = [0, 0], heights = [0, 0]  # the largest of a sample and the second, which is usual
    cdef real offset = <real>grid.offset
    cdef int slice
    mmk_parallel(call, SLICES, 1e-3 * EXTREMES_COST * (count - grid.begin) / SLICES, _find_slice_extremes, grid)
    for slice in range(SLICES):
        widest = max(widest, grid.levels.widest[slice])
        highest = max(highest, grid.levels.highest[slice])
    while rank < grid.end:
        if _kind(planes, count, rank, offset, <real>0) != ABSENT:
            _insert_largest(widths, (planes[2 * count + rank] - planes[rank]) + offset)
            _insert_largest(heights, (planes[3 * count + rank] - planes[count + rank]) + offset)
        rank += step
    grid.levels.scale_x = _scale(widest, widths[1])
    grid.levels.scale_y = _scale(highest, heights[1])


cdef inline void choose_levels(mmk_call *call, Grid *grid, char *memory) noexcept nogil:
    """Chooses how many powers of two a level spans, and how large cells are.

    All inputs of `fill_grid` are set but what belongs to the levels.
    """
    cdef Levels *levels = &grid.levels
    cdef double best = INFINITY
    cdef ptrdiff_t count = grid.end - grid.begin
    cdef bint is_large = _is_large(grid)
    cdef int detail, chosen = 0
    cdef _Cost cost
    levels.bound = min(grid.threshold, 1.0) * 0.999
    levels.max_ratio = 1 / levels.bound
    levels.reach = (1 - levels.bound) / (1 + levels.bound) * 1.0001
    if grid.type == MMK_FLOAT32:
        _set_scales(call, grid, <const float *>grid.by_rank)
    else:
        _set_scales(call, grid, <const double *>grid.by_rank)
    grid.step = max(count // max(count // (BOXES_PER_SAMPLED << is_large), <ptrdiff_t>MIN_SAMPLE), <ptrdiff_t>1)
    for detail in range(not is_large, DETAILS):  # beyond the cache each row of cells costs misses: the largest pay
        set_levels(grid, detail)
        _sort_table(call, grid, memory)
        if grid.type == MMK_FLOAT32:
            cost = _measure_sample(grid, <const float *>grid.by_rank)
        else:
            cost = _measure_sample(grid, <const double *>grid.by_rank)
        if cost.ranges + cost.candidates < best:
            best = cost.ranges + cost.candidates
            chosen = detail
        if cost.candidates < cost.ranges:  # ranges would be more
            break
    set_levels(grid, chosen)
