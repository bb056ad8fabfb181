"""The result of nms_indices and nms_rotated_indices: rows of image, class and box."""
from libc.stdint cimport int32_t, int64_t

from mmk cimport MMK_INT64, mmk_call, mmk_set_output

cdef enum:
    SCORES = 1  # the input, [images, classes, boxes]
    ROW_NUMBERS = 3


cdef inline int set_rows(mmk_call *call, int64_t rows) noexcept nogil:
    cdef int64_t[2] shape
    shape[0] = rows
    shape[1] = ROW_NUMBERS
    return mmk_set_output(call, 0, MMK_INT64, 2, shape)


cdef inline void list_rows(mmk_call *call, const int32_t *boxes, const int64_t *counts, ptrdiff_t stride,
                           int64_t *rows) noexcept nogil:
    """Writes the rows of the kept boxes, of which each image and class has a count and `stride` elements."""
    cdef ptrdiff_t images = call.inputs[SCORES].shape[0], classes = call.inputs[SCORES].shape[1], row = 0, label, i
    for label in range(images * classes):
        for i in range(counts[label]):
            rows[ROW_NUMBERS * row] = label // classes
            rows[ROW_NUMBERS * row + 1] = label % classes
            rows[ROW_NUMBERS * row + 2] = boxes[label * stride + i]
            row += 1
    set_rows(call, row)
    call.outputs[0].data = rows
