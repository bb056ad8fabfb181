"""nms: greedy non-maximum suppression of corner boxes, class by class if classes are given.

Boxes are sorted once, then taken class by class.  The first kept boxes of a class, which suppress most, are compared
with all later boxes, in vectors.  Once that no longer pays, each box left looks only at the kept boxes that could reach
the threshold: IoU > t bounds, on either axis by itself, the ratio of the sides (within [t, 1 / t]) and the distance of
the centres (below (1 - t) / (1 + t) times the mean side).  Kept boxes lie in a hash table keyed by the magnitude of
both sides and by a cell of the plane as large as those sides call for, so that a box finds its few candidates in a few
cells and the time is nearly linear.  Both ways decide by the same arithmetic, so they give the same answer.
"""
from libc.math cimport isfinite
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from mmort._kernels.boxes cimport box_area, intersection, iou, iou_of
from mmort._kernels.kernels cimport mmk_item, mmk_order, mmk_sort
from mmort._kernels.workspace cimport take
from element_types cimport real
from mmk cimport (MMK_ABSENT, MMK_FLOAT32, MMK_INT64, mmk_add_phase, mmk_call, mmk_check_shape, mmk_fail,
                  mmk_set_output, mmk_tensor, simd_void)

cdef enum:
    IOU_THRESHOLD  # attributes
    OFFSET
    SCORE_THRESHOLD
    MAX_NUM

cdef enum:
    BOXES  # inputs
    SCORES
    CLASSES

cdef enum:
    SORT  # phases
    SUPPRESS
    COLLECT

cdef enum:
    FEW = 1024  # boxes for which comparing all pairs is faster than a grid
    TRIES = 8  # boxes compared with all others before judging whether that pays
    YIELD = 800  # it pays if each suppresses one in so many of the boxes left: looking up one takes as long
    ROW = 5  # x1, y1, x2, y2, area


cdef struct _Workspace:
    # A box's rank is its position by score alone; its place is the position by class first and score second.
    mmk_item *items     # for sorting
    mmk_item *spare
    int64_t *sources    # position in the input, by rank
    int64_t *ranks      # by place
    int64_t *boxes      # position in the input, by place
    int32_t *starts     # places where the classes begin, and the end of the last
    int32_t *flags      # 1: suppressed, by place
    uint8_t *kept       # by rank
    char *suppression   # scratch memory of mmk_suppress, in each class's proportion
    int64_t *indices    # the result
    void *detections
    size_t size


cdef inline size_t _width(const mmk_call *call) noexcept nogil:
    return sizeof(float) if call.inputs[BOXES].type == MMK_FLOAT32 else sizeof(double)


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[BOXES].shape[0]
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.sources = <int64_t *>take(&address, n * sizeof(int64_t))
    w.ranks = <int64_t *>take(&address, n * sizeof(int64_t))
    w.boxes = <int64_t *>take(&address, n * sizeof(int64_t))
    w.starts = <int32_t *>take(&address, (n + 1) * sizeof(int32_t))
    w.flags = <int32_t *>take(&address, n * sizeof(int32_t))
    w.kept = <uint8_t *>take(&address, n)
    w.suppression = <char *>take(&address, n * mmk_suppress_size(call.inputs[BOXES].type))
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, n * ROW * _width(call))
    w.size = address - <size_t>call.scratch
    return w


# ---- comparing all pairs --------------------------------------------------------------------------------------------

cdef simd_void _compare(const real *planes, ptrdiff_t count, ptrdiff_t one, real threshold, real offset,
                        int32_t *flags, ptrdiff_t *suppressed) noexcept nogil:
    """Flag all boxes behind `one` that it suppresses, and count those flagged now."""
    cdef const real *x1 = planes
    cdef const real *y1 = planes + count
    cdef const real *x2 = planes + 2 * count
    cdef const real *y2 = planes + 3 * count
    cdef const real *area = planes + 4 * count
    cdef real ax1 = x1[one], ay1 = y1[one], ax2 = x2[one], ay2 = y2[one], area_a = area[one]
    cdef int32_t total = 0
    cdef ptrdiff_t i
    for i in range(one + 1, count):
        flags[i] |= iou(ax1, ay1, ax2, ay2, area_a, x1[i], y1[i], x2[i], y2[i], area[i], offset) > threshold
        total += flags[i]
    suppressed[0] = total


