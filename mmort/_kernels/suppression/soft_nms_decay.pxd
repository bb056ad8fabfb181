"""soft_nms: the factors by which overlaps lower scores."""
from libc.math cimport exp
from libc.stdint cimport int64_t, uint64_t

from element_types cimport real
from mmk cimport *

cdef enum:
    NAIVE  # methods
    LINEAR
    GAUSSIAN

cdef enum:
    DOUBLE_BIAS = 1023  # of the exponent
    DOUBLE_FRACTION_BITS = 52

ctypedef union _Double:
    double value
    uint64_t bits


cdef struct Rule:
    double iou_threshold, sigma, min_score, offset
    int64_t method


cdef inline double exp_of_float(double x) noexcept nogil:
    """Returns exp of a float32's value, to be rounded to float32, in operations that become vectors.

    Rounded, it is glibc's exp for every float32: all were tried.
    """
    cdef _Double shifted, power
    cdef double n, r, r2, r4, r8
    x = -200 if x < -200 else x  # both limits are beyond what a float32 holds; NaN stays
    x = 200 if x > 200 else x
    shifted.value = x * 1.4426950408889634 + 6755399441055744.0  # 1.5 * 2**52: rounds, and has n in its lowest bits
    n = shifted.value - 6755399441055744.0
    r = (x - n * 0.6931471803691238) - n * 1.9082149292705877e-10  # log 2 in two parts
    r2 = r * r
    r4 = r2 * r2
    r8 = r4 * r4
    power.bits = (shifted.bits + DOUBLE_BIAS) << DOUBLE_FRACTION_BITS
    return power.value * (
        ((1 + r) + r2 * (1.0 / 2 + r * (1.0 / 6)))
        + r4 * ((1.0 / 24 + r * (1.0 / 120)) + r2 * (1.0 / 720 + r * (1.0 / 5040)))
        + r8 * ((1.0 / 40320 + r * (1.0 / 362880)) + r2 * (1.0 / 3628800 + r * (1.0 / 39916800))
                + r4 * (1.0 / 479001600.0 + r * (1.0 / 6227020800.0))))


cdef inline real gaussian_factor(real iou, real sigma) noexcept nogil:
    """Returns the gaussian factor: in double, then rounded, the same bits with every C library."""
    if sizeof(real) == sizeof(float):
        return <real>exp_of_float(<double>(-(iou * iou) / sigma))
    if iou == 0 and sigma != 0:
        return 1  # exp(-0), as of most pairs of boxes
    return <real>exp(<double>(-(iou * iou) / sigma))


cdef inline simd_void find_factors(real *ious, ptrdiff_t count, const Rule *rule) noexcept nogil:
    """Replaces overlaps by the factors of the scores."""
    cdef real threshold = <real>rule.iou_threshold, sigma = <real>rule.sigma
    cdef bint linear = rule.method == LINEAR
    cdef ptrdiff_t i
    if rule.method == GAUSSIAN:
        for i in range(count):
            ious[i] = gaussian_factor(ious[i], sigma)
    else:
        for i in range(count):
            ious[i] = (1 - ious[i] if linear else <real>0) if ious[i] >= threshold else <real>1
