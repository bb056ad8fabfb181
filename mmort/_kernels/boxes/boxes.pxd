"""Corner boxes (x1, y1, x2, y2): the formulas that the NMS family shares.

All of it is arithmetic in the boxes' own type and in the written order, so that decisions equal MMCV's bit for bit.
`offset` is added to widths and heights (1: pixel indices, both ends included).  Loops over many boxes read them from
planes: all x1, then all y1, x2, y2 and areas, so that they are vectorised.
"""
from element_types cimport real

cdef enum:
    BOX_NUMBERS = 5  # x1, y1, x2, y2, area


cdef inline real area_of(real x1, real y1, real x2, real y2, real offset) noexcept nogil:
    return ((x2 - x1) + offset) * ((y2 - y1) + offset)


cdef inline real box_area(const real *box, real offset) noexcept nogil:
    return area_of(box[0], box[1], box[2], box[3], offset)


cdef inline real overlap(real low_a, real high_a, real low_b, real high_b, real offset) noexcept nogil:
    """Returns the length that two intervals share; 0 if they do not meet or a bound is NaN."""
    cdef real low = low_b if low_a < low_b else low_a
    cdef real high = high_b if high_b < high_a else high_a
    cdef real length = (high - low) + offset
    return length if 0 < length else 0


cdef inline real intersection(real ax1, real ay1, real ax2, real ay2, real bx1, real by1, real bx2, real by2,
                              real offset) noexcept nogil:
    return overlap(ax1, ax2, bx1, bx2, offset) * overlap(ay1, ay2, by1, by2, offset)


cdef inline real iou_of(real common, real area_a, real area_b) noexcept nogil:
    """Returns intersection over union; NaN for two boxes without area."""
    return common / ((area_a + area_b) - common)


# ---- planes of `count` numbers ---------------------------------------------------------------------------------------

cdef inline void pack_box(const real *box, real offset, real *planes, ptrdiff_t count, ptrdiff_t i) noexcept nogil:
    """Stores a box, with its area, at index i of the planes."""
    cdef ptrdiff_t k
    for k in range(4):
        planes[k * count + i] = box[k]
    planes[4 * count + i] = box_area(box, offset)


cdef inline real plane_intersection(const real *planes, ptrdiff_t count, ptrdiff_t i, ptrdiff_t j,
                                    real offset) noexcept nogil:
    return intersection(planes[i], planes[count + i], planes[2 * count + i], planes[3 * count + i],
                        planes[j], planes[count + j], planes[2 * count + j], planes[3 * count + j], offset)


cdef inline real plane_iou(const real *planes, ptrdiff_t count, ptrdiff_t i, ptrdiff_t j, real offset) noexcept nogil:
    return iou_of(plane_intersection(planes, count, i, j, offset), planes[4 * count + i], planes[4 * count + j])