cdef ptrdiff_t _suppress_by_pairs(const real *planes, ptrdiff_t begin, ptrdiff_t count, real threshold, real offset,
                                  ptrdiff_t most, bint to_the_end, int32_t *flags) noexcept nogil:
    """Go on from place `begin`; returns the place where it stopped paying, or `count`."""
    cdef ptrdiff_t i, kept = 0, suppressed = 0
    for i in range(begin):
        kept += not flags[i]
    for i in range(begin, count):
        if kept >= most:
            flags[i] = 1
        elif not flags[i]:
            if not to_the_end and kept >= TRIES and suppressed * YIELD < kept * (count - i):
                return i
            kept += 1
            _compare(planes, count, i, threshold, offset, flags, &suppressed)
    return count


# ---- the grid --------------------------------------------------------------------------------------------------------

ctypedef union _Bits:
    double value
    uint64_t bits

cdef enum:
    BIAS = 1023  # of a double's exponent


cdef inline int64_t _floor(double value) noexcept nogil:
    # libm's floor is a call where the baseline has no instruction for it
    cdef int64_t towards_zero = <int64_t>value
    return towards_zero - (value < towards_zero)


cdef inline int64_t _level(double side, int64_t octaves) noexcept nogil:
    """The magnitude of a side: levels are `octaves` powers of two wide."""
    cdef _Bits number
    number.value = side
    return <int64_t>(number.bits >> 52) // octaves


cdef inline double _largest_side(int64_t level, int64_t octaves) noexcept nogil:
    """No side of this level is larger."""
    cdef _Bits number
    number.bits = <uint64_t>min((level + 1) * octaves, 2 * BIAS) << 52
    return number.value


cdef inline uint64_t _bucket(int64_t level_x, int64_t level_y, int64_t x, int64_t y, int shift) noexcept nogil:
    cdef uint64_t key = (<uint64_t>level_x * 0x9E3779B97F4A7C15u + <uint64_t>level_y * 0xC2B2AE3D27D4EB4Fu
                         + <uint64_t>x * 0x165667B19E3779F9u + <uint64_t>y * 0xD6E8FEB86659FD93u)
    key ^= key >> 32
    return key * 0xFF51AFD7ED558CCDu >> shift


cdef struct _Grid:
    uint32_t *heads
    uint32_t *nexts
    int shift           # of the hash, to fit the table
    int64_t octaves     # a level spans
    double threshold    # what the bounds are made for: a little below the real one, which covers all rounding
    double reach        # in mean sides: how far two centres may be apart; in a level's largest side: a cell's edge


cdef inline bint _participates(const real *row, real offset) noexcept nogil:
    """Any other box neither suppresses nor is suppressed: its IoU with any box is 0 or NaN."""
    return ((row[2] - row[0]) + offset > 0 and (row[3] - row[1]) + offset > 0 and row[4] > 0 and isfinite(row[4]))


cdef bint _fits_grid(const real *rows, ptrdiff_t begin, ptrdiff_t count, real threshold, real offset) noexcept nogil:
    """Whether the bounds hold for these boxes in spite of rounding; false only for very odd input."""
    cdef ptrdiff_t i
    cdef int k
    cdef double smallest = 1e300, farthest = 0
    cdef const real *row
    if not threshold >= <real>0.05:
        return False
    for i in range(begin, count):
        row = rows + ROW * i
        if _participates(row, offset):
            smallest = min(smallest, <double>min((row[2] - row[0]) + offset, (row[3] - row[1]) + offset))
            for k in range(4):
                farthest = max(farthest, <double>(row[k] if row[k] > 0 else -row[k]))
    return (smallest * 256 >= (offset if offset > 0 else -offset) and farthest < 1e300
            and farthest < smallest * <double>(1 << 30))


