"""nms_rotated: greedy non-maximum suppression of rotated boxes, label by label if labels are given.

An overlap equal to the threshold suppresses, as in MMCV on a CPU, or does not, as on CUDA.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated.rotated cimport BOX, Rectangle
from mmort._kernels.rotated.rotated_suppression cimport (COLLECT_COST, MEASURE_COST, SUPPRESS_COST, Kept, kept_from,
                                                         measure_boxes, suppress, take_kept)
from mmort._kernels.shared.kernels cimport mmk_item, mmk_order
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.suppression cimport check_count, check_threshold, sort_by_class

cdef enum:  # inputs
    BOXES
    SCORES
    LABELS

cdef enum:  # attributes
    IOU_THRESHOLD
    CLOCKWISE
    SUPPRESS_EQUAL

cdef enum:  # phases
    MEASURE
    SORT
    SUPPRESS
    COLLECT


cdef struct _Workspace:
    Rectangle *rectangles
    mmk_item *items
    mmk_item *spare
    int64_t *sources  # indices of the boxes by descending score
    int32_t *members  # the same, label by label
    int32_t *starts   # positions where the labels begin, and the end of the last
    uint8_t *is_kept
    Kept kept
    int64_t *indices  # the results
    void *detections
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[BOXES].shape[0]
    w.rectangles = <Rectangle *>take(&address, n * sizeof(Rectangle))
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.sources = <int64_t *>take(&address, n * sizeof(int64_t))
    w.members = <int32_t *>take(&address, n * sizeof(int32_t))
    w.starts = <int32_t *>take(&address, (n + 1) * sizeof(int32_t))
    w.is_kept = <uint8_t *>take(&address, n)
    w.kept = take_kept(&address, n)
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, n * (BOX + 1) * element_size(call.inputs[BOXES].type))
    w.size = address - <size_t>call.scratch
    return w


cdef int64_t _sort(mmk_call *call, const _Workspace *w) noexcept nogil:
    """Sorts the boxes by score and then by label; returns the number of labels."""
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef int64_t position, labels
    cdef const mmk_item *items = mmk_order(call, scores.data, scores.type, w.items, w.spare, scores.size)
    for position in range(scores.size):
        w.sources[position] = items[position].index
    items = sort_by_class(call, <const int64_t *>call.inputs[LABELS].data, w.sources, scores.size, w.items, w.spare,
                          w.starts, &labels)
    for position in range(scores.size):
        w.members[position] = <int32_t>w.sources[items[position].index]
        w.is_kept[position] = False
    return labels


cdef void _suppress_labels(mmk_call *call, const _Workspace *w, real threshold, int64_t begin,
                           int64_t end) noexcept nogil:
    cdef int64_t label
    cdef ptrdiff_t first, i, number
    cdef Kept kept
    for label in range(begin, end):
        first = w.starts[label]
        kept = kept_from(&w.kept, first)
        number = suppress(call, w.rectangles, w.members + first, w.starts[label + 1] - first, threshold,
                          call.attributes[SUPPRESS_EQUAL].i, &kept)
        for i in range(number):
            w.is_kept[kept.boxes[i]] = True


cdef void _collect(mmk_call *call, const _Workspace *w, const real *boxes, const real *scores,
                   real *detections) noexcept nogil:
    cdef int64_t count = call.inputs[SCORES].size, number = 0, rank, k
    cdef ptrdiff_t source
    cdef int64_t[2] shape
    for rank in range(count):
        source = w.sources[rank]
        if w.is_kept[source]:
            w.indices[number] = source
            for k in range(BOX):
                detections[(BOX + 1) * number + k] = boxes[BOX * source + k]
            detections[(BOX + 1) * number + BOX] = scores[source]
            number += 1
    shape[0] = number
    shape[1] = BOX + 1
    mmk_set_output(call, 0, MMK_INT64, 1, shape)
    mmk_set_output(call, 1, call.inputs[BOXES].type, 2, shape)
    call.outputs[0].data = w.indices
    call.outputs[1].data = detections


cdef public int mmk_nms_rotated_prepare(mmk_call *call) noexcept nogil:
    cdef int64_t count
    cdef int64_t[2] shape
    if mmk_check_shape(call, BOXES, "dets", "[N, 5]") or mmk_check_shape(call, SCORES, "scores", "[N]"):
        return -1
    if call.inputs[LABELS].type != MMK_ABSENT and mmk_check_shape(call, LABELS, "labels", "[N]"):
        return -1
    count = call.inputs[BOXES].shape[0]
    if check_threshold(call, "iou_threshold", call.attributes[IOU_THRESHOLD].f) or check_count(call, count):
        return -1
    call.late_outputs = True
    shape[0] = 0
    shape[1] = BOX + 1
    if count == 0:
        return mmk_set_output(call, 0, MMK_INT64, 1, shape) or mmk_set_output(
            call, 1, call.inputs[BOXES].type, 2, shape)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, count, 1e-3 * MEASURE_COST)
    mmk_add_phase(call, 1, 1e-3 * COLLECT_COST * count)
    mmk_add_phase(call, 1, 1e-3 * SUPPRESS_COST * count)  # the SORT phase divides it, when labels are known
    mmk_add_phase(call, 1, 1e-3 * COLLECT_COST * count)
    return 0


cdef public void mmk_nms_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    cdef double threshold = call.attributes[IOU_THRESHOLD].f
    cdef bint single = call.inputs[BOXES].type == MMK_FLOAT32
    if phase == MEASURE:
        measure_boxes(&call.inputs[BOXES], call.attributes[CLOCKWISE].i, w.rectangles, begin, end)
    elif phase == SORT:
        call.work[SUPPRESS] = _sort(call, &w)
        call.nanoseconds[SUPPRESS] /= call.work[SUPPRESS]
    elif phase == SUPPRESS:
        if single:
            _suppress_labels(call, &w, <float>threshold, begin, end)
        else:
            _suppress_labels(call, &w, threshold, begin, end)
    elif single:
        _collect(call, &w, <const float *>boxes, <const float *>scores, <float *>w.detections)
    else:
        _collect(call, &w, <const double *>boxes, <const double *>scores, <double *>w.detections)
