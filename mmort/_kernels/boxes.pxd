"""Corner boxes (x1, y1, x2, y2): the formulas that every member of the NMS family shares.

All is plain arithmetic of the boxes' own type in the written order, so that decisions equal MMCV's bit for bit.
`offset` is added to widths and heights (1: pixel indices, both ends included).
"""
from element_types cimport real


cdef inline real box_area(const real *box, real offset) noexcept nogil:
    return ((box[2] - box[0]) + offset) * ((box[3] - box[1]) + offset)


cdef inline real overlap(real low_a, real high_a, real low_b, real high_b, real offset) noexcept nogil:
    """Length of the common part of two intervals; 0 where there is none or NaN is involved."""
    cdef real low = low_b if low_a < low_b else low_a
    cdef real high = high_b if high_b < high_a else high_a
    cdef real length = (high - low) + offset
    return length if 0 < length else 0


cdef inline real intersection(real ax1, real ay1, real ax2, real ay2, real bx1, real by1, real bx2, real by2,
                              real offset) noexcept nogil:
    return overlap(ax1, ax2, bx1, bx2, offset) * overlap(ay1, ay2, by1, by2, offset)


cdef inline real iou_of(real common, real area_a, real area_b) noexcept nogil:
    """Intersection over union; NaN for two boxes without area."""
    return common / ((area_a + area_b) - common)


cdef inline real iou(real ax1, real ay1, real ax2, real ay2, real area_a,
                     real bx1, real by1, real bx2, real by2, real area_b, real offset) noexcept nogil:
    return iou_of(intersection(ax1, ay1, ax2, ay2, bx1, by1, bx2, by2, offset), area_a, area_b)
