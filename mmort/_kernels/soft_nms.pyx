"""soft_nms: suppression that lowers the scores of overlapping boxes (Bodla et al. 2017), in MMCV's order of events.

Of the remaining boxes, the one with the highest score is emitted, the scores of the others decay by their overlap with
it, and boxes that fall below `min_score` are dropped.  Boxes move as in MMCV's kernel (the emitted box is swapped with
the first remaining one, and a dropped box is replaced by the last), which decides among equal scores.
"""
from libc.math cimport exp
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes cimport BOX_NUMBERS, intersection, iou_of, pack_box
from mmort._kernels.suppression cimport check_compared, goes_on
from mmort._kernels.workspace cimport element_size, take

cdef enum:
    IOU_THRESHOLD  # attributes
    SIGMA
    MIN_SCORE
    METHOD
    OFFSET

cdef enum:
    NAIVE  # methods
    LINEAR
    GAUSSIAN

cdef enum:
    LANES = 8  # independent running maxima
    SCORE = BOX_NUMBERS  # the plane after x1, y1, x2, y2 and area
    PLANES

cdef enum:  # picoseconds per pair of boxes
    DECAY_COST = 1000  # soft_nms, uniform, 1000 boxes, linear takes less


cdef struct _Workspace:
    void *planes
    int64_t *indices  # of the boxes in the order of the planes, emitted ones first; the second result
    void *detections  # the first
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[0].shape[0]
    cdef size_t width = element_size(call.inputs[0].type)
    w.planes = take(&address, PLANES * n * width)
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, 5 * n * width)
    w.size = address - <size_t>call.scratch
    return w


cdef simd_void _decay(real *planes, ptrdiff_t stride, ptrdiff_t box, ptrdiff_t count, real threshold, real offset,
                      bint linear) noexcept nogil:
    """Lowers the scores after position `box`, by the naive or linear method."""
    cdef const real *x1 = planes
    cdef const real *y1 = planes + stride
    cdef const real *x2 = planes + 2 * stride
    cdef const real *y2 = planes + 3 * stride
    cdef const real *area = planes + 4 * stride
    cdef real *score = planes + SCORE * stride
    # variables, because gcc cannot rule out that writing a score changes the box
    cdef real box_x1 = x1[box], box_y1 = y1[box], box_x2 = x2[box], box_y2 = y2[box], box_area = area[box]
    cdef real common, iou
    cdef ptrdiff_t i
    for i in range(box + 1, count):
        common = intersection(box_x1, box_y1, box_x2, box_y2, x1[i], y1[i], x2[i], y2[i], offset)
        iou = iou_of(common, box_area, area[i])
        score[i] *= (1 - iou if linear else <real>0) if iou >= threshold else <real>1


cdef void _decay_gaussian(real *planes, ptrdiff_t stride, ptrdiff_t box, ptrdiff_t count, real sigma,
                          real offset) noexcept nogil:
    """Lowers the scores after position `box`, by the gaussian method."""
    cdef const real *x1 = planes
    cdef const real *y1 = planes + stride
    cdef const real *x2 = planes + 2 * stride
    cdef const real *y2 = planes + 3 * stride
    cdef const real *area = planes + 4 * stride
    cdef real *score = planes + SCORE * stride
    cdef real box_x1 = x1[box], box_y1 = y1[box], box_x2 = x2[box], box_y2 = y2[box], box_area = area[box]
    cdef real common, iou
    cdef ptrdiff_t i
    for i in range(box + 1, count):
        common = intersection(box_x1, box_y1, box_x2, box_y2, x1[i], y1[i], x2[i], y2[i], offset)
        iou = iou_of(common, box_area, area[i])
        if iou == 0 and sigma != 0:
            continue  # the weight is exp(-0) = 1, as for most boxes
        # in double, then rounded: the same bits with every C library
        score[i] *= <real>exp(<double>(-(iou * iou) / sigma))


cdef simd_void _find_largest(const real *score, ptrdiff_t begin, ptrdiff_t end,
                             ptrdiff_t *position) noexcept nogil:
    """Finds the first maximum of the scores [begin, end); NaN is found only at `begin`."""
    cdef real[LANES] largest
    cdef ptrdiff_t[LANES] where
    cdef ptrdiff_t i = begin, k
    cdef real value
    position[0] = begin
    if score[begin] != score[begin]:
        return
    for k in range(LANES):
        largest[k] = score[begin]
        where[k] = begin
    while i + LANES <= end:
        for k in range(LANES):
            value = score[i + k]
            where[k] = i + k if largest[k] < value else where[k]
            largest[k] = value if largest[k] < value else largest[k]
        i += LANES
    while i < end:
        if largest[0] < score[i]:
            largest[0] = score[i]
            where[0] = i
        i += 1
    for k in range(1, LANES):
        if largest[0] < largest[k] or (largest[0] == largest[k] and where[k] < where[0]):
            largest[0] = largest[k]
            where[0] = where[k]
    position[0] = where[0]


