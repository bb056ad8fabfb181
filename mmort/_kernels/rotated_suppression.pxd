"""Greedy suppression among rotated boxes of one class, for nms_rotated and nms_rotated_indices.

Boxes are visited by descending score, and each is compared with the boxes kept so far: first their upright bounding
rectangles, in vectors, then the exact overlap of those that meet.
"""
from libc.math cimport fabs
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.rotated cimport BOX, Rectangle, measure, overlap, shared_area
from mmort._kernels.suppression cimport goes_on
from mmort._kernels.workspace cimport take

cdef enum:
    BLOCK = 64  # kept boxes compared together

cdef enum:  # picoseconds per box, estimated: no benchmark row
    MEASURE_COST = 50000
    SUPPRESS_COST = 100000
    COLLECT_COST = 10000


cdef struct Kept:
    double *x
    double *y
    double *reach_x
    double *reach_y
    int32_t *boxes  # indices of their rectangles


cdef inline Kept take_kept(size_t *address, size_t count) noexcept nogil:
    cdef Kept kept
    kept.x = <double *>take(address, count * sizeof(double))
    kept.y = <double *>take(address, count * sizeof(double))
    kept.reach_x = <double *>take(address, count * sizeof(double))
    kept.reach_y = <double *>take(address, count * sizeof(double))
    kept.boxes = <int32_t *>take(address, count * sizeof(int32_t))
    return kept


cdef inline simd_void _find_near(const Kept *kept, ptrdiff_t begin, ptrdiff_t count, const Rectangle *box,
                                 int64_t *near, int64_t *any_near) noexcept nogil:
    """Finds which of `count` kept boxes from position `begin` on have a bounding rectangle that meets the box's."""
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


cdef inline bint _reaches(const Rectangle *kept, const Rectangle *box, real threshold, bint equal) noexcept nogil:
    """Returns whether the overlap is above the threshold, or equal to it if that counts."""
    cdef double common, min_common
    cdef real iou
    if threshold > 0 and kept.area > 0 and box.area > 0:
        min_common = threshold * (kept.area + box.area) / (1 + <double>threshold)
        common = shared_area(kept, box, min_common * 0.999999)  # a margin far above any rounding
        iou = <real>(common / (kept.area + box.area - common))
    else:
        iou = <real>overlap(kept, box, False)
    return iou >= threshold if equal else iou > threshold


cdef inline bint _is_suppressed(const Rectangle *rectangles, const Rectangle *box, const Kept *kept, ptrdiff_t count,
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


cdef inline ptrdiff_t suppress(mmk_call *call, const Rectangle *rectangles, const int32_t *boxes, ptrdiff_t count,
                               real threshold, bint equal, Kept *kept) noexcept nogil:
    """Collects the boxes to keep of `count` boxes by descending score; returns their number, -1 if it is stopped."""
    cdef const Rectangle *box
    cdef ptrdiff_t i, number = 0
    cdef int64_t comparisons = 0, unasked = 0
    for i in range(count):
        unasked += number
        if not goes_on(call, &comparisons, &unasked, count):
            return -1
        box = rectangles + boxes[i]
        if not _is_suppressed(rectangles, box, kept, number, threshold, equal):
            kept.x[number] = box.x
            kept.y[number] = box.y
            kept.reach_x[number] = box.reach_x
            kept.reach_y[number] = box.reach_y
            kept.boxes[number] = boxes[i]
            number += 1
    return number


cdef inline void measure_boxes(const mmk_tensor *boxes, bint clockwise, Rectangle *rectangles, int64_t begin,
                               int64_t end) noexcept nogil:
    cdef int64_t i
    for i in range(begin, end):
        if boxes.type == MMK_FLOAT32:
            measure(<const float *>boxes.data + BOX * i, clockwise, rectangles + i)
        else:
            measure(<const double *>boxes.data + BOX * i, clockwise, rectangles + i)
