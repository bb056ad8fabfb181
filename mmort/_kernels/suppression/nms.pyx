"""nms: greedy non-maximum suppression of corner boxes, class by class if classes are given.

Boxes are sorted once, then visited class by class.  The first kept boxes of a class suppress most others; they are
compared with all later boxes, in vectors.  Once that no longer pays, each remaining box is compared only with the kept
boxes that could reach the threshold (nms_decisions.pxd).  Both ways use the same arithmetic, so results are the same.
"""
from libc.math cimport expm1
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS, pack_box, plane_iou
from mmort._kernels.shared.kernels cimport mmk_item, mmk_order
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.nms_decisions cimport suppress_by_grid
from mmort._kernels.suppression.nms_grid cimport GATHER_COST, Grid, choose_levels, grid_size, pack_by_rank
from mmort._kernels.suppression.suppression cimport check_count, check_threshold, may_continue, sort_by_class

cdef enum:  # inputs
    BOXES
    SCORES
    CLASSES

cdef enum:  # attributes
    IOU_THRESHOLD
    OFFSET
    SCORE_THRESHOLD
    MAX_NUM

cdef enum:  # phases
    SORT
    SUPPRESS
    COLLECT

cdef enum:  # chosen by nms, clustered and uniform, 100 to 3000 boxes
    PAIRWISE_MAX_BOXES = 1024  # up to which comparing all pairs is faster than a grid
    MAX_WANTED = 200  # boxes, up to which those of the highest scores are compared before the rest
    PAIRWISE_PROBES = 8  # boxes compared with all others before judging whether that pays
    MAX_PROBES = 32  # likewise, if that does not pay at once: nms, nested, 20,000 boxes, the small ones first
    SAMPLED_SHARE = 8  # of many boxes one in eight is judged by: nms, uniform, 20,000 boxes
    MIN_SAMPLED_BOXES = 2048
    MAX_FIRST = 3  # boxes of the first grid for each that is to be kept: what some suppress can be far from the mean
    MAX_GROWTH = 8  # of the grid, if too few of its boxes are kept
    MAX_LEFT_PER_SUPPRESSED = 800  # it pays if a kept box suppresses one in 800 of the rest; at 250 nested ones lose

cdef enum:  # picoseconds: nms, scenes of benchmarks/scenes.py of 1,025 to 4,000 boxes
    PAIR_COST = 340  # of float32
    GRID_COST = 10000000
    BOX_COST = 60000  # in a grid

cdef enum:  # picoseconds per box
    SORT_COST = 10000  # nms, text lines, 100 boxes
    SUPPRESS_COST = 100000  # nms, uniform, 1000 boxes
    COPY_COST = 2000  # nms, uniform, 20,000 boxes, on two threads
    COLLECT_COST = 5000


cdef struct _Workspace:
    # A box's rank is its index in the order of scores; its position is that in the order of classes, then scores.
    mmk_item *items     # for sorting
    mmk_item *spare
    const mmk_item *order  # the one of them that is sorted
    int64_t *sources    # index of the input, by rank
    int64_t *ranks      # by position; NULL without classes, where positions are ranks
    int64_t *boxes      # index of the input, by position
    int32_t *starts     # positions where the classes begin, and the end of the last
    int32_t *flags      # 1: suppressed, by position
    uint8_t *kept       # by rank
    char *suppression   # scratch memory of mmk_suppress, shared out by the size of each class
    int64_t *indices    # the results
    void *detections
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[BOXES].shape[0]
    cdef size_t shared, sort_end, suppression_end
    w.sources = <int64_t *>take(&address, n * sizeof(int64_t))
    w.ranks = NULL
    w.boxes = w.sources
    if call.inputs[CLASSES].type != MMK_ABSENT:
        w.ranks = <int64_t *>take(&address, n * sizeof(int64_t))
        w.boxes = <int64_t *>take(&address, n * sizeof(int64_t))
    w.starts = <int32_t *>take(&address, (n + 1) * sizeof(int32_t))
    w.flags = <int32_t *>take(&address, n * sizeof(int32_t))
    w.kept = <uint8_t *>take(&address, n)
    shared = address  # by the phases, each of which has what follows for itself
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    sort_end = address
    address = shared
    w.suppression = <char *>take(&address, n * mmk_suppress_size(call.inputs[BOXES].type))
    suppression_end = address
    address = shared
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, n * 5 * element_size(call.inputs[BOXES].type))
    w.size = max(max(sort_end, suppression_end), address) - <size_t>call.scratch
    return w


