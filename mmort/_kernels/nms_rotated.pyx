"""nms_rotated and nms_rotated_indices: greedy non-maximum suppression of rotated boxes, class by class.

Boxes are taken by descending score, and each is held against the boxes kept so far: first the upright rectangles around
them, in vectors, and the exact overlap only of those that meet.

nms_rotated is MMCV's: the boxes of one image, where an overlap equal to the threshold suppresses.
nms_rotated_indices is MMDeploy's: images and classes, where only one above it does.
"""
from libc.math cimport fabs
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t

from mmort._kernels.kernels cimport *
from mmort._kernels.rotated cimport BOX, Rectangle, measure, overlap, shared_area
from mmort._kernels.workspace cimport take
from element_types cimport real
from mmk cimport *

cdef enum:  # inputs
    BOXES
    SCORES
    LABELS

cdef enum:  # attributes
    IOU_THRESHOLD
    CLOCKWISE  # of nms_rotated
    SCORE_THRESHOLD = 1  # of nms_rotated_indices

cdef enum:
    BLOCK = 64  # kept boxes looked at together


# ---- one class -------------------------------------------------------------------------------------------------------

cdef struct _Kept:
    double *x
    double *y
    double *reach_x
    double *reach_y
    int32_t *boxes  # the places of their rectangles


cdef _Kept _take_kept(size_t *address, size_t count) noexcept nogil:
    cdef _Kept kept
    kept.x = <double *>take(address, count * sizeof(double))
    kept.y = <double *>take(address, count * sizeof(double))
    kept.reach_x = <double *>take(address, count * sizeof(double))
    kept.reach_y = <double *>take(address, count * sizeof(double))
    kept.boxes = <int32_t *>take(address, count * sizeof(int32_t))
    return kept


cdef simd_void _find_near(const _Kept *kept, ptrdiff_t begin, ptrdiff_t count, const Rectangle *box, int64_t *near,
                          int64_t *any_near) noexcept nogil:
    """Which of `count` kept boxes from place `begin` on have an upright rectangle that meets the box's."""
    cdef const double *x = kept.x + begin
    cdef const double *y = kept.y + begin
    cdef const double *reach_x = kept.reach_x + begin
    cdef const double *reach_y = kept.reach_y + begin
    cdef double box_x = box.x, box_y = box.y, box_reach_x = box.reach_x, box_reach_y = box.reach_y
    cdef int64_t found = 0
    cdef ptrdiff_t i
    for i in range(count):
        near[i] = (fabs(x[i] - box_x) < reach_x[i] + box_reach_x) & (fabs(y[i] - box_y) < reach_y[i] + box_reach_y)
        found |= near[i]
    any_near[0] = found


cdef inline bint _reaches(const Rectangle *chosen, const Rectangle *box, real threshold, bint equal) noexcept nogil:
    """Whether the overlap is above the threshold, or equal to it if that counts."""
    cdef double common, least
    cdef real iou
    if threshold > 0 and chosen.area > 0 and box.area > 0:
        least = threshold * (chosen.area + box.area) / (1 + <double>threshold)
        common = shared_area(chosen, box, least * 0.999999)  # far below any rounding
        iou = <real>(common / (chosen.area + box.area - common))
    else:
        iou = <real>overlap(chosen, box, False)
    return iou >= threshold if equal else iou > threshold


cdef bint _is_suppressed(const Rectangle *rectangles, const Rectangle *box, const _Kept *kept, ptrdiff_t count,
                         real threshold, bint equal) noexcept nogil:
    cdef int64_t[BLOCK] near
    cdef int64_t any_near
    cdef ptrdiff_t begin = 0, size, i
    while begin < count:
        size = min(<ptrdiff_t>BLOCK, count - begin)
        _find_near(kept, begin, size, box, near, &any_near)
        if any_near or not threshold > 0:  # else boxes that do not meet are below it
            for i in range(size):
                if near[i] or not threshold > 0:
                    if _reaches(rectangles + kept.boxes[begin + i], box, threshold, equal):
                        return True
        begin += BLOCK
    return False