cdef bint _is_suppressed(const _Grid *grid, const real *rows, const real *row, real threshold,
                         real offset) noexcept nogil:
    cdef double width = (row[2] - row[0]) + offset, height = (row[3] - row[1]) + offset
    cdef double x = (<double>row[0] + <double>row[2]) / 2, y = (<double>row[1] + <double>row[3]) / 2
    cdef int64_t octaves = grid.octaves
    cdef int64_t last_x = _level(width / grid.threshold, octaves), last_y = _level(height / grid.threshold, octaves)
    cdef int64_t first_y = _level(height * grid.threshold, octaves)
    cdef int64_t level_x = _level(width * grid.threshold, octaves), level_y, column, line, last_column, last_line
    cdef double largest, reach_x, reach_y, per_x, per_y
    cdef uint32_t place
    cdef const real *other
    cdef real common
    while level_x <= last_x:
        largest = _largest_side(level_x, octaves)
        reach_x = grid.reach * (width + min(largest, width / grid.threshold)) / 2
        per_x = 1 / (grid.reach * largest)
        last_column = _floor((x + reach_x) * per_x)
        level_y = first_y
        while level_y <= last_y:
            largest = _largest_side(level_y, octaves)
            reach_y = grid.reach * (height + min(largest, height / grid.threshold)) / 2
            per_y = 1 / (grid.reach * largest)
            last_line = _floor((y + reach_y) * per_y)
            column = _floor((x - reach_x) * per_x)
            while column <= last_column:
                line = _floor((y - reach_y) * per_y)
                while line <= last_line:
                    place = grid.heads[_bucket(level_x, level_y, column, line, grid.shift)]
                    while place:
                        other = rows + ROW * <ptrdiff_t>(place - 1)
                        common = intersection(other[0], other[1], other[2], other[3], row[0], row[1], row[2], row[3],
                                              offset)
                        if common > 0 and iou_of(common, other[4], row[4]) > threshold:
                            return True
                        place = grid.nexts[place - 1]
                    line += 1
                column += 1
            level_y += 1
        level_x += 1
    return False


cdef inline void _insert(const _Grid *grid, const real *row, ptrdiff_t place, real offset) noexcept nogil:
    cdef int64_t level_x = _level((row[2] - row[0]) + offset, grid.octaves)
    cdef int64_t level_y = _level((row[3] - row[1]) + offset, grid.octaves)
    cdef double per_x = 1 / (grid.reach * _largest_side(level_x, grid.octaves))
    cdef double per_y = 1 / (grid.reach * _largest_side(level_y, grid.octaves))
    cdef int64_t column = _floor((<double>row[0] + <double>row[2]) / 2 * per_x)
    cdef int64_t line = _floor((<double>row[1] + <double>row[3]) / 2 * per_y)
    cdef uint64_t bucket = _bucket(level_x, level_y, column, line, grid.shift)
    grid.nexts[place] = grid.heads[bucket]
    grid.heads[bucket] = <uint32_t>(place + 1)


cdef void _suppress_by_grid(const real *rows, ptrdiff_t begin, ptrdiff_t count, real threshold, real offset,
                            ptrdiff_t most, uint32_t *heads, uint32_t *nexts, int32_t *flags) noexcept nogil:
    """Go on from place `begin`: no box from there on is suppressed by one before."""
    cdef _Grid grid
    cdef ptrdiff_t i, kept = 0
    cdef double span
    grid.heads = heads
    grid.nexts = nexts
    grid.threshold = min(<double>threshold, 1.0) * 0.999
    grid.reach = (1 - grid.threshold) / (1 + grid.threshold)
    grid.octaves = 1
    span = grid.threshold * grid.threshold * 2.8  # two levels, seldom three, hold all sides between t and 1 / t
    while span < 1 and grid.octaves < 16:
        grid.octaves += 1
        span *= 2
    grid.shift = 64
    while <int64_t>1 << (65 - grid.shift) <= 4 * count:
        grid.shift -= 1
    memset(heads, 0, (<size_t>1 << (64 - grid.shift)) * sizeof(uint32_t))
    for i in range(begin):
        kept += not flags[i]
    for i in range(begin, count):
        flags[i] |= kept >= most
        if flags[i]:
            continue
        if _participates(rows + ROW * i, offset):
            if _is_suppressed(&grid, rows, rows + ROW * i, threshold, offset):
                flags[i] = 1
                continue
            _insert(&grid, rows + ROW * i, i, offset)
        kept += 1


