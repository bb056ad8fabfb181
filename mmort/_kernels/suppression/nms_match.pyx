"""nms_match and nms_match_pairs: greedy suppression that records which box suppressed which.

nms_match takes one list of boxes (MMCV's function of that name), nms_match_pairs one for each image and class
(MMDeploy's NMSMatch, which adds 1e-10 to the union).
"""
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS, intersection, pack_box, plane_intersection
from mmort._kernels.shared.kernels cimport mmk_item, mmk_order, mmk_sort
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.nms_grid cimport (LANES, NO_BUCKET, Grid, Lookup, choose_levels, fill_grid, grid_size,
                                                  look_up, next_range)
from mmort._kernels.suppression.suppression cimport check_compared, check_threshold, may_continue

cdef enum:
    NMS_MATCH_IOU_THRESHOLD  # attribute 0

cdef enum:
    BOXES  # inputs of nms_match_pairs
    SCORES
    IOU_THRESHOLD
    SCORE_THRESHOLD

cdef enum:
    MATCH  # phases of nms_match_pairs
    COLLECT

cdef enum:  # nms_match, clusters, 1000 to 20,000 boxes of benchmarks/scenes.py
    PAIRWISE_MAX_BOXES = 1024  # up to which comparing all pairs is faster than a grid
    PAIRWISE_PROBES = 24  # boxes compared with all others, a tenth of what a grid takes, before judging if that pays
    MAX_LEFT_PER_MEMBER = 200  # it pays if a kept box takes one in as many of the remaining boxes
    BLOCK = 64  # boxes compared before those that join are listed

cdef enum:  # picoseconds per box
    MATCH_COST = 10000  # nms_match, clustered, 2000 boxes; other inputs take ten times as long


cdef struct _Workspace:
    # Each array has an entry for each box of each list.
    mmk_item *items
    mmk_item *spare
    void *scores
    void *planes       # x1, y1, x2, y2, area, by descending score
    int32_t *taken     # 1: belongs to a keeper
    int64_t *keepers   # of each pair: the kept box, which may be the member itself
    int64_t *members   # of each pair: a box, each once
    int64_t *rows      # of a result
    int64_t *order     # indices by descending score
    mmk_item *hits     # members of a keeper
    mmk_item *spare_hits
    char *grid         # its memory
    size_t size


cdef _Workspace _workspace(const mmk_call *call, int type, size_t n, size_t row) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.scores = take(&address, n * element_size(type))
    w.planes = take(&address, BOX_NUMBERS * n * element_size(type))
    w.taken = <int32_t *>take(&address, n * sizeof(int32_t))
    w.keepers = <int64_t *>take(&address, n * sizeof(int64_t))
    w.members = <int64_t *>take(&address, n * sizeof(int64_t))
    w.rows = <int64_t *>take(&address, (n * row + 1) * sizeof(int64_t))
    w.order = <int64_t *>take(&address, n * sizeof(int64_t))
    w.hits = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare_hits = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.grid = <char *>take(&address, n * grid_size(type))
    w.size = address - <size_t>call.scratch
    return w


cdef inline bint _reaches(real common, real area_a, real area_b, real threshold, double guard) noexcept nogil:
    """Returns whether IoU reaches the threshold; with a guard it is divided in double precision, as in MMDeploy."""
    cdef real union_area = (area_a + area_b) - common
    if guard == 0:
        return common / union_area >= threshold
    return <real>(<double>common / (<double>union_area + guard)) >= threshold


