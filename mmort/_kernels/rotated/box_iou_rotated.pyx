"""box_iou_rotated: intersection over union of rotated boxes, or over the area of the first ("foreground")."""
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated.rotated cimport BOX, Rectangle, measure, overlap

cdef enum:  # attributes
    FOREGROUND
    ALIGNED
    CLOCKWISE

cdef enum:  # phases
    MEASURE
    COMPARE

cdef enum:  # picoseconds, estimated: no benchmark row
    MEASURE_COST = 50000  # per box
    COMPARE_COST = 100000  # per pair


cdef void _measure(const mmk_call *call, const real *first, const real *second, int64_t begin,
                   int64_t end) noexcept nogil:
    """Measures boxes [begin, end), counted through the first input and then the second."""
    cdef Rectangle *rectangles = <Rectangle *>call.scratch
    cdef ptrdiff_t count = call.inputs[0].shape[0], i
    for i in range(begin, end):
        measure(first + BOX * i if i < count else second + BOX * (i - count), call.attributes[CLOCKWISE].i,
                rectangles + i)


cdef void _compare(const mmk_call *call, real *output, int64_t begin, int64_t end) noexcept nogil:
    """Computes the overlaps of pairs [begin, end)."""
    cdef const Rectangle *first = <const Rectangle *>call.scratch
    cdef const Rectangle *second = first + call.inputs[0].shape[0]
    cdef ptrdiff_t columns = 1 if call.attributes[ALIGNED].i else call.inputs[1].shape[0], i, row, column
    row = begin // columns
    column = begin % columns
    for i in range(begin, end):
        output[i] = <real>overlap(first + row, second + (row if call.attributes[ALIGNED].i else column),
                                  call.attributes[FOREGROUND].i)
        column += 1
        if column == columns:
            column = 0
            row += 1


cdef public int mmk_box_iou_rotated_prepare(mmk_call *call) noexcept nogil:
    cdef bint aligned = call.attributes[ALIGNED].i
    cdef int64_t[2] shape
    if mmk_check_shape(call, 0, "bboxes1", "[N, 5]"):
        return -1
    if mmk_check_shape(call, 1, "bboxes2", "[N, 5]" if aligned else "[M, 5]"):
        return -1
    shape[0] = call.inputs[0].shape[0]
    shape[1] = call.inputs[1].shape[0]
    if mmk_set_output(call, 0, call.inputs[0].type, 1 if aligned else 2, shape):
        return -1
    if call.outputs[0].size == 0:
        return 0
    call.scratch_size = (call.inputs[0].shape[0] + call.inputs[1].shape[0]) * sizeof(Rectangle)
    mmk_add_phase(call, call.inputs[0].shape[0] + call.inputs[1].shape[0], 1e-3 * MEASURE_COST)
    mmk_add_phase(call, call.outputs[0].size, 1e-3 * COMPARE_COST)
    return 0


cdef public void mmk_box_iou_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                         void *scratch) noexcept nogil:
    cdef const void *first = call.inputs[0].data
    cdef const void *second = call.inputs[1].data
    if call.inputs[0].type == MMK_FLOAT32:
        if phase == MEASURE:
            _measure(call, <const float *>first, <const float *>second, begin, end)
        else:
            _compare(call, <float *>call.outputs[0].data, begin, end)
    elif phase == MEASURE:
        _measure(call, <const double *>first, <const double *>second, begin, end)
    else:
        _compare(call, <double *>call.outputs[0].data, begin, end)
