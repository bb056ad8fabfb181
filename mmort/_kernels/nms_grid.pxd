"""nms: a grid of boxes, in which the candidates that could suppress a box are neighbours.

IoU > t bounds, on each axis, the ratio of the sides (within [t, 1 / t]) and the distance of the centres (below
(1 - t) / (1 + t) times the mean side).  Boxes are keyed by the magnitude of both sides, their levels, and by a cell of
the plane whose size follows from them.  The cells of a row are neighbours in the table, so the candidates of a box are
a few ranges, and the time is nearly linear.
"""
from libc.math cimport INFINITY, fabs, isfinite
from libc.stdint cimport int8_t, int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes cimport BOX_NUMBERS, pack_box
from mmort._kernels.cells cimport bucket_of, floor_of, largest_side, level_of
from mmort._kernels.counting cimport replace_sizes_by_starts
from mmort._kernels.workspace cimport element_size

cdef enum:
    MIN_OCTAVE_BITS = 2  # 4 powers of two; fewer make more ranges, which are shorter
    MAX_OCTAVE_BITS = 4
    NO_BUCKET = 0xFFFFFFFF
    LANES = 32  # independent running extremes
    SLICES = 16  # of the boxes, which are keyed and divided on several threads
    PART_BITS = 6
    PARTS = 1 << PART_BITS  # of the table, whose entries are sorted on several threads

cdef enum:  # of all boxes
    SHORTEST  # side
    WIDEST
    HIGHEST
    FARTHEST  # coordinate
    EXTREMES

cdef enum:  # picoseconds per box: nms, uniform, 100,000 boxes
    EXTREMES_COST = 2000
    KEY_COST = 8000
    DIVIDE_COST = 2000
    BUCKET_COST = 4000
    GATHER_COST = 10000

cdef enum:
    OPEN = 0  # the state of a box that is not decided yet


cdef struct Keyed:
    uint32_t bucket
    int32_t rank


cdef struct Grid:
    int type
    double threshold
    double offset
    double[SLICES][EXTREMES] extremes
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
    void *by_rank        # planes
    uint32_t *keys       # buckets, by rank
    uint32_t *starts     # by bucket: its first entry; after the last, the number of entries
    int shift            # of the hash, to fit the number of buckets
    int64_t buckets
    int part_shift       # from a bucket to its part of the table
    Keyed *keyed         # boxes, by part
    uint32_t[SLICES][PARTS] positions  # in `keyed`, of the boxes of a slice and part
    uint32_t[PARTS + 1] parts          # in `keyed`, the first box of a part
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

cdef inline int64_t level_of_side(const Grid *grid, double side) noexcept nogil:
    return max(level_of(side) - grid.lowest, 0) >> grid.octave_bits


cdef inline double largest_of_level(const Grid *grid, int64_t level) noexcept nogil:
    return largest_side(grid.lowest + ((level + 1) << grid.octave_bits) - 1)


cdef inline double cells_per_length(const Grid *grid, int64_t level) noexcept nogil:
    return 1 / (grid.reach * largest_of_level(grid, level))


cdef inline real _larger_magnitude(real a, real b) noexcept nogil:
    a = -a if a < 0 else a
    b = -b if b < 0 else b
    return b if a < b else a


cdef inline simd_void _find_extremes(const real *planes, ptrdiff_t count, ptrdiff_t begin, ptrdiff_t end, real offset,
                                     double *extremes) noexcept nogil:
    """Finds the shortest side, and the largest width, height and coordinate of boxes that participate.

    `_participates` would keep the compiler from using vectors.
    """
    cdef real[LANES] shortest, widest, highest, farthest
    cdef real x1, y1, x2, y2, width, height, side, far
    cdef ptrdiff_t i = begin, k, lanes
    cdef bint participates
    for k in range(LANES):
        shortest[k] = <real>INFINITY
        widest[k] = highest[k] = farthest[k] = 0
    while i < end:
        lanes = min(<ptrdiff_t>LANES, end - i)
        for k in range(lanes):
            x1 = planes[i + k]
            y1 = planes[count + i + k]
            x2 = planes[2 * count + i + k]
            y2 = planes[3 * count + i + k]
            width = (x2 - x1) + offset
            height = (y2 - y1) + offset
            participates = ((width > 0) & (height > 0) & (planes[4 * count + i + k] > 0)
                            & (planes[4 * count + i + k] < <real>INFINITY))
            side = height if height < width else width
            far = _larger_magnitude(_larger_magnitude(x1, x2), _larger_magnitude(y1, y2))
            shortest[k] = side if participates & (side < shortest[k]) else shortest[k]
            widest[k] = width if participates & (widest[k] < width) else widest[k]
            highest[k] = height if participates & (highest[k] < height) else highest[k]
            farthest[k] = far if participates & (farthest[k] < far) else farthest[k]
        i += lanes
    for k in range(1, LANES):
        shortest[0] = min(shortest[0], shortest[k])
        widest[0] = max(widest[0], widest[k])
        highest[0] = max(highest[0], highest[k])
        farthest[0] = max(farthest[0], farthest[k])
    extremes[SHORTEST] = shortest[0]
    extremes[WIDEST] = widest[0]
    extremes[HIGHEST] = highest[0]
    extremes[FARTHEST] = farthest[0]