cdef inline void _move(real *planes, int64_t *indices, ptrdiff_t stride, ptrdiff_t source,
                       ptrdiff_t target) noexcept nogil:
    cdef ptrdiff_t k
    for k in range(PLANES):
        planes[k * stride + target] = planes[k * stride + source]
    indices[target] = indices[source]


cdef inline void _swap(real *planes, int64_t *indices, ptrdiff_t stride, ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    cdef ptrdiff_t k
    cdef real number
    cdef int64_t index = indices[a]
    for k in range(PLANES):
        number = planes[k * stride + a]
        planes[k * stride + a] = planes[k * stride + b]
        planes[k * stride + b] = number
    indices[a] = indices[b]
    indices[b] = index


cdef int64_t _suppress(mmk_call *call, real *planes, int64_t *indices, int64_t count, real threshold, real sigma,
                       real min_score, int64_t method, real offset) noexcept nogil:
    """Moves the emitted boxes to the front; returns their number, or -1 if the call is stopped."""
    cdef ptrdiff_t stride = count, i = 0, j, largest = 0
    cdef int64_t comparisons = 0, unasked = 0
    cdef real *score = planes + SCORE * stride
    if check_compared(call, count):
        return -1
    while i < count:
        unasked += count - i
        if not goes_on(call, &comparisons, &unasked, stride):
            return -1
        _find_largest(score, i, count, &largest)
        if largest != i:
            _swap(planes, indices, stride, i, largest)
        if method == GAUSSIAN:
            _decay_gaussian(planes, stride, i, count, sigma, offset)
        else:
            _decay(planes, stride, i, count, threshold, offset, method == LINEAR)
        i += 1
        j = i
        while j < count:
            if score[j] < min_score:
                count -= 1
                _move(planes, indices, stride, count, j)
            else:
                j += 1
    return count


cdef public int64_t mmk_soft_suppress(mmk_call *call, int type, void *planes, int64_t *indices, int64_t count,
                                      double threshold, double sigma, double min_score, int64_t method,
                                      double offset) noexcept nogil:
    if type == MMK_FLOAT32:
        return _suppress(call, <float *>planes, indices, count, <float>threshold, <float>sigma, <float>min_score,
                         method, <float>offset)
    return _suppress(call, <double *>planes, indices, count, threshold, sigma, min_score, method, offset)


cdef void _soft_nms(mmk_call *call, const real *boxes, const real *scores) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef real offset = <real>call.attributes[OFFSET].i
    cdef ptrdiff_t stride = call.inputs[0].shape[0], i, k
    cdef int64_t[2] shape
    cdef real *planes = <real *>w.planes
    cdef real *detections = <real *>w.detections
    for i in range(stride):
        pack_box(boxes + 4 * i, offset, planes, stride, i)
        planes[SCORE * stride + i] = scores[i]
        w.indices[i] = i
    shape[0] = _suppress(call, planes, w.indices, stride, <real>call.attributes[IOU_THRESHOLD].f,
                         <real>call.attributes[SIGMA].f, <real>call.attributes[MIN_SCORE].f,
                         call.attributes[METHOD].i, offset)
    shape[1] = 5
    if shape[0] < 0:
        return
    for i in range(shape[0]):
        for k in range(4):
            detections[5 * i + k] = planes[k * stride + i]
        detections[5 * i + 4] = planes[SCORE * stride + i]
    mmk_set_output(call, 0, call.inputs[0].type, 2, shape)
    mmk_set_output(call, 1, MMK_INT64, 1, shape)
    call.outputs[0].data = detections
    call.outputs[1].data = w.indices


cdef public int mmk_soft_nms_prepare(mmk_call *call) noexcept nogil:
    cdef int64_t method = call.attributes[METHOD].i, count
    if mmk_check_shape(call, 0, "boxes", "[N, 4]") or mmk_check_shape(call, 1, "scores", "[N]"):
        return -1
    if method < NAIVE or method > GAUSSIAN:
        return mmk_fail(call, "method must be 0 (naive), 1 (linear) or 2 (gaussian), got %lld", <long long>method)
    count = call.inputs[0].shape[0]
    if check_compared(call, count):
        return -1
    call.late_outputs = True
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, 1, 1e-3 * DECAY_COST * count * count)
    return 0


cdef public void mmk_soft_nms_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    if call.inputs[0].type == MMK_FLOAT32:
        _soft_nms(call, <const float *>call.inputs[0].data, <const float *>call.inputs[1].data)
    else:
        _soft_nms(call, <const double *>call.inputs[0].data, <const double *>call.inputs[1].data)
