"""group_norm: normalizes each group of an image's channels to mean 0 and variance 1 (Wu and He 2018).

Sums are of differences and in double precision, so that neither large groups nor a large mean cost precision.
"""
from libc.math cimport INFINITY, sqrt
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *

cdef enum:
    X  # inputs
    SCALE
    BIAS

cdef enum:
    NUM_GROUPS  # attributes
    EPSILON

cdef enum:
    LANES = 16  # partial sums, so that additions need not wait for each other

cdef enum:  # picoseconds per element; portable.py, 256 x 64 x 64, 32 groups
    NORMALIZE = 1000


cdef inline double _sum(const real *x, ptrdiff_t count, double centre, bint squared) noexcept nogil:
    """Returns the sum of the differences from `centre`, or of their squares; the order depends on no vector width."""
    cdef double[LANES] total
    cdef double difference
    cdef ptrdiff_t i = 0, k
    for k in range(LANES):
        total[k] = 0
    while i + LANES <= count:
        for k in range(LANES):
            difference = x[i + k] - centre
            total[k] += difference * difference if squared else difference
        i += LANES
    for k in range(count - i):
        difference = x[i + k] - centre
        total[k] += difference * difference if squared else difference
    for k in range(1, LANES):
        total[0] += total[k]
    return total[0]


cdef simd_void _normalize(const real *x, const real *scale, const real *bias, real *y, ptrdiff_t channels,
                          ptrdiff_t pixels, real epsilon) noexcept nogil:
    """Normalizes a group: `channels` planes of `pixels` each, one after the other."""
    cdef ptrdiff_t count = channels * pixels, c, i
    cdef double mean = x[0] + _sum(x, count, x[0], False) / count
    cdef double deviation = sqrt(_sum(x, count, mean, True) / count + epsilon)
    cdef double factor, shift
    for c in range(channels):
        factor = scale[c] / deviation
        shift = bias[c]
        for i in range(c * pixels, (c + 1) * pixels):
            y[i] = <real>((x[i] - mean) * factor + shift)


cdef void _groups(const mmk_call *call, const real *x, const real *scale, const real *bias, real *y, int64_t begin,
                  int64_t end) noexcept nogil:
    """Normalizes groups [begin, end), counted through all images."""
    cdef ptrdiff_t groups = call.attributes[NUM_GROUPS].i, channels = call.inputs[X].shape[1] // groups
    cdef ptrdiff_t count = call.inputs[X].size // (call.inputs[X].shape[0] * groups), group, first
    for group in range(begin, end):
        first = group % groups * channels
        _normalize(x + group * count, scale + first, bias + first, y + group * count, channels, count // channels,
                   <real>call.attributes[EPSILON].f)


cdef public int mmk_group_norm_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[X]
    cdef int64_t groups = call.attributes[NUM_GROUPS].i
    cdef double epsilon = call.attributes[EPSILON].f
    if mmk_check_shape(call, X, "x", "[N, C, ...]"):
        return -1
    if mmk_check_shape(call, SCALE, "scale", "[C]") or mmk_check_shape(call, BIAS, "bias", "[C]"):
        return -1
    if groups < 1:
        return mmk_fail(call, "num_groups must be at least 1, got %lld", <long long>groups)
    if x.shape[1] % groups:
        return mmk_fail(call, "num_groups must divide C = %lld, got %lld", <long long>x.shape[1], <long long>groups)
    if not (0 <= epsilon < INFINITY):
        return mmk_fail(call, "epsilon must be finite and at least 0, got %g", epsilon)
    if mmk_set_output(call, 0, x.type, x.rank, x.shape):
        return -1
    if x.size:
        mmk_add_phase(call, x.shape[0] * groups, 1e-3 * NORMALIZE * x.size / (x.shape[0] * groups))
    return 0


cdef public void mmk_group_norm_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                    void *scratch) noexcept nogil:
    cdef mmk_tensor *inputs = call.inputs
    cdef void *y = call.outputs[0].data
    if inputs[X].type == MMK_FLOAT32:
        _groups(call, <const float *>inputs[X].data, <const float *>inputs[SCALE].data,
                <const float *>inputs[BIAS].data, <float *>y, begin, end)
    else:
        _groups(call, <const double *>inputs[X].data, <const double *>inputs[SCALE].data,
                <const double *>inputs[BIAS].data, <double *>y, begin, end)