cdef inline ptrdiff_t _slice_start(const Grid *grid, int64_t slice) noexcept nogil:
    return grid.begin + (grid.end - grid.begin) * slice // SLICES


cdef inline void _find_slice_extremes(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef int64_t slice
    for slice in range(begin, end):
        if grid.type == MMK_FLOAT32:
            _find_extremes(<const float *>grid.by_rank, grid.stride, _slice_start(grid, slice),
                           _slice_start(grid, slice + 1), <float>grid.offset, grid.extremes[slice])
        else:
            _find_extremes(<const double *>grid.by_rank, grid.stride, _slice_start(grid, slice),
                           _slice_start(grid, slice + 1), grid.offset, grid.extremes[slice])


cdef inline bint fit_grid(mmk_call *call, Grid *grid) noexcept nogil:
    """Chooses levels; returns False if the bounds may not hold because of rounding, as they do but for very odd input.

    The inputs of `suppress_by_grid` but `end` are set.
    """
    cdef double[EXTREMES] extremes
    cdef double smallest
    cdef int slice, k
    if not grid.threshold >= 0.05:
        return False
    grid.end = grid.stride
    mmk_parallel(call, SLICES, 1e-3 * EXTREMES_COST * (grid.end - grid.begin) / SLICES, _find_slice_extremes, grid)
    extremes = grid.extremes[0]
    for slice in range(1, SLICES):
        extremes[SHORTEST] = min(extremes[SHORTEST], grid.extremes[slice][SHORTEST])
        for k in range(SHORTEST + 1, EXTREMES):
            extremes[k] = max(extremes[k], grid.extremes[slice][k])
    smallest = extremes[SHORTEST]
    if not (smallest * 256 >= fabs(grid.offset) and extremes[FARTHEST] < 1e300
            and extremes[FARTHEST] < smallest * <double>(1 << 30)):
        return False
    grid.bound = min(grid.threshold, 1.0) * 0.999
    grid.reach = (1 - grid.bound) / (1 + grid.bound)
    grid.lowest = level_of(smallest)
    grid.octave_bits = MIN_OCTAVE_BITS
    # two levels, seldom three, hold all sides between t and 1 / t
    while (grid.bound * grid.bound * 1.4 * (1 << (1 << grid.octave_bits)) < 1 and grid.octave_bits < MAX_OCTAVE_BITS):
        grid.octave_bits += 1
    grid.last_x = level_of_side(grid, extremes[WIDEST])
    grid.last_y = level_of_side(grid, extremes[HIGHEST])
    return True


cdef inline int64_t bucket_of_cell(const Grid *grid, int64_t level_x, int64_t level_y, int64_t column,
                                   int64_t line) noexcept nogil:
    """Returns a bucket; those of a line follow each other, and after the last bucket comes the first."""
    return <int64_t>((bucket_of(level_x, level_y, line, 0, grid.shift) + <uint64_t>column)
                     & <uint64_t>(grid.buckets - 1))


cdef inline uint32_t _bucket_of_box(const Grid *grid, const real *planes, ptrdiff_t i) noexcept nogil:
    cdef real offset = <real>grid.offset
    cdef ptrdiff_t count = grid.stride
    cdef int64_t level_x = level_of_side(grid, (planes[2 * count + i] - planes[i]) + offset), column
    cdef int64_t level_y = level_of_side(grid, (planes[3 * count + i] - planes[count + i]) + offset), line
    column = floor_of((<double>planes[i] + <double>planes[2 * count + i]) / 2 * cells_per_length(grid, level_x))
    line = floor_of((<double>planes[count + i] + <double>planes[3 * count + i]) / 2 * cells_per_length(grid, level_y))
    return <uint32_t>bucket_of_cell(grid, level_x, level_y, column, line)


# ---- the table -------------------------------------------------------------------------------------------------------
# Boxes are sorted by bucket, then rank: slices of the boxes are divided by parts of the table, which are then sorted.

cdef inline void _find_keys(Grid *grid, const real *planes, int64_t slice) noexcept nogil:
    """Finds the buckets of a slice, and counts the boxes of each part."""
    cdef uint32_t *sizes = grid.positions[slice]
    cdef ptrdiff_t i
    memset(sizes, 0, PARTS * sizeof(uint32_t))
    for i in range(_slice_start(grid, slice), _slice_start(grid, slice + 1)):
        if grid.flags[i] or not _participates(planes, grid.stride, i, <real>grid.offset):
            grid.keys[i] = NO_BUCKET
        else:
            grid.keys[i] = _bucket_of_box(grid, planes, i)
            sizes[grid.keys[i] >> grid.part_shift] += 1


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
    cdef uint32_t before = 0, size
    cdef int part, slice
    for part in range(PARTS):
        grid.parts[part] = before
        for slice in range(SLICES):
            size = grid.positions[slice][part]
            grid.positions[slice][part] = before
            before += size
    grid.parts[PARTS] = before
    grid.entries = before


cdef inline void _divide_slices(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef uint32_t *positions
    cdef uint32_t key
    cdef int64_t slice
    cdef ptrdiff_t i
    for slice in range(begin, end):
        positions = grid.positions[slice]
        for i in range(_slice_start(grid, slice), _slice_start(grid, slice + 1)):
            key = grid.keys[i]
            if key != NO_BUCKET:
                grid.keyed[positions[key >> grid.part_shift]].bucket = key
                grid.keyed[positions[key >> grid.part_shift]].rank = <int32_t>i
                positions[key >> grid.part_shift] += 1


cdef inline void _sort_part(const Grid *grid, int64_t part) noexcept nogil:
    cdef ptrdiff_t first = part << grid.part_shift, last = min((part + 1) << grid.part_shift, grid.buckets), bucket, i
    cdef uint32_t *ends = grid.starts + 1  # the end of a bucket is the start of the next
    for bucket in range(first, last):
        ends[bucket] = 0
    for i in range(grid.parts[part], grid.parts[part + 1]):
        ends[grid.keyed[i].bucket] += 1
    replace_sizes_by_starts(ends + first, last - first, grid.parts[part])
    for i in range(grid.parts[part], grid.parts[part + 1]):
        grid.ranks[ends[grid.keyed[i].bucket]] = grid.keyed[i].rank
        ends[grid.keyed[i].bucket] += 1


cdef inline void _sort_parts(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t part
    for part in range(begin, end):
        _sort_part(<const Grid *>argument, part)


cdef inline void _pack(const Grid *grid, ptrdiff_t rank, void *planes, ptrdiff_t i) noexcept nogil:
    if grid.type == MMK_FLOAT32:
        pack_box(<const float *>grid.boxes + 4 * grid.order[rank], <float>grid.offset, <float *>planes, grid.stride, i)
    else:
        pack_box(<const double *>grid.boxes + 4 * grid.order[rank], grid.offset, <double *>planes, grid.stride, i)


cdef inline void pack_by_rank(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef Grid *grid = <Grid *>argument
    cdef int64_t rank
    for rank in range(begin, end):
        _pack(grid, rank, grid.by_rank, rank)


cdef inline void _gather_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Writes the planes of the entries [begin, end)."""
    cdef const Grid *grid = <const Grid *>argument
    cdef int64_t i
    for i in range(begin, end):
        _pack(grid, grid.ranks[i], grid.planes, i)
        grid.states[i] = OPEN


cdef inline void fill_grid(mmk_call *call, Grid *grid, char *memory) noexcept nogil:
    """Fills the grid with the boxes of ranks [begin, end) that are not flagged.

    `memory` has grid_size(type) bytes per box, aligned for a number.
    """
    cdef ptrdiff_t stride = grid.stride, count = grid.end - grid.begin
    grid.planes = memory
    grid.keyed = <Keyed *>memory  # until the planes are gathered
    memory += BOX_NUMBERS * stride * element_size(grid.type)
    grid.starts = <uint32_t *>memory
    grid.ranks = <int32_t *>(grid.starts + 4 * stride + 1)
    grid.stack = grid.ranks + stride
    grid.keys = <uint32_t *>(grid.stack + stride)
    grid.states = <int8_t *>(grid.keys + stride)
    grid.comparisons = 0
    grid.shift = 64
    while <int64_t>1 << (65 - grid.shift) <= 4 * count:
        grid.shift -= 1
    grid.buckets = <int64_t>1 << (64 - grid.shift)
    grid.part_shift = max(64 - grid.shift - PART_BITS, 0)
    grid.starts[0] = 0
    mmk_parallel(call, SLICES, 1e-3 * KEY_COST * count / SLICES, _key_slices, grid)
    _place_parts(grid)
    mmk_parallel(call, SLICES, 1e-3 * DIVIDE_COST * count / SLICES, _divide_slices, grid)
    mmk_parallel(call, PARTS, 1e-3 * BUCKET_COST * count / PARTS, _sort_parts, grid)
    mmk_parallel(call, grid.entries, 1e-3 * GATHER_COST, _gather_range, grid)
