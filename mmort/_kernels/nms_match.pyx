"""nms_match: greedy suppression that tells which box suppressed which (MMCV's nms_match)."""
from libc.stdint cimport INT32_MAX, int32_t, int64_t

from mmort._kernels.boxes cimport box_area, iou, real
from mmort._kernels.mmk cimport *
from mmort._kernels.workspace cimport take

cdef enum:
    IOU_THRESHOLD  # attribute 0


cdef struct _Workspace:
    mmk_item *items
    mmk_item *spare
    void *planes      # x1, y1, x2, y2, area, by descending score
    void *scores      # as one array
    int32_t *reaches  # whether IoU reaches the threshold
    int32_t *taken
    int64_t *members  # the result: the boxes group by group, the kept one first
    int64_t *starts   # of the groups, and the end
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[0].shape[0]
    cdef size_t width = sizeof(float) if call.inputs[0].type == MMK_FLOAT32 else sizeof(double)
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.planes = take(&address, 5 * n * width)
    w.scores = take(&address, n * width)
    w.reaches = <int32_t *>take(&address, n * sizeof(int32_t))
    w.taken = <int32_t *>take(&address, n * sizeof(int32_t))
    w.members = <int64_t *>take(&address, n * sizeof(int64_t))
    w.starts = <int64_t *>take(&address, (n + 1) * sizeof(int64_t))
    w.size = address - <size_t>call.scratch
    return w


cdef simd_void _compare(const real *planes, ptrdiff_t count, ptrdiff_t one, real threshold,
                        int32_t *reaches) noexcept nogil:
    cdef const real *x1 = planes
    cdef const real *y1 = planes + count
    cdef const real *x2 = planes + 2 * count
    cdef const real *y2 = planes + 3 * count
    cdef const real *area = planes + 4 * count
    cdef real ax1 = x1[one], ay1 = y1[one], ax2 = x2[one], ay2 = y2[one], area_a = area[one]
    cdef ptrdiff_t i
    for i in range(one + 1, count):
        reaches[i] = iou(ax1, ay1, ax2, ay2, area_a, x1[i], y1[i], x2[i], y2[i], area[i], 0) >= threshold


cdef void _match(mmk_call *call, const real *detections) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef ptrdiff_t count = call.inputs[0].shape[0], i, j, k
    cdef real threshold = <real>call.attributes[IOU_THRESHOLD].f
    cdef real *planes = <real *>w.planes
    cdef real *scores = <real *>w.scores
    cdef const real *box
    cdef mmk_item *items
    cdef int64_t members = 0, groups = 0
    cdef int64_t[1] shape
    for i in range(count):
        scores[i] = detections[5 * i + 4]
        w.taken[i] = 0
    items = mmk_order(scores, call.inputs[0].type, w.items, w.spare, count)
    for i in range(count):
        box = detections + 5 * items[i].index
        for k in range(4):
            planes[k * count + i] = box[k]
        planes[4 * count + i] = box_area(box, <real>0)
    for i in range(count):
        if w.taken[i]:
            continue
        w.starts[groups] = members
        groups += 1
        w.members[members] = items[i].index
        members += 1
        _compare(planes, count, i, threshold, w.reaches)
        for j in range(i + 1, count):
            if w.reaches[j] and not w.taken[j]:
                w.taken[j] = 1
                w.members[members] = items[j].index
                members += 1
    w.starts[groups] = members
    shape[0] = members
    mmk_set_output(call, 0, MMK_INT64, 1, shape)
    shape[0] = groups + 1
    mmk_set_output(call, 1, MMK_INT64, 1, shape)
    call.outputs[0].data = w.members
    call.outputs[1].data = w.starts


cdef public int mmk_nms_match_prepare(mmk_call *call) noexcept nogil:
    cdef double threshold = call.attributes[IOU_THRESHOLD].f
    cdef int64_t count
    if mmk_check_shape(call, 0, "dets", "[N, 5]"):
        return -1
    if threshold != threshold:
        return mmk_fail(call, "iou_threshold must be a number, got nan")
    count = call.inputs[0].shape[0]
    if count > INT32_MAX // 4:
        return mmk_fail(call, "there may be up to %d boxes, got %lld", INT32_MAX // 4, <long long>count)
    call.late_outputs = True
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, 1, 1.0 * count)
    return 0


cdef public int mmk_nms_match_run(mmk_call *call, int phase, int64_t begin, int64_t end) noexcept nogil:
    if call.inputs[0].type == MMK_FLOAT32:
        _match(call, <const float *>call.inputs[0].data)
    else:
        _match(call, <const double *>call.inputs[0].data)
    return 0