cdef ptrdiff_t _suppress(const Rectangle *rectangles, const int32_t *boxes, ptrdiff_t count, real threshold, bint equal,
                         _Kept *kept) noexcept nogil:
    """Fills in the kept of `count` boxes, which come by descending score; returns their number."""
    cdef const Rectangle *box
    cdef ptrdiff_t i, number = 0
    for i in range(count):
        box = rectangles + boxes[i]
        if not _is_suppressed(rectangles, box, kept, number, threshold, equal):
            kept.x[number] = box.x
            kept.y[number] = box.y
            kept.reach_x[number] = box.reach_x
            kept.reach_y[number] = box.reach_y
            kept.boxes[number] = boxes[i]
            number += 1
    return number


cdef void _measure(const mmk_call *call, const real *boxes, bint clockwise, Rectangle *rectangles, int64_t begin,
                   int64_t end) noexcept nogil:
    cdef int64_t i
    for i in range(begin, end):
        measure(boxes + BOX * i, clockwise, rectangles + i)


cdef int _check(mmk_call *call, int64_t count) noexcept nogil:
    if call.attributes[IOU_THRESHOLD].f != call.attributes[IOU_THRESHOLD].f:
        return mmk_fail(call, "iou_threshold must be a number, got nan")
    if count > INT32_MAX // 4:
        return mmk_fail(call, "there may be up to %d boxes, got %lld", INT32_MAX // 4, <long long>count)
    return 0


# ---- nms_rotated -----------------------------------------------------------------------------------------------------

cdef enum:  # phases
    MEASURE
    SORT
    SUPPRESS
    COLLECT


cdef struct _Workspace:
    Rectangle *rectangles
    mmk_item *items
    mmk_item *spare
    int32_t *sources  # all boxes by descending score
    int32_t *members  # the same label by label
    int32_t *starts   # where the labels begin there, and the end of the last
    uint8_t *is_kept
    _Kept kept
    int64_t *indices  # the result
    void *detections
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[BOXES].shape[0]
    cdef size_t width = sizeof(float) if call.inputs[BOXES].type == MMK_FLOAT32 else sizeof(double)
    w.rectangles = <Rectangle *>take(&address, n * sizeof(Rectangle))
    w.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    w.sources = <int32_t *>take(&address, n * sizeof(int32_t))
    w.members = <int32_t *>take(&address, n * sizeof(int32_t))
    w.starts = <int32_t *>take(&address, (n + 1) * sizeof(int32_t))
    w.is_kept = <uint8_t *>take(&address, n)
    w.kept = _take_kept(&address, n)
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, n * (BOX + 1) * width)
    w.size = address - <size_t>call.scratch
    return w


cdef int64_t _sort(const mmk_call *call, const _Workspace *w) noexcept nogil:
    """Order the boxes by score and then by label; returns the number of labels."""
    cdef const int64_t *labels = <const int64_t *>call.inputs[LABELS].data
    cdef int64_t count = call.inputs[SCORES].size, rank, first, groups = 0
    cdef mmk_item *items = mmk_order(call.inputs[SCORES].data, call.inputs[SCORES].type, w.items, w.spare, count)
    for rank in range(count):
        w.sources[rank] = <int32_t>items[rank].index
    if call.inputs[LABELS].type != MMK_ABSENT:
        first = labels[0]
        for rank in range(count):
            first = min(first, labels[rank])
        for rank in range(count):
            w.items[rank].key = <uint64_t>labels[w.sources[rank]] - <uint64_t>first
            w.items[rank].index = w.sources[rank]
        items = mmk_sort(w.items, w.spare, count)
    else:
        for rank in range(count):
            items[rank].key = 0
    for rank in range(count):
        if rank == 0 or items[rank].key != items[rank - 1].key:
            w.starts[groups] = <int32_t>rank
            groups += 1
        w.members[rank] = <int32_t>items[rank].index
        w.is_kept[rank] = False
    w.starts[groups] = <int32_t>count
    return groups


