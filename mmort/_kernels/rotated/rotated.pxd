"""Rotated boxes (centre x, centre y, width, height, angle): the area of their intersection.

MMCV takes the hull of the crossings of all pairs of edges, with absolute tolerances: it loses points where edges
nearly coincide, and whole boxes where they are tiny.  Here one box is clipped by the sides of the other, in the frame
in which these are upright: a plain comparison decides on which side a corner is, so nearly equal boxes are no special
case.  Everything is computed in double precision.
"""
from libc.math cimport INFINITY, NAN, cos, fabs, isfinite, sin

from element_types cimport real

cdef enum:
    BOX = 5  # numbers per box


cdef struct Rectangle:
    double area     # 0: it has none, and overlaps nothing; NaN: the box is not finite
    double x
    double y
    double half_width
    double half_height
    double cosine
    double sine
    double reach_x  # half the width of the upright rectangle around it
    double reach_y


cdef inline void measure(const real *box, bint clockwise, Rectangle *rectangle) noexcept nogil:
    """Computes the rectangle of a box, whose angle is clockwise on screen (y downwards) or counter-clockwise."""
    cdef double angle = box[4] if clockwise else -box[4]
    rectangle.x = box[0]
    rectangle.y = box[1]
    rectangle.half_width = fabs(<double>box[2]) / 2
    rectangle.half_height = fabs(<double>box[3]) / 2
    rectangle.cosine = cos(angle)
    rectangle.sine = sin(angle)
    rectangle.reach_x = (fabs(rectangle.cosine) * rectangle.half_width + fabs(rectangle.sine) * rectangle.half_height)
    rectangle.reach_y = (fabs(rectangle.sine) * rectangle.half_width + fabs(rectangle.cosine) * rectangle.half_height)
    rectangle.area = <double>box[2] * <double>box[3]
    if not isfinite((rectangle.x + rectangle.y) + (rectangle.reach_x + rectangle.reach_y) + rectangle.area):
        rectangle.area = NAN
    elif rectangle.area < 0:  # one side is negative
        rectangle.area = 0


cdef inline bint are_apart(const Rectangle *a, const Rectangle *b) noexcept nogil:
    return not (fabs(a.x - b.x) < a.reach_x + b.reach_x and fabs(a.y - b.y) < a.reach_y + b.reach_y)


cdef inline bint _goes_first(const Rectangle *a, const Rectangle *b) noexcept nogil:
    """Returns whether a precedes b in an order of all rectangles, which makes their overlap symmetric."""
    if a.area != b.area:
        return a.area < b.area
    if a.x != b.x:
        return a.x < b.x
    if a.y != b.y:
        return a.y < b.y
    if a.half_width != b.half_width:
        return a.half_width < b.half_width
    if a.cosine != b.cosine:
        return a.cosine < b.cosine
    return a.sine <= b.sine


cdef inline int _clip(const double *along, const double *across, int corners, double sign, double limit,
                      double *clipped_along, double *clipped_across) noexcept nogil:
    """Keeps the part of a convex polygon where sign * along <= limit; returns the number of its corners."""
    cdef int i, j = corners - 1, kept = 0
    cdef double before = limit - sign * along[j], here, part
    for i in range(corners):
        here = limit - sign * along[i]
        if (before < 0) != (here < 0):
            part = before / (before - here)
            clipped_along[kept] = sign * limit
            clipped_across[kept] = across[j] + part * (across[i] - across[j])
            kept += 1
        if here >= 0:
            clipped_along[kept] = along[i]
            clipped_across[kept] = across[i]
            kept += 1
        before = here
        j = i
    return kept


cdef inline bint _is_long(const Rectangle *a, const Rectangle *b, double min_area) noexcept nogil:
    """Returns whether a side is so long that rounding may change the computed area."""
    cdef double longest = max(max(a.half_width, a.half_height), max(b.half_width, b.half_height))
    return longest * longest >= min_area * (1 << 20)


cdef inline bint _cross_below(const Rectangle *a, const Rectangle *b, double cosine, double sine,
                              double min_area) noexcept nogil:
    """Returns whether the strips along the sides of two rectangles share less than an area."""
    if 4 * min(a.half_width, a.half_height) * min(b.half_width, b.half_height) >= min_area:
        return False  # as of most that are not long
    return ((4 * a.half_height * b.half_height < min_area * sine) | (4 * a.half_width * b.half_width < min_area * sine)
            | (4 * a.half_height * b.half_width < min_area * cosine)
            | (4 * a.half_width * b.half_height < min_area * cosine))


