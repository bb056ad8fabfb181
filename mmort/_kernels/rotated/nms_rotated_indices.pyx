"""nms_rotated_indices: greedy non-maximum suppression of rotated boxes, image by image and class by class.

This is MMDeploy's NMSRotated: only an overlap above the threshold suppresses.
"""
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated.rotated cimport Rectangle
from mmort._kernels.rotated.rotated_suppression cimport (COLLECT_COST, MEASURE_COST, SUPPRESS_COST, Kept, measure_boxes,
                                                         suppress, take_kept)
from mmort._kernels.shared.kernels cimport mmk_item, mmk_order
from mmort._kernels.shared.workspace cimport take
from mmort._kernels.suppression.listed cimport list_rows, set_rows
from mmort._kernels.suppression.suppression cimport check_count, check_threshold

cdef enum:  # inputs
    BOXES
    SCORES

cdef enum:  # attributes
    IOU_THRESHOLD
    SCORE_THRESHOLD

cdef enum:  # phases
    MEASURE
    SUPPRESS
    LIST


cdef struct _Workspace:
    Rectangle *rectangles  # of all images
    int32_t *boxes         # kept boxes; there is room for all boxes of each image and class
    int64_t *counts        # of kept boxes, by image and class
    int64_t *indices       # the result
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch
    cdef size_t images = call.inputs[SCORES].shape[0], classes = call.inputs[SCORES].shape[1]
    cdef size_t count = call.inputs[SCORES].shape[2]
    w.rectangles = <Rectangle *>take(&address, images * count * sizeof(Rectangle))
    w.boxes = <int32_t *>take(&address, images * classes * count * sizeof(int32_t))
    w.counts = <int64_t *>take(&address, images * classes * sizeof(int64_t))
    w.indices = <int64_t *>take(&address, images * classes * count * 3 * sizeof(int64_t))
    w.size = address - <size_t>call.scratch
    return w


cdef struct _Pool:  # the boxes of a class on their way through suppression
    mmk_item *items
    mmk_item *spare
    void *scores     # above the threshold
    int32_t *boxes   # of these scores
    int32_t *sorted_boxes
    Kept kept
    size_t size


cdef _Pool _pool(const void *scratch, size_t count) noexcept nogil:
    cdef _Pool pool
    cdef size_t address = <size_t>scratch
    pool.items = <mmk_item *>take(&address, count * sizeof(mmk_item))
    pool.spare = <mmk_item *>take(&address, count * sizeof(mmk_item))
    pool.scores = take(&address, count * sizeof(double))
    pool.boxes = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.sorted_boxes = <int32_t *>take(&address, count * sizeof(int32_t))
    pool.kept = take_kept(&address, count)
    pool.size = address - <size_t>scratch
    return pool


cdef void _suppress_classes(mmk_call *call, const _Workspace *w, _Pool *pool, const real *scores, real *selected,
                            int64_t begin, int64_t end) noexcept nogil:
    """Suppresses within classes [begin, end), counted through all images, among scores above the threshold."""
    cdef ptrdiff_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], label, i, members
    cdef real threshold = <real>call.attributes[IOU_THRESHOLD].f
    cdef real score_threshold = <real>call.attributes[SCORE_THRESHOLD].f
    cdef const mmk_item *items
    for label in range(begin, end):
        members = 0
        for i in range(count):
            if scores[label * count + i] > score_threshold:
                selected[members] = scores[label * count + i]
                pool.boxes[members] = <int32_t>i
                members += 1
        items = mmk_order(call, selected, call.inputs[SCORES].type, pool.items, pool.spare, members)
        for i in range(members):
            pool.sorted_boxes[i] = pool.boxes[items[i].index]
        w.counts[label] = suppress(call, w.rectangles + label // classes * count, pool.sorted_boxes, members,
                                   threshold, False, &pool.kept)
        for i in range(w.counts[label]):
            w.boxes[label * count + i] = pool.kept.boxes[i]


cdef public int mmk_nms_rotated_indices_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef int64_t count
    if mmk_check_shape(call, BOXES, "boxes", "[B, K, 5]") or mmk_check_shape(call, SCORES, "scores", "[B, C, K]"):
        return -1
    count = scores.shape[2]
    if check_threshold(call, "iou_threshold", call.attributes[IOU_THRESHOLD].f) or check_count(call, count):
        return -1
    if check_threshold(call, "score_threshold", call.attributes[SCORE_THRESHOLD].f):
        return -1
    call.late_outputs = True
    if scores.size == 0:
        return set_rows(call, 0)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, scores.shape[0] * count, 1e-3 * MEASURE_COST)
    mmk_add_phase(call, scores.shape[0] * scores.shape[1], 1e-3 * SUPPRESS_COST * count)
    call.worker_scratch_size[SUPPRESS] = _pool(NULL, count).size
    mmk_add_phase(call, 1, 1e-3 * COLLECT_COST * count)
    return 0


cdef public void mmk_nms_rotated_indices_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                             void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef _Pool pool
    if phase == MEASURE:
        measure_boxes(&call.inputs[BOXES], True, w.rectangles, begin, end)
    elif phase == SUPPRESS:
        pool = _pool(scratch, call.inputs[SCORES].shape[2])
        if call.inputs[SCORES].type == MMK_FLOAT32:
            _suppress_classes(call, &w, &pool, <const float *>call.inputs[SCORES].data, <float *>pool.scores, begin,
                              end)
        else:
            _suppress_classes(call, &w, &pool, <const double *>call.inputs[SCORES].data, <double *>pool.scores, begin,
                              end)
    else:
        list_rows(call, w.boxes, w.counts, call.inputs[SCORES].shape[2], w.indices)