cdef void _suppress_labels(const mmk_call *call, const _Workspace *w, real threshold, int64_t begin,
                           int64_t end) noexcept nogil:
    cdef int64_t group
    cdef ptrdiff_t first, i, number
    cdef _Kept kept
    for group in range(begin, end):
        first = w.starts[group]
        kept.x = w.kept.x + first
        kept.y = w.kept.y + first
        kept.reach_x = w.kept.reach_x + first
        kept.reach_y = w.kept.reach_y + first
        kept.boxes = w.kept.boxes + first
        number = _suppress(w.rectangles, w.members + first, w.starts[group + 1] - first, threshold, True, &kept)
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
    if _check(call, count):
        return -1
    call.late_outputs = True
    shape[0] = 0
    shape[1] = BOX + 1
    if count == 0:
        return mmk_set_output(call, 0, MMK_INT64, 1, shape) or mmk_set_output(
            call, 1, call.inputs[BOXES].type, 2, shape)
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, count, 50)
    mmk_add_phase(call, 1, 10.0 * count)
    mmk_add_phase(call, 1, 100.0 * count)  # run knows better
    mmk_add_phase(call, 1, 10.0 * count)
    return 0


cdef public void mmk_nms_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    cdef double threshold = call.attributes[IOU_THRESHOLD].f
    cdef bint single = call.inputs[BOXES].type == MMK_FLOAT32, clockwise = call.attributes[CLOCKWISE].i
    if phase == SORT:
        call.work[SUPPRESS] = _sort(call, &w)
        call.grain[SUPPRESS] = 1 + call.work[SUPPRESS] * 100 // call.inputs[BOXES].shape[0]
    elif phase == MEASURE:
        if single:
            _measure(call, <const float *>boxes, clockwise, w.rectangles, begin, end)
        else:
            _measure(call, <const double *>boxes, clockwise, w.rectangles, begin, end)
    elif phase == SUPPRESS:
        if single:
            _suppress_labels(call, &w, <float>threshold, begin, end)
        else:
            _suppress_labels(call, &w, threshold, begin, end)
    elif single:
        _collect(call, &w, <const float *>boxes, <const float *>scores, <float *>w.detections)
    else:
        _collect(call, &w, <const double *>boxes, <const double *>scores, <double *>w.detections)


# ---- nms_rotated_indices ---------------------------------------------------------------------------------------------

cdef enum:  # phases
    MEASURE_ALL
    SUPPRESS_CLASSES
    LIST


cdef struct _Results:
    Rectangle *rectangles  # of all images
    int32_t *boxes         # kept boxes, as many places for each image and class as there are boxes
    int64_t *numbers       # of them, by image and class
    int64_t *indices       # the result
    size_t size


cdef _Results _results(const mmk_call *call) noexcept nogil:
    cdef _Results r
    cdef size_t address = <size_t>call.scratch
    cdef size_t images = call.inputs[SCORES].shape[0], classes = call.inputs[SCORES].shape[1]
    cdef size_t count = call.inputs[SCORES].shape[2]
    r.rectangles = <Rectangle *>take(&address, images * count * sizeof(Rectangle))
    r.boxes = <int32_t *>take(&address, images * classes * count * sizeof(int32_t))
    r.numbers = <int64_t *>take(&address, images * classes * sizeof(int64_t))
    r.indices = <int64_t *>take(&address, images * classes * count * 3 * sizeof(int64_t))
    r.size = address - <size_t>call.scratch
    return r


cdef struct _Memory:  # of one thread
    mmk_item *items
    mmk_item *spare
    void *scores     # those above the threshold
    int32_t *boxes   # and whose they are
    int32_t *sorted_boxes
    _Kept kept
    size_t size


cdef _Memory _memory(const void *memory, size_t count) noexcept nogil:
    cdef _Memory m
    cdef size_t address = <size_t>memory
    m.items = <mmk_item *>take(&address, count * sizeof(mmk_item))
    m.spare = <mmk_item *>take(&address, count * sizeof(mmk_item))
    m.scores = take(&address, count * sizeof(double))
    m.boxes = <int32_t *>take(&address, count * sizeof(int32_t))
    m.sorted_boxes = <int32_t *>take(&address, count * sizeof(int32_t))
    m.kept = _take_kept(&address, count)
    m.size = address - <size_t>memory
    return m