# ---- one class -------------------------------------------------------------------------------------------------------

cdef simd_void _compare(const real *planes, ptrdiff_t stride, ptrdiff_t box, ptrdiff_t begin, ptrdiff_t end,
                        real threshold, real offset, int32_t *flags, ptrdiff_t *suppressed) noexcept nogil:
    """Flags the boxes of [begin, end) that `box` suppresses, and counts the flags among them."""
    cdef int32_t total = 0
    cdef ptrdiff_t i
    for i in range(begin, end):
        flags[i] |= plane_iou(planes, stride, box, i, offset) > threshold
        total += flags[i]
    suppressed[0] = total


cdef bint _few_remain(ptrdiff_t visited, ptrdiff_t kept, ptrdiff_t count, ptrdiff_t max_kept,
                      size_t width) noexcept nogil:
    """Returns whether a grid takes longer than comparing all pairs, if as many of the rest are kept as so far.

    It does if boxes of similar scores are neighbours, which suppress few of all boxes, but most of the next ones.
    """
    cdef double left = count - visited, kept_share = <double>kept / visited, left_to_keep = max_kept - kept
    cdef double pair_cost = <double>PAIR_COST * width / sizeof(float)
    return (pair_cost * left * min(left * kept_share, left_to_keep)
            < GRID_COST + BOX_COST * min(left, left_to_keep / kept_share))


cdef ptrdiff_t _probes(const real *planes, ptrdiff_t count, real threshold, real offset, ptrdiff_t max_kept,
                       int32_t *flags) noexcept nogil:
    """Returns after how many kept boxes comparing all pairs seems to pay, judged by a part of the boxes; 0: never."""
    cdef ptrdiff_t end = count // SAMPLED_SHARE, probes = PAIRWISE_PROBES, kept = 0, suppressed = 0, i
    if end < MIN_SAMPLED_BOXES:
        return probes  # comparing the first boxes with all others takes little time
    for i in range(end):
        if not flags[i]:
            if kept == probes:
                if (suppressed * MAX_LEFT_PER_SUPPRESSED >= kept * (end - i)
                        or _few_remain(i, kept, count, max_kept, sizeof(real))):
                    return probes
                if probes == MAX_PROBES:
                    return 0
                probes *= 2
            kept += 1
            _compare(planes, count, i, i + 1, end, threshold, offset, flags, &suppressed)
    return probes


cdef ptrdiff_t _suppress_by_pairs(mmk_call *call, const real *planes, ptrdiff_t stride, ptrdiff_t begin, ptrdiff_t end,
                                  real threshold, real offset, ptrdiff_t max_kept, ptrdiff_t probes,
                                  int32_t *flags) noexcept nogil:
    """Compares the pairs of boxes before `end`, of which those before `begin` are decided.

    Returns the position where that no longer pays, judged once `probes` boxes are kept, or `end`; -1 if the call is
    stopped.
    """
    cdef ptrdiff_t i, kept = 0, suppressed = 0
    cdef int64_t comparisons = 0, uncounted = 0
    memset(flags + begin, 0, (end - begin) * sizeof(int32_t))
    for i in range(begin):
        if not flags[i]:
            kept += 1
            _compare(planes, stride, i, begin, end, threshold, offset, flags, &suppressed)
            uncounted += end - begin
    for i in range(begin, end):
        if kept >= max_kept:
            flags[i] = 1
        elif not flags[i]:
            if (kept >= probes
                    and suppressed * MAX_LEFT_PER_SUPPRESSED < kept * (end - i)
                    and not _few_remain(i, kept, end, max_kept, sizeof(real))):
                return i
            kept += 1
            if i + 1 == end:  # most classes of a large vocabulary have a few boxes
                break
            _compare(planes, stride, i, i + 1, end, threshold, offset, flags, &suppressed)
            uncounted += end - i
            if not may_continue(call, &comparisons, &uncounted, stride):
                return -1
    return end


