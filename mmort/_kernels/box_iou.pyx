"""box_iou: overlap of corner boxes, all pairs or row by row."""
from libc.stdint cimport int64_t

from mmort._kernels.boxes cimport box_area, intersection, iou_of, real
from mmort._kernels.mmk cimport *

cdef enum:
    FOREGROUND  # attributes; this one: divide by the first box's area, not by the union
    ALIGNED
    OFFSET


cdef simd_void _row(const real *box, const real *others, real *out, ptrdiff_t count, bint foreground,
                    real offset) noexcept nogil:
    cdef real area = box_area(box, offset), common
    cdef const real *other
    cdef ptrdiff_t i
    for i in range(count):
        other = others + 4 * i
        common = intersection(box[0], box[1], box[2], box[3], other[0], other[1], other[2], other[3], offset)
        out[i] = common / area if foreground else iou_of(common, area, box_area(other, offset))


cdef void _rows(const mmk_call *call, const real *boxes1, const real *boxes2, real *out, int64_t begin,
                int64_t end) noexcept nogil:
    cdef bint foreground = call.attributes[FOREGROUND].i != 0
    cdef real offset = <real>call.attributes[OFFSET].i
    cdef ptrdiff_t count = call.inputs[1].shape[0], i
    for i in range(begin, end):
        if call.attributes[ALIGNED].i:
            _row(boxes1 + 4 * i, boxes2 + 4 * i, out + i, 1, foreground, offset)
        else:
            _row(boxes1 + 4 * i, boxes2, out + i * count, count, foreground, offset)


cdef public int mmk_box_iou_prepare(mmk_call *call) noexcept nogil:
    cdef bint aligned = call.attributes[ALIGNED].i != 0
    cdef int64_t[2] shape
    if mmk_check_shape(call, 0, "boxes1", "[N, 4]"):
        return -1
    if mmk_check_shape(call, 1, "boxes2", "[N, 4]" if aligned else "[M, 4]"):
        return -1
    shape[0] = call.inputs[0].shape[0]
    shape[1] = call.inputs[1].shape[0]
    if mmk_set_output(call, 0, call.inputs[0].type, 1 if aligned else 2, shape):
        return -1
    if call.outputs[0].size:
        mmk_add_phase(call, shape[0], 1.0 if aligned else 1.0 * shape[1])
    return 0


cdef public int mmk_box_iou_run(mmk_call *call, int phase, int64_t begin, int64_t end) noexcept nogil:
    cdef const void *boxes1 = call.inputs[0].data
    cdef const void *boxes2 = call.inputs[1].data
    cdef void *out = call.outputs[0].data
    if call.inputs[0].type == MMK_FLOAT32:
        _rows(call, <const float *>boxes1, <const float *>boxes2, <float *>out, begin, end)
    else:
        _rows(call, <const double *>boxes1, <const double *>boxes2, <double *>out, begin, end)
    return 0