# ---- one class -------------------------------------------------------------------------------------------------------

cdef void _suppress(const real *boxes, const int64_t *places, ptrdiff_t count, real threshold, real offset,
                    int64_t most, int32_t *flags, void *scratch) noexcept nogil:
    cdef real *planes = <real *>scratch  # ROW numbers a box, plane after plane
    cdef real *rows = planes + ROW * count  # the same, row after row
    cdef uint32_t *heads = <uint32_t *>(rows + ROW * count)
    cdef uint32_t *nexts = heads + 4 * count
    cdef const real *box
    cdef ptrdiff_t begin, i, k
    if most <= 0:
        most = count
    for i in range(count):
        box = boxes + 4 * places[i]
        for k in range(4):
            planes[k * count + i] = box[k]
        planes[4 * count + i] = box_area(box, offset)
    memset(flags, 0, count * sizeof(int32_t))
    begin = _suppress_by_pairs(planes, 0, count, threshold, offset, most, count <= FEW, flags)
    if begin < count:
        for i in range(begin, count):
            for k in range(ROW):
                rows[i * ROW + k] = planes[k * count + i]
        if _fits_grid(rows, begin, count, threshold, offset):
            _suppress_by_grid(rows, begin, count, threshold, offset, most, heads, nexts, flags)
        else:
            _suppress_by_pairs(planes, begin, count, threshold, offset, most, True, flags)


cdef public size_t mmk_suppress_size(int type) noexcept nogil:
    # planes, rows, heads and nexts; one more number keeps the share of each class aligned
    return 2 * ROW * (sizeof(float) if type == MMK_FLOAT32 else sizeof(double)) + 6 * sizeof(uint32_t)


cdef public void mmk_suppress(int type, const void *boxes, const int64_t *places, int64_t count, double threshold,
                              double offset, int64_t most, int32_t *flags, void *scratch) noexcept nogil:
    if type == MMK_FLOAT32:
        _suppress(<const float *>boxes, places, count, <float>threshold, <float>offset, most, flags, scratch)
    else:
        _suppress(<const double *>boxes, places, count, threshold, offset, most, flags, scratch)


# ---- phases ----------------------------------------------------------------------------------------------------------

cdef int64_t _sort(mmk_call *call, const _Workspace *w) noexcept nogil:
    """Order the boxes by score and then by class; returns the number of classes."""
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef const int64_t *classes = <const int64_t *>call.inputs[CLASSES].data
    cdef double least = call.attributes[SCORE_THRESHOLD].f, score
    cdef int64_t count = scores.size, rank, first, groups = 0
    cdef mmk_item *items = mmk_order(scores.data, scores.type, w.items, w.spare, count)
    for rank in range(count):
        w.sources[rank] = items[rank].index
        if least > 0:
            if scores.type == MMK_FLOAT32:
                score = (<const float *>scores.data)[items[rank].index]
                least = <float>least
            else:
                score = (<const double *>scores.data)[items[rank].index]
            if not score > least:  # nor are all later ones, NaN among them
                count = rank
                break
    if call.inputs[CLASSES].type != MMK_ABSENT and count:
        first = classes[w.sources[0]]
        for rank in range(count):
            first = min(first, classes[w.sources[rank]])
        for rank in range(count):
            w.items[rank].key = <uint64_t>classes[w.sources[rank]] - <uint64_t>first
            w.items[rank].index = rank
        items = mmk_sort(w.items, w.spare, count)
    else:
        for rank in range(count):
            items[rank].key = 0
            items[rank].index = rank
    for rank in range(count):
        if rank == 0 or items[rank].key != items[rank - 1].key:
            w.starts[groups] = <int32_t>rank
            groups += 1
        w.ranks[rank] = items[rank].index
        w.boxes[rank] = w.sources[items[rank].index]
    w.starts[groups] = <int32_t>count
    return groups