cdef void _keep_first(int32_t *flags, ptrdiff_t count, ptrdiff_t max_kept) noexcept nogil:
    """Flags all boxes after the first `max_kept` that are not flagged."""
    cdef ptrdiff_t kept = 0, i
    for i in range(count):
        flags[i] |= kept >= max_kept
        kept += not flags[i]


cdef ptrdiff_t _count_kept(const int32_t *flags, ptrdiff_t begin, ptrdiff_t end) noexcept nogil:
    cdef ptrdiff_t kept = 0, i
    for i in range(begin, end):
        kept += not flags[i]
    return kept


cdef double _suppressed_share(const int32_t *flags, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t kept) noexcept nogil:
    """Returns the share of the boxes [begin, end) that each of as many kept ones has suppressed, on average."""
    return (1 - <double>_count_kept(flags, begin, end) / (end - begin)) / kept


cdef int _suppress_by_grid(mmk_call *call, Grid *grid, ptrdiff_t max_kept, double share, char *memory) noexcept nogil:
    """Flags the suppressed boxes from rank `begin` on, and all after `max_kept` kept ones; -1 if it is stopped.

    A kept box seems to suppress such a share of those after it.
    """
    cdef ptrdiff_t count = grid.stride, left = count - grid.begin, kept
    cdef double to_visit
    grid.end = count
    if max_kept < count:
        left = max_kept - _count_kept(grid.state.flags, 0, grid.begin)
        to_visit = expm1(share * left) / share if share > 0 else left
        grid.end = <ptrdiff_t>min(<double>count, grid.begin + min(1.25 * to_visit, MAX_FIRST * <double>left))
    while True:
        choose_levels(call, grid, memory)
        if suppress_by_grid(call, grid, left, memory):
            return -1
        if grid.end == count:
            break
        kept = _count_kept(grid.state.flags, grid.begin, grid.end)
        if kept >= left:
            break
        kept = max(kept, (grid.end - grid.begin) // MAX_GROWTH)
        grid.end = min(count, grid.end + (grid.end - grid.begin) * left // kept)
    if max_kept < count:
        _keep_first(grid.state.flags, count, max_kept)
    return 0


cdef int _suppress_many(mmk_call *call, int type, const real *boxes, const int64_t *order, ptrdiff_t begin,
                        ptrdiff_t count, real threshold, real offset, ptrdiff_t max_kept, int32_t *flags,
                        void *scratch) noexcept nogil:
    """Flags the suppressed ones of more boxes than are always compared in pairs; -1 if the call is stopped.

    Those before `begin` are decided.
    """
    cdef real *planes = <real *>scratch
    cdef ptrdiff_t probes = count if threshold < 0 else PAIRWISE_PROBES
    cdef double share
    cdef Grid grid
    grid.type = type
    grid.threshold = threshold
    grid.offset = offset
    grid.boxes = boxes
    grid.box_stride = 4
    grid.order = order
    grid.by_rank = planes
    grid.stride = count
    grid.state.flags = flags
    mmk_parallel(call, count, 1e-3 * GATHER_COST, pack_by_rank, &grid)
    if begin == 0:
        memset(flags, 0, count * sizeof(int32_t))
    if threshold >= 0 and begin == 0:
        probes = _probes(planes, count, threshold, offset, max_kept, flags)
    if probes:
        begin = _suppress_by_pairs(call, planes, count, begin, count, threshold, offset, max_kept, probes, flags)
        if begin < 0 or begin == count:
            return -1 if begin < 0 else 0
        share = _suppressed_share(flags, begin, count, _count_kept(flags, 0, begin))
    else:
        share = _suppressed_share(flags, 0, count // SAMPLED_SHARE, MAX_PROBES)
    grid.begin = begin
    return _suppress_by_grid(call, &grid, max_kept, share, <char *>(planes + BOX_NUMBERS * count))


cdef ptrdiff_t _suppress_first(mmk_call *call, const real *boxes, const int64_t *order, ptrdiff_t count,
                               real threshold, real offset, ptrdiff_t max_kept, int32_t *flags,
                               real *planes) noexcept nogil:
    """Decides about as many first boxes as it takes to keep `max_kept`, if that seems to be less than half of all.

    Returns the number of decided boxes, or -1 if the call is stopped.
    """
    cdef ptrdiff_t begin = 0, end = max_kept + max_kept // 4, kept, i  # enough if few are suppressed
    while end < count // 2:
        for i in range(begin, end):
            pack_box(boxes + 4 * order[i], offset, planes, count, i)
        if _suppress_by_pairs(call, planes, count, begin, end, threshold, offset, max_kept, end, flags) < 0:
            return -1
        begin = end
        kept = _count_kept(flags, 0, end)
        if kept == max_kept:
            for i in range(end, count):
                flags[i] = 1
            return count
        end = max(2 * end, end * max_kept // kept * 9 // 8)
    return begin


cdef int _suppress(mmk_call *call, int type, const real *boxes, const int64_t *order, ptrdiff_t count, real threshold,
                   real offset, int64_t max_kept, int32_t *flags, void *scratch) noexcept nogil:
    """Flags the suppressed ones of `count` boxes in order of descending score; returns -1 if the call is stopped."""
    cdef real *planes = <real *>scratch
    cdef ptrdiff_t begin = 0, i
    if count == 1:  # as most classes of a large vocabulary
        flags[0] = 0
        return 0
    if max_kept <= 0:
        max_kept = count
    if threshold >= 1:  # no IoU is above it
        memset(flags, 0, count * sizeof(int32_t))
        _keep_first(flags, count, max_kept)
        return 0
    if max_kept <= MAX_WANTED:
        begin = _suppress_first(call, boxes, order, count, threshold, offset, max_kept, flags, planes)
        if begin < 0 or begin == count:
            return -1 if begin < 0 else 0
    if count > PAIRWISE_MAX_BOXES:
        return _suppress_many(call, type, boxes, order, begin, count, threshold, offset, max_kept, flags, scratch)
    for i in range(begin, count):
        pack_box(boxes + 4 * order[i], offset, planes, count, i)
    if _suppress_by_pairs(call, planes, count, begin, count, threshold, offset, max_kept, count, flags) < 0:
        return -1
    return 0


cdef public size_t mmk_suppress_size(int type) noexcept nogil:
    return BOX_NUMBERS * element_size(type) + grid_size(type)  # planes and grid


cdef public int mmk_suppress(mmk_call *call, int type, const void *boxes, const int64_t *order, int64_t count,
                             double threshold, double offset, int64_t max_kept, int32_t *flags,
                             void *scratch) noexcept nogil:
    if type == MMK_FLOAT32:
        return _suppress(call, type, <const float *>boxes, order, count, <float>threshold, <float>offset, max_kept,
                         flags, scratch)
    return _suppress(call, type, <const double *>boxes, order, count, threshold, offset, max_kept, flags, scratch)


# ---- phases ----------------------------------------------------------------------------------------------------------

cdef void _copy_sources(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const _Workspace *w = <const _Workspace *>argument
    cdef int64_t rank
    for rank in range(begin, end):
        w.sources[rank] = w.order[rank].index


cdef int64_t _rank(mmk_call *call, _Workspace *w) noexcept nogil:
    """Sorts the boxes by score; returns how many are above the threshold."""
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef double threshold = call.attributes[SCORE_THRESHOLD].f, score
    cdef int64_t rank
    w.order = mmk_order(call, scores.data, scores.type, w.items, w.spare, scores.size)
    mmk_parallel(call, scores.size, 1e-3 * COPY_COST, _copy_sources, w)
    if not threshold > 0:
        return scores.size
    for rank in range(scores.size):
        if scores.type == MMK_FLOAT32:
            score = (<const float *>scores.data)[w.sources[rank]]
            threshold = <float>threshold
        else:
            score = (<const double *>scores.data)[w.sources[rank]]
        if not score > threshold:  # nor are all later ones, NaN among them
            return rank
    return scores.size


cdef int64_t _sort(mmk_call *call, _Workspace *w) noexcept nogil:
    """Sorts the boxes by score and then by class; returns the number of classes."""
    cdef int64_t count = _rank(call, w), classes, position
    cdef const mmk_item *items
    if w.ranks == NULL:
        w.starts[0] = 0
        w.starts[1] = <int32_t>count
        return 1 if count else 0
    items = sort_by_class(call, <const int64_t *>call.inputs[CLASSES].data, w.sources, count, w.items, w.spare,
                          w.starts, &classes)
    for position in range(count):
        w.ranks[position] = items[position].index
        w.boxes[position] = w.sources[items[position].index]
    return classes


cdef void _suppress_classes(mmk_call *call, const _Workspace *w, int64_t begin, int64_t end) noexcept nogil:
    cdef const mmk_tensor *boxes = &call.inputs[BOXES]
    cdef size_t size = mmk_suppress_size(boxes.type)
    cdef int64_t label, first, position
    for label in range(begin, end):
        first = w.starts[label]
        if mmk_suppress(call, boxes.type, boxes.data, w.boxes + first, w.starts[label + 1] - first,
                        call.attributes[IOU_THRESHOLD].f, call.attributes[OFFSET].i, call.attributes[MAX_NUM].i,
                        w.flags + first, w.suppression + first * size):
            return
        if w.ranks == NULL:
            for position in range(w.starts[label + 1]):
                w.kept[position] = not w.flags[position]
        else:
            for position in range(first, w.starts[label + 1]):
                w.kept[w.ranks[position]] = not w.flags[position]


cdef void _copy_detections(const int64_t *indices, const real *boxes, const real *scores, real *detections,
                           int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t i, k
    for i in range(begin, end):
        for k in range(4):
            detections[5 * i + k] = boxes[4 * indices[i] + k]
        detections[5 * i + 4] = scores[indices[i]]


cdef void _copy_range(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const _Workspace *w = <const _Workspace *>argument
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    if call.inputs[BOXES].type == MMK_FLOAT32:
        _copy_detections(w.indices, <const float *>boxes, <const float *>scores, <float *>w.detections, begin, end)
    else:
        _copy_detections(w.indices, <const double *>boxes, <const double *>scores, <double *>w.detections, begin, end)


cdef void _collect(mmk_call *call, _Workspace *w) noexcept nogil:
    cdef int64_t count = w.starts[call.work[SUPPRESS]], max_kept = call.attributes[MAX_NUM].i, kept = 0, rank
    cdef int64_t[2] shape
    for rank in range(count):
        w.indices[kept] = w.sources[rank]
        kept += w.kept[rank]
    shape[0] = min(kept, max_kept) if max_kept > 0 else kept
    shape[1] = 5
    mmk_parallel(call, shape[0], 1e-3 * COLLECT_COST, _copy_range, w)
    mmk_set_output(call, 0, MMK_INT64, 1, shape)
    mmk_set_output(call, 1, call.inputs[BOXES].type, 2, shape)
    call.outputs[0].data = w.indices
    call.outputs[1].data = w.detections


cdef public int mmk_nms_prepare(mmk_call *call) noexcept nogil:
    cdef int64_t count
    cdef int64_t[2] shape
    if mmk_check_shape(call, BOXES, "boxes", "[N, 4]") or mmk_check_shape(call, SCORES, "scores", "[N]"):
        return -1
    if call.inputs[CLASSES].type != MMK_ABSENT and mmk_check_shape(call, CLASSES, "idxs", "[N]"):
        return -1
    count = call.inputs[BOXES].shape[0]
    if check_threshold(call, "iou_threshold", call.attributes[IOU_THRESHOLD].f) or check_count(call, count):
        return -1
    call.late_outputs = True
    shape[0] = 0
    shape[1] = 5
    if count == 0:
        return mmk_set_output(call, 0, MMK_INT64, 1, shape) or mmk_set_output(
            call, 1, call.inputs[BOXES].type, 2, shape)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, 1, 1e-3 * SORT_COST * count)
    mmk_add_phase(call, 1, 1e-3 * SUPPRESS_COST * count)  # the SORT phase divides it, when classes are known
    mmk_add_phase(call, 1, 1e-3 * COLLECT_COST * count)
    return 0


cdef public void mmk_nms_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    if phase == SORT:
        mmk_ask_for_large_pages(call.scratch, call.scratch_size)
        call.work[SUPPRESS] = _sort(call, &w)
        call.nanoseconds[SUPPRESS] /= call.work[SUPPRESS]
    elif phase == SUPPRESS:
        _suppress_classes(call, &w, begin, end)
    else:
        _collect(call, &w)
