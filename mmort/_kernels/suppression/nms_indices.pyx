"""nms_indices: greedy non-maximum suppression of corner boxes, image by image and class by class.

This is ONNX's NonMaxSuppression, as ONNX Runtime computes it: corners in any order, or centres and sizes; rows of
image, class and box.
"""
from libc.math cimport INFINITY
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.shared.kernels cimport mmk_item, mmk_order, mmk_suppress, mmk_suppress_size
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.listed cimport list_rows, set_rows
from mmort._kernels.suppression.suppression cimport check_count, check_threshold

cdef enum:  # inputs
    BOXES
    SCORES

cdef enum:  # attributes
    IOU_THRESHOLD
    SCORE_THRESHOLD
    MAX_PER_CLASS
    CENTER_POINT_BOX

cdef enum:  # phases
    SUPPRESS
    LIST

cdef enum:
    BLOCK = 64  # scores
    # If few boxes are to be kept, only the best are sorted.  They are told by a sample of the scores.
    CANDIDATES_PER_KEPT = 4
    SAMPLE = 128
    MIN_CUT = 1024  # boxes

cdef enum:  # picoseconds per box
    SUPPRESS_COST = 50000  # per class as well; a fiftieth if few scores are above the threshold
    LIST_COST = 5000


cdef struct _Workspace:
    int32_t *boxes    # kept boxes, by image and class
    int64_t *counts   # of kept boxes, by image and class
    int64_t *indices  # the result
    size_t max_kept   # boxes of an image and class
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef size_t address = <size_t>call.scratch, lists = scores.shape[0] * scores.shape[1]
    cdef int64_t limit = call.attributes[MAX_PER_CLASS].i
    w.max_kept = min(scores.shape[2], limit) if limit > 0 else scores.shape[2]
    w.boxes = <int32_t *>take(&address, lists * w.max_kept * sizeof(int32_t))
    w.counts = <int64_t *>take(&address, lists * sizeof(int64_t))
    w.indices = <int64_t *>take(&address, lists * w.max_kept * 3 * sizeof(int64_t))
    w.size = address - <size_t>call.scratch
    return w


cdef struct _Pool:  # the boxes of a class on their way through suppression
    mmk_item *items
    mmk_item *spare
    void *scores          # of the candidates
    int32_t *boxes        # of a class, with scores above the threshold
    int32_t *candidates   # those of them that suppression starts with
    int32_t *sorted       # the same by descending score
    void *corners         # of these: x1 <= x2, y1 <= y2 unless the input has centres
    int64_t *order        # 0, 1, 2, ...
    int32_t *flags
    void *suppression
    size_t size


cdef _Pool _pool(const mmk_call *call, const void *scratch) noexcept nogil:
    cdef _Pool pool
    cdef size_t address = <size_t>scratch, count = call.inputs[SCORES].shape[2]
    cdef int type = call.inputs[SCORES].type
    pool.items = <mmk_item *>take(&address, count * sizeof(mmk_item))
    pool.spare = <mmk_item *>take(&address, count * sizeof(mmk_item))
    pool.scores = take(&address, count * element_size(type))
    pool.boxes = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.candidates = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.sorted = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.corners = take(&address, 4 * count * element_size(type))
    pool.order = <int64_t *>take(&address, count * sizeof(int64_t))
    pool.flags = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.suppression = take(&address, count * mmk_suppress_size(type))
    pool.size = address - <size_t>scratch
    return pool


cdef void _convert(const real *boxes, const int32_t *chosen, ptrdiff_t count, bint has_centers,
                   real *corners) noexcept nogil:
    """Writes the corners of chosen boxes."""
    cdef const real *box
    cdef real *corner
    cdef real half
    cdef ptrdiff_t i, axis
    for i in range(count):
        box = boxes + 4 * chosen[i]
        corner = corners + 4 * i
        for axis in range(2):
            if has_centers:
                half = box[axis + 2] / <real>2
                corner[axis] = box[axis] - half
                corner[axis + 2] = box[axis] + half
            else:
                corner[axis] = box[axis + 2] if box[axis + 2] < box[axis] else box[axis]
                corner[axis + 2] = box[axis] if box[axis + 2] < box[axis] else box[axis + 2]