cdef simd_void _take_members(const real *planes, ptrdiff_t count, ptrdiff_t box, real threshold, double guard,
                             int32_t *taken, mmk_item *members, ptrdiff_t *number) noexcept nogil:
    """Lists the ranks of the boxes after a box that join it, and takes them."""
    cdef const real *area = planes + 4 * count
    cdef int32_t[BLOCK] joins
    cdef int32_t any_joins
    cdef ptrdiff_t begin = box + 1, size, i
    number[0] = 0
    while begin < count:
        size = min(<ptrdiff_t>BLOCK, count - begin)
        any_joins = 0
        if guard == 0:  # loops of their own, for vectors
            for i in range(size):
                joins[i] = _reaches(plane_intersection(planes, count, box, begin + i, <real>0), area[box],
                                    area[begin + i], threshold, 0) & (taken[begin + i] == 0)
                any_joins |= joins[i]
        else:
            for i in range(size):
                joins[i] = _reaches(plane_intersection(planes, count, box, begin + i, <real>0), area[box],
                                    area[begin + i], threshold, guard) & (taken[begin + i] == 0)
                any_joins |= joins[i]
        for i in range(size if any_joins else 0):
            if joins[i]:
                taken[begin + i] = 1
                members[number[0]].key = begin + i
                number[0] += 1
        begin += BLOCK


cdef simd_void _find_members(const Grid *grid, const real *planes, ptrdiff_t entry, real threshold, double guard,
                             int32_t *taken, mmk_item *members, ptrdiff_t *number, int64_t *uncounted) noexcept nogil:
    """Lists the ranks of the boxes that join an entry's box, and takes them."""
    cdef ptrdiff_t count = grid.stride, begin = 0, end = 0, i, k
    cdef real[5] box
    cdef int32_t[LANES] near
    cdef int32_t any_near, rank
    cdef real common, low = <real>(threshold * 0.99999)
    cdef Lookup lookup = look_up(grid, planes, entry, entry < grid.table.regular)
    number[0] = 0
    for k in range(5):
        box[k] = planes[k * count + entry]
    while next_range(grid, &lookup, &begin, &end):
        uncounted[0] += end - begin + 1
        i = begin
        while i < end:
            any_near = entry >= grid.table.regular or end > grid.table.regular  # whose products may be denormal
            for k in range(LANES):
                common = intersection(planes[i + k], planes[count + i + k], planes[2 * count + i + k],
                                      planes[3 * count + i + k], box[0], box[1], box[2], box[3], <real>0)
                near[k] = common >= low * ((planes[4 * count + i + k] + box[4]) - common)
                any_near |= near[k]
            for k in range(min(<ptrdiff_t>LANES, end - i) if any_near else 0):
                rank = grid.table.ranks[i + k]
                common = intersection(planes[i + k], planes[count + i + k], planes[2 * count + i + k],
                                      planes[3 * count + i + k], box[0], box[1], box[2], box[3], <real>0)
                if not taken[rank] and _reaches(common, box[4], planes[4 * count + i + k], threshold, guard):
                    taken[rank] = 1
                    members[number[0]].key = rank
                    number[0] += 1
            i += LANES


cdef void _match_by_grid(mmk_call *call, Grid *grid, char *memory, real threshold, double guard, mmk_item *hits,
                         mmk_item *spare, ptrdiff_t pairs, int64_t *keepers, int64_t *members) noexcept nogil:
    """Appends the pairs of the boxes from rank `begin` on that are not taken."""
    cdef ptrdiff_t rank, number, i
    cdef int64_t uncounted = 0
    cdef int32_t *taken = grid.state.flags
    cdef const mmk_item *sorted_hits
    choose_levels(call, grid, memory)
    fill_grid(call, grid, True, memory)
    for rank in range(grid.begin, grid.end):
        if taken[rank]:
            continue
        taken[rank] = 1
        keepers[pairs] = members[pairs] = grid.order[rank]
        pairs += 1
        if grid.table.keys[rank] == NO_BUCKET:
            continue
        _find_members(grid, <const real *>grid.table.planes, grid.table.keys[rank], threshold, guard, taken, hits,
                      &number, &uncounted)
        sorted_hits = mmk_sort(call, hits, spare, number)
        for i in range(number):
            keepers[pairs] = grid.order[rank]
            members[pairs] = grid.order[sorted_hits[i].key]
            pairs += 1
        if not may_continue(call, &grid.state.comparisons, &uncounted, grid.stride):
            return