cdef inline bint _is_above(const Rectangle *a, const Rectangle *b, double x, double y, double span_x, double span_y,
                           double area) noexcept nogil:
    """Returns whether so much of b surely lies in a, in whose frame b's centre is at (x, y) and its half spans known.

    Beyond a line that does not cut off the centre there is at most as much of b as if b were upright: sections along
    the line are the shorter, the farther they are from the centre.
    """
    cdef double far_x = fabs(x), far_y = fabs(y), spans = 2 * span_x * span_y
    cdef double outside_x = max(span_x - a.half_width + far_x, 0.0) + max(span_x - a.half_width - far_x, 0.0)
    cdef double outside_y = max(span_y - a.half_height + far_y, 0.0) + max(span_y - a.half_height - far_y, 0.0)
    return ((far_x <= a.half_width) & (far_y <= a.half_height)
            & (b.area * (spans - outside_x * span_y - outside_y * span_x) > area * spans))


cdef inline double shared_area(const Rectangle *a, const Rectangle *b, double min_area,
                               double sufficient) noexcept nogil:
    """Returns the area that two rectangles of positive area share.

    That is 0 if it is known to be below `min_area`, and `sufficient` if it is known to be above.  Of long boxes, whose
    computed area rounding may change, neither is known.
    """
    cdef double[8] px, py, qx, qy
    cdef const Rectangle *other
    cdef double dx, dy, cosine, sine, wx, wy, hx, hy, span_x, span_y, width, height, area = 0
    cdef int corners, i
    if a.area < min_area or b.area < min_area:
        return 0
    cosine = a.cosine * b.cosine + a.sine * b.sine
    sine = a.cosine * b.sine - a.sine * b.cosine
    if _cross_below(a, b, fabs(cosine), fabs(sine), min_area) and not _is_long(a, b, min_area):
        return 0
    # b in the frame of a, the smaller one
    if not _goes_first(a, b):
        other = a
        a = b
        b = other
        sine = -sine
    dx = b.x - a.x
    dy = b.y - a.y
    wx = cosine * b.half_width
    wy = sine * b.half_width
    hx = -sine * b.half_height
    hy = cosine * b.half_height
    span_x = fabs(wx) + fabs(hx)
    span_y = fabs(wy) + fabs(hy)
    px[0] = dx * a.cosine + dy * a.sine
    py[0] = dy * a.cosine - dx * a.sine
    width = min(px[0] + span_x, a.half_width) - max(px[0] - span_x, -a.half_width)
    height = min(py[0] + span_y, a.half_height) - max(py[0] - span_y, -a.half_height)
    if not ((width > 0) & (height > 0) & (width * height >= min_area)):
        return 0
    if _is_above(a, b, px[0], py[0], span_x, span_y, sufficient) and not _is_long(a, b, min_area):
        return sufficient
    dx = px[0]
    dy = py[0]
    px[0] = dx + wx + hx
    py[0] = dy + wy + hy
    px[1] = dx - wx + hx
    py[1] = dy - wy + hy
    px[2] = dx - wx - hx
    py[2] = dy - wy - hy
    px[3] = dx + wx - hx
    py[3] = dy + wy - hy
    corners = _clip(px, py, 4, 1, a.half_width, qx, qy)
    corners = _clip(qx, qy, corners, -1, a.half_width, px, py) if corners else 0
    corners = _clip(py, px, corners, 1, a.half_height, qy, qx) if corners else 0
    corners = _clip(qy, qx, corners, -1, a.half_height, py, px) if corners else 0
    for i in range(1, corners - 1):
        area += (px[i] - px[0]) * (py[i + 1] - py[0]) - (px[i + 1] - px[0]) * (py[i] - py[0])
    return min(fabs(area) / 2, a.area)


cdef inline double overlap(const Rectangle *a, const Rectangle *b, bint foreground) noexcept nogil:
    """Returns intersection over union, or over a's area; 0 if one has no area, NaN if one is not finite."""
    cdef double common
    if a.area != a.area or b.area != b.area:
        return a.area + b.area
    if a.area == 0 or b.area == 0 or are_apart(a, b):
        return 0
    common = shared_area(a, b, 0, INFINITY)
    return common / (a.area if foreground else a.area + b.area - common)


cdef inline bint reaches(const Rectangle *a, const Rectangle *b, real threshold, bint equal) noexcept nogil:
    """Returns whether the overlap is above the threshold, or equal to it if that counts."""
    cdef double common, min_common
    cdef real iou
    if threshold > 0 and a.area > 0 and b.area > 0:
        min_common = (threshold / (1 + <double>threshold)) * (a.area + b.area)  # a quotient for all boxes
        common = shared_area(a, b, min_common * 0.999999, min_common * 1.000001)  # margins far above any rounding
        if common == 0:  # of most pairs
            return False
        iou = <real>(common / (a.area + b.area - common))
    else:
        iou = <real>overlap(a, b, False)
    return iou >= threshold if equal else iou > threshold