cdef void _suppress_classes(const mmk_call *call, const _Workspace *w, int64_t begin, int64_t end) noexcept nogil:
    cdef const mmk_tensor *boxes = &call.inputs[BOXES]
    cdef size_t size = mmk_suppress_size(boxes.type)
    cdef int64_t group, place
    for group in range(begin, end):
        place = w.starts[group]
        mmk_suppress(boxes.type, boxes.data, w.boxes + place, w.starts[group + 1] - place,
                     call.attributes[IOU_THRESHOLD].f, call.attributes[OFFSET].i, call.attributes[MAX_NUM].i,
                     w.flags + place, w.suppression + place * size)
        for place in range(place, w.starts[group + 1]):
            w.kept[w.ranks[place]] = not w.flags[place]


cdef void _collect(mmk_call *call, const _Workspace *w, const real *boxes, const real *scores,
                   real *detections) noexcept nogil:
    cdef int64_t count = w.starts[call.work[SUPPRESS]], most = call.attributes[MAX_NUM].i, kept = 0, rank, k
    cdef ptrdiff_t source
    cdef int64_t[2] shape
    if most <= 0:
        most = count
    for rank in range(count):
        if w.kept[rank] and kept < most:
            source = w.sources[rank]
            w.indices[kept] = source
            for k in range(4):
                detections[5 * kept + k] = boxes[4 * source + k]
            detections[5 * kept + 4] = scores[source]
            kept += 1
    shape[0] = kept
    shape[1] = 5
    mmk_set_output(call, 0, MMK_INT64, 1, shape)
    mmk_set_output(call, 1, call.inputs[BOXES].type, 2, shape)
    call.outputs[0].data = w.indices
    call.outputs[1].data = detections


cdef public int mmk_nms_prepare(mmk_call *call) noexcept nogil:
    cdef double threshold = call.attributes[IOU_THRESHOLD].f
    cdef int64_t count
    cdef int64_t[2] shape
    if mmk_check_shape(call, BOXES, "boxes", "[N, 4]") or mmk_check_shape(call, SCORES, "scores", "[N]"):
        return -1
    if call.inputs[CLASSES].type != MMK_ABSENT and mmk_check_shape(call, CLASSES, "idxs", "[N]"):
        return -1
    if threshold != threshold:
        return mmk_fail(call, "iou_threshold must be a number, got nan")
    count = call.inputs[BOXES].shape[0]
    if count > INT32_MAX // 4:
        return mmk_fail(call, "there may be up to %d boxes, got %lld", INT32_MAX // 4, <long long>count)
    call.late_outputs = True
    shape[0] = 0
    shape[1] = 5
    if count == 0:
        return mmk_set_output(call, 0, MMK_INT64, 1, shape) or mmk_set_output(
            call, 1, call.inputs[BOXES].type, 2, shape)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, 1, 10.0 * count)
    mmk_add_phase(call, 1, 100.0 * count)  # _sort knows better
    mmk_add_phase(call, 1, 5.0 * count)
    return 0


cdef public void mmk_nms_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    if phase == SORT:
        call.work[SUPPRESS] = _sort(call, &w)
        call.grain[SUPPRESS] = 1 + call.work[SUPPRESS] * 200 // call.inputs[BOXES].shape[0]
    elif phase == SUPPRESS:
        _suppress_classes(call, &w, begin, end)
    elif call.inputs[BOXES].type == MMK_FLOAT32:
        _collect(call, &w, <const float *>boxes, <const float *>scores, <float *>w.detections)
    else:
        _collect(call, &w, <const double *>boxes, <const double *>scores, <double *>w.detections)