cdef void _match(mmk_call *call, const _Workspace *w, ptrdiff_t start, ptrdiff_t count, const real *boxes,
                 ptrdiff_t stride, const real *scores, real threshold, double guard) noexcept nogil:
    """Writes the pairs of a list of `count` boxes, whose entries begin at `start`; boxes have `stride` numbers each."""
    cdef real *planes = <real *>w.planes + BOX_NUMBERS * start
    cdef mmk_item *hits = w.hits + start
    cdef int32_t *taken = w.taken + start
    cdef int64_t *keepers = w.keepers + start
    cdef int64_t *members = w.members + start
    cdef int type = MMK_FLOAT32 if sizeof(real) == sizeof(float) else MMK_FLOAT64
    cdef mmk_item *items = mmk_order(call, scores, type, w.items + start, w.spare + start, count)
    cdef ptrdiff_t kept = 0, pairs = 0, number, i, j
    cdef int64_t comparisons = 0, uncounted = 0
    cdef Grid grid
    for i in range(count):
        pack_box(boxes + stride * items[i].index, <real>0, planes, count, i)
        taken[i] = 0
    for i in range(count):
        if taken[i]:
            continue
        if (count - i > PAIRWISE_MAX_BOXES and kept >= PAIRWISE_PROBES and threshold > 0
                and (pairs - kept) * MAX_LEFT_PER_MEMBER < kept * (count - i)):
            grid.type = type
            grid.threshold = threshold
            grid.offset = 0
            grid.boxes = boxes
            grid.box_stride = stride
            grid.order = w.order + start
            for j in range(count):
                w.order[start + j] = items[j].index
            grid.by_rank = planes
            grid.stride = count
            grid.state.flags = taken
            grid.begin = i
            grid.end = count
            _match_by_grid(call, &grid, w.grid + start * grid_size(type), threshold, guard, hits,
                           w.spare_hits + start, pairs, keepers, members)
            return
        uncounted += count - i
        if not may_continue(call, &comparisons, &uncounted, count):
            return
        kept += 1
        keepers[pairs] = members[pairs] = items[i].index
        pairs += 1
        _take_members(planes, count, i, threshold, guard, taken, hits, &number)
        for j in range(number):
            keepers[pairs] = items[i].index
            members[pairs] = items[hits[j].key].index
            pairs += 1


# ---- nms_match -------------------------------------------------------------------------------------------------------

cdef void _nms_match(mmk_call *call, const real *detections) noexcept nogil:
    cdef ptrdiff_t count = call.inputs[0].shape[0], i
    cdef _Workspace w = _workspace(call, call.inputs[0].type, count, 1)
    cdef real *scores = <real *>w.scores
    cdef int64_t[1] shape
    for i in range(count):
        scores[i] = detections[5 * i + 4]
    _match(call, &w, 0, count, detections, 5, scores, <real>call.attributes[NMS_MATCH_IOU_THRESHOLD].f, 0)
    shape[0] = count
    mmk_set_output(call, 0, MMK_INT64, 1, shape)
    call.outputs[0].data = w.members
    shape[0] = 0
    for i in range(count):
        if w.keepers[i] == w.members[i]:
            w.rows[shape[0]] = i
            shape[0] += 1
    w.rows[shape[0]] = count
    shape[0] += 1
    mmk_set_output(call, 1, MMK_INT64, 1, shape)
    call.outputs[1].data = w.rows


cdef public int mmk_nms_match_prepare(mmk_call *call) noexcept nogil:
    cdef int64_t count
    if mmk_check_shape(call, 0, "dets", "[N, 5]"):
        return -1
    count = call.inputs[0].shape[0]
    if (check_threshold(call, "iou_threshold", call.attributes[NMS_MATCH_IOU_THRESHOLD].f)
            or check_compared(call, count)):
        return -1
    call.late_outputs = True
    call.scratch_size = _workspace(call, call.inputs[0].type, count, 1).size
    mmk_add_phase(call, 1, 1.0)
    return 0


