"""box_iou: overlap of corner boxes, all pairs or row by row."""
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport box_area, intersection, iou_of

cdef enum:
    FOREGROUND  # attributes; whether to divide by the first box's area, not by the union
    ALIGNED
    OFFSET

cdef enum:
    TILE = 256  # boxes converted to planes at a time, so that the loop over them is vectorised

cdef enum:  # picoseconds per pair
    COMPARE = 200  # box_iou, 2000 x 2000
    COMPARE_ALIGNED = 10000


cdef simd_void _tile(const real *boxes1, const real *boxes2, real *out, ptrdiff_t rows, ptrdiff_t columns,
                     ptrdiff_t stride, bint foreground, real offset) noexcept nogil:
    """Compares `rows` boxes with `columns` <= TILE boxes; rows of `out` are `stride` apart."""
    cdef real[TILE] x1, y1, x2, y2, areas
    cdef real ax1, ay1, ax2, ay2, area, common
    cdef const real *box
    cdef ptrdiff_t i, j
    for j in range(columns):
        box = boxes2 + 4 * j
        x1[j] = box[0]
        y1[j] = box[1]
        x2[j] = box[2]
        y2[j] = box[3]
        areas[j] = box_area(box, offset)
    for i in range(rows):
        box = boxes1 + 4 * i
        ax1 = box[0]
        ay1 = box[1]
        ax2 = box[2]
        ay2 = box[3]
        area = box_area(box, offset)
        for j in range(columns):
            common = intersection(ax1, ay1, ax2, ay2, x1[j], y1[j], x2[j], y2[j], offset)
            out[j] = common / area if foreground else iou_of(common, area, areas[j])
        out += stride


cdef void _rows(const mmk_call *call, const real *boxes1, const real *boxes2, real *out, int64_t begin,
                int64_t end) noexcept nogil:
    """Compares rows [begin, end) of `boxes1` with all rows of `boxes2`, or with the same row if aligned."""
    cdef bint foreground = call.attributes[FOREGROUND].i != 0
    cdef real offset = <real>call.attributes[OFFSET].i
    cdef ptrdiff_t count = call.inputs[1].shape[0], i = 0
    if call.attributes[ALIGNED].i:
        for i in range(begin, end):
            _tile(boxes1 + 4 * i, boxes2 + 4 * i, out + i, 1, 1, 1, foreground, offset)
    else:
        while i < count:
            _tile(boxes1 + 4 * begin, boxes2 + 4 * i, out + begin * count + i, end - begin,
                  min(<ptrdiff_t>TILE, count - i), count, foreground, offset)
            i += TILE


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
        mmk_add_phase(call, shape[0], 1e-3 * COMPARE_ALIGNED if aligned else 1e-3 * COMPARE * shape[1])
    return 0


cdef public void mmk_box_iou_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *boxes1 = call.inputs[0].data
    cdef const void *boxes2 = call.inputs[1].data
    cdef void *out = call.outputs[0].data
    if call.inputs[0].type == MMK_FLOAT32:
        _rows(call, <const float *>boxes1, <const float *>boxes2, <float *>out, begin, end)
    else:
        _rows(call, <const double *>boxes1, <const double *>boxes2, <double *>out, begin, end)