cdef simd_void _list_above(const real *scores, ptrdiff_t count, real threshold, int32_t *boxes,
                           ptrdiff_t *listed) noexcept nogil:
    """Lists the boxes with scores above the threshold; skips blocks without any, of which there are many."""
    cdef ptrdiff_t block, end, i, members = 0
    cdef int32_t above
    for block in range((count + BLOCK - 1) // BLOCK):
        end = min(count, (block + 1) * BLOCK)
        above = 0
        for i in range(block * BLOCK, end):
            above += scores[i] > threshold
        if above:
            for i in range(block * BLOCK, end):
                if scores[i] > threshold:
                    boxes[members] = <int32_t>i
                    members += 1
    listed[0] = members


cdef real _cut(mmk_call *call, const _Pool *pool, const real *scores, real *sample, ptrdiff_t members,
               ptrdiff_t wanted) noexcept nogil:
    """Returns a score that a little more than `wanted` of the pool's boxes reach, judged by a sample of them."""
    cdef int type = MMK_FLOAT32 if sizeof(real) == sizeof(float) else MMK_FLOAT64
    cdef ptrdiff_t i
    for i in range(SAMPLE):
        sample[i] = scores[pool.boxes[i * members // SAMPLE]]
    return sample[mmk_order(call, sample, type, pool.items, pool.spare, SAMPLE)[wanted * SAMPLE // members + 1].index]


cdef ptrdiff_t _suppress_pool(mmk_call *call, const _Workspace *w, const _Pool *pool, const real *boxes,
                              const real *scores, real *selected, ptrdiff_t members, bint cuts,
                              int32_t *kept_boxes) noexcept nogil:
    """Suppresses among the pool's boxes; with `cuts` only among the best, which are most likely enough.

    Returns how many are kept, and -1 if the call is stopped.
    """
    cdef int type = call.inputs[BOXES].type
    cdef real cut = 0
    cdef ptrdiff_t count = 0, kept = 0, i
    cdef const mmk_item *items
    if cuts:
        cut = _cut(call, pool, scores, selected, members, CANDIDATES_PER_KEPT * w.max_kept)
    for i in range(members):
        if not cuts or scores[pool.boxes[i]] >= cut:
            selected[count] = scores[pool.boxes[i]]
            pool.candidates[count] = pool.boxes[i]
            count += 1
    items = mmk_order(call, selected, type, pool.items, pool.spare, count)
    for i in range(count):
        pool.sorted[i] = pool.candidates[items[i].index]
        pool.order[i] = i
    _convert(boxes, pool.sorted, count, call.attributes[CENTER_POINT_BOX].i, <real *>pool.corners)
    if mmk_suppress(call, type, pool.corners, pool.order, count, call.attributes[IOU_THRESHOLD].f, 0, w.max_kept,
                    pool.flags, pool.suppression):
        return -1
    for i in range(count):
        if not pool.flags[i]:
            kept_boxes[kept] = pool.sorted[i]
            kept += 1
    return kept


cdef void _suppress_classes(mmk_call *call, const _Workspace *w, const _Pool *pool, const real *all_boxes,
                            const real *all_scores, real *selected, int64_t begin, int64_t end) noexcept nogil:
    """Suppresses within classes [begin, end), counted through all images, among scores above the threshold."""
    cdef ptrdiff_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], label, i, members, kept
    cdef real threshold = <real>call.attributes[SCORE_THRESHOLD].f
    cdef const real *boxes
    cdef const real *scores
    cdef bint cuts
    for label in range(begin, end):
        scores = all_scores + label * count
        boxes = all_boxes + label // classes * count * 4
        w.counts[label] = 0
        if threshold == -INFINITY:
            members = count
            for i in range(count):
                pool.boxes[i] = <int32_t>i
        else:
            _list_above(scores, count, threshold, pool.boxes, &members)
        if members == 0:
            continue
        cuts = members > MIN_CUT and members > 2 * CANDIDATES_PER_KEPT * <ptrdiff_t>w.max_kept
        kept = _suppress_pool(call, w, pool, boxes, scores, selected, members, cuts,
                              w.boxes + label * w.max_kept)
        if cuts and 0 <= kept < <ptrdiff_t>w.max_kept:
            kept = _suppress_pool(call, w, pool, boxes, scores, selected, members, False,
                                  w.boxes + label * w.max_kept)
        if kept < 0:
            return
        w.counts[label] = kept


cdef public int mmk_nms_indices_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef double iou_threshold = call.attributes[IOU_THRESHOLD].f, score_threshold = call.attributes[SCORE_THRESHOLD].f
    if mmk_check_shape(call, BOXES, "boxes", "[B, K, 4]") or mmk_check_shape(call, SCORES, "scores", "[B, C, K]"):
        return -1
    if not 0 <= iou_threshold <= 1:
        return mmk_fail(call, "iou_threshold must be from 0 to 1, got %g", iou_threshold)
    if check_threshold(call, "score_threshold", score_threshold) or check_count(call, scores.shape[2]):
        return -1
    call.late_outputs = True
    if scores.size == 0:
        return set_rows(call, 0)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, scores.shape[0] * scores.shape[1], 1e-3 * SUPPRESS_COST * scores.shape[2])
    call.worker_scratch_size[SUPPRESS] = _pool(call, NULL).size
    mmk_add_phase(call, 1, 1e-3 * LIST_COST * scores.shape[2])
    return 0


cdef public void mmk_nms_indices_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef _Pool pool
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    if phase == LIST:
        list_rows(call, w.boxes, w.counts, w.max_kept, w.indices)
        return
    pool = _pool(call, scratch)
    if call.inputs[BOXES].type == MMK_FLOAT32:
        _suppress_classes(call, &w, &pool, <const float *>boxes, <const float *>scores, <float *>pool.scores, begin,
                          end)
    else:
        _suppress_classes(call, &w, &pool, <const double *>boxes, <const double *>scores, <double *>pool.scores, begin,
                          end)