cdef public void mmk_nms_match_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    if call.inputs[0].type == MMK_FLOAT32:
        _nms_match(call, <const float *>call.inputs[0].data)
    else:
        _nms_match(call, <const double *>call.inputs[0].data)


# ---- nms_match_pairs -------------------------------------------------------------------------------------------------

cdef void _match_lists(mmk_call *call, const _Workspace *w, int64_t begin, int64_t end, const real *boxes,
                       const real *scores, const real *threshold) noexcept nogil:
    cdef int64_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], list
    for list in range(begin, end):
        _match(call, w, list * count, count, boxes + list // classes * count * 4, 4, scores + list * count,
               threshold[0], 1e-10)


cdef void _collect(mmk_call *call, const _Workspace *w, const real *scores, const real *threshold) noexcept nogil:
    """Writes rows of image, class and pair, for pairs of two boxes whose keeper's score is above the threshold."""
    cdef int64_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], list, i
    cdef int64_t *row = w.rows
    cdef int64_t[2] shape
    for list in range(call.inputs[SCORES].shape[0] * classes):
        for i in range(list * count, (list + 1) * count):
            if w.keepers[i] != w.members[i] and scores[list * count + w.keepers[i]] > threshold[0]:
                row[0] = list // classes
                row[1] = list % classes
                row[2] = w.keepers[i]
                row[3] = w.members[i]
                row += 4
    shape[0] = (row - w.rows) // 4
    shape[1] = 4
    mmk_set_output(call, 0, MMK_INT64, 2, shape)
    call.outputs[0].data = w.rows


cdef public int mmk_nms_match_pairs_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef int64_t[2] shape
    if mmk_check_shape(call, SCORES, "scores", "[B, C, K]") or mmk_check_shape(call, BOXES, "boxes", "[B, K, 4]"):
        return -1
    if not call.inputs[IOU_THRESHOLD].size:
        return mmk_fail(call, "iou_threshold must have at least one element, got none")
    if not call.inputs[SCORE_THRESHOLD].size:
        return mmk_fail(call, "score_threshold must have at least one element, got none")
    if check_compared(call, scores.shape[2]):
        return -1
    call.late_outputs = True
    if scores.size == 0:
        shape[0] = 0
        shape[1] = 4
        return mmk_set_output(call, 0, MMK_INT64, 2, shape)
    call.scratch_size = _workspace(call, scores.type, scores.size, 4).size
    mmk_add_phase(call, scores.shape[0] * scores.shape[1], 1e-3 * MATCH_COST * scores.shape[2])
    mmk_add_phase(call, 1, 1.0)
    return 0


cdef public void mmk_nms_match_pairs_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                         void *scratch) noexcept nogil:
    cdef mmk_tensor *inputs = call.inputs
    cdef _Workspace w = _workspace(call, inputs[SCORES].type, inputs[SCORES].size, 4)
    if inputs[SCORES].type == MMK_FLOAT32:
        if phase == MATCH:
            _match_lists(call, &w, begin, end, <const float *>inputs[BOXES].data, <const float *>inputs[SCORES].data,
                         <const float *>inputs[IOU_THRESHOLD].data)
        else:
            _collect(call, &w, <const float *>inputs[SCORES].data, <const float *>inputs[SCORE_THRESHOLD].data)
    elif phase == MATCH:
        _match_lists(call, &w, begin, end, <const double *>inputs[BOXES].data, <const double *>inputs[SCORES].data,
                     <const double *>inputs[IOU_THRESHOLD].data)
    else:
        _collect(call, &w, <const double *>inputs[SCORES].data, <const double *>inputs[SCORE_THRESHOLD].data)