cdef void _suppress_classes(const mmk_call *call, const _Results *r, _Memory *m, const real *scores, real *chosen,
                            int64_t begin, int64_t end) noexcept nogil:
    """Pieces are the classes of all images.  A box that is not above the score threshold suppresses none that is."""
    cdef ptrdiff_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], piece, i, members
    cdef real threshold = <real>call.attributes[IOU_THRESHOLD].f
    cdef real score_threshold = <real>call.attributes[SCORE_THRESHOLD].f
    cdef const mmk_item *items
    for piece in range(begin, end):
        members = 0
        for i in range(count):
            if scores[piece * count + i] > score_threshold:
                chosen[members] = scores[piece * count + i]
                m.boxes[members] = <int32_t>i
                members += 1
        items = mmk_order(chosen, call.inputs[SCORES].type, m.items, m.spare, members)
        for i in range(members):
            m.sorted_boxes[i] = m.boxes[items[i].index]
        r.numbers[piece] = _suppress(r.rectangles + piece // classes * count, m.sorted_boxes, members, threshold, False,
                                     &m.kept)
        for i in range(r.numbers[piece]):
            r.boxes[piece * count + i] = m.kept.boxes[i]


cdef void _list(mmk_call *call, const _Results *r) noexcept nogil:
    cdef ptrdiff_t classes = call.inputs[SCORES].shape[1], count = call.inputs[SCORES].shape[2], number = 0, piece, i
    cdef int64_t[2] shape
    for piece in range(call.work[SUPPRESS_CLASSES]):
        for i in range(r.numbers[piece]):
            r.indices[3 * number] = piece // classes
            r.indices[3 * number + 1] = piece % classes
            r.indices[3 * number + 2] = r.boxes[piece * count + i]
            number += 1
    shape[0] = number
    shape[1] = 3
    mmk_set_output(call, 0, MMK_INT64, 2, shape)
    call.outputs[0].data = r.indices


cdef public int mmk_nms_rotated_indices_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef int64_t count
    cdef int64_t[2] shape
    if mmk_check_shape(call, BOXES, "boxes", "[B, K, 5]") or mmk_check_shape(call, SCORES, "scores", "[B, C, K]"):
        return -1
    count = scores.shape[2]
    if _check(call, count):
        return -1
    if call.attributes[SCORE_THRESHOLD].f != call.attributes[SCORE_THRESHOLD].f:
        return mmk_fail(call, "score_threshold must be a number, got nan")
    call.late_outputs = True
    if scores.size == 0:
        shape[0] = 0
        shape[1] = 3
        return mmk_set_output(call, 0, MMK_INT64, 2, shape)
    call.scratch_size = _results(call).size
    mmk_add_phase(call, scores.shape[0] * count, 50)
    mmk_add_phase(call, scores.shape[0] * scores.shape[1], 100.0 * count)
    call.worker_scratch_size[SUPPRESS_CLASSES] = _memory(NULL, count).size
    mmk_add_phase(call, 1, 10.0 * count)
    return 0


cdef public void mmk_nms_rotated_indices_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                             void *scratch) noexcept nogil:
    cdef _Results r = _results(call)
    cdef _Memory m
    cdef size_t count = call.inputs[SCORES].shape[2]
    cdef bint single = call.inputs[BOXES].type == MMK_FLOAT32
    if phase == MEASURE_ALL:
        if single:
            _measure(call, <const float *>call.inputs[BOXES].data, True, r.rectangles, begin, end)
        else:
            _measure(call, <const double *>call.inputs[BOXES].data, True, r.rectangles, begin, end)
    elif phase == SUPPRESS_CLASSES:
        m = _memory(scratch, count)
        if single:
            _suppress_classes(call, &r, &m, <const float *>call.inputs[SCORES].data, <float *>m.scores, begin, end)
        else:
            _suppress_classes(call, &r, &m, <const double *>call.inputs[SCORES].data, <double *>m.scores, begin, end)
    else:
        _list(call, &r)
