"""group_norm: normalizes each group of channels to mean 0 and variance 1, then scales and shifts each channel."""
from libc.math cimport sqrt
from libc.stdint cimport int64_t

from mmk cimport *

cdef enum:
    X  # inputs
    SCALE
    BIAS

cdef enum:
    NUM_GROUPS  # attributes
    EPSILON


cdef simd_void _normalize(const float *x, const float *scale, const float *bias, float *y, ptrdiff_t channels,
                          ptrdiff_t pixels, double epsilon) noexcept nogil:
    """Normalizes a group: `channels` planes of `pixels` each, one after the other."""
    cdef ptrdiff_t count = channels * pixels, c, i
    cdef double mean = 0, variance = 0, factor
    for i in range(count):
        mean += x[i]
    mean /= count
    for i in range(count):
        variance += (x[i] - mean) * (x[i] - mean)
    variance /= count
    for c in range(channels):
        factor = scale[c] / sqrt(variance + epsilon)
        for i in range(c * pixels, (c + 1) * pixels):
            y[i] = <float>((x[i] - mean) * factor + bias[c])


cdef public int mmk_group_norm_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[X]
    cdef int64_t groups = call.attributes[NUM_GROUPS].i, work
    if mmk_check_shape(call, X, "x", "[N, C, ...]"):
        return -1
    if mmk_check_shape(call, SCALE, "scale", "[C]") or mmk_check_shape(call, BIAS, "bias", "[C]"):
        return -1
    if groups < 1 or x.shape[1] % groups:
        return mmk_fail(call, "num_groups must divide C = %lld, got %lld", <long long>x.shape[1], <long long>groups)
    if mmk_set_output(call, 0, MMK_FLOAT32, x.rank, x.shape):
        return -1
    if x.size:  # a unit of work is a group of an image
        work = x.shape[0] * groups
        mmk_add_phase(call, work, 2.0 * x.size / work)  # about 2 nanoseconds per element
    return 0


cdef public void mmk_group_norm_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                    void *scratch) noexcept nogil:
    cdef const float *x = <const float *>call.inputs[X].data
    cdef const float *scale = <const float *>call.inputs[SCALE].data
    cdef const float *bias = <const float *>call.inputs[BIAS].data
    cdef float *y = <float *>call.outputs[0].data
    cdef ptrdiff_t groups = call.attributes[NUM_GROUPS].i, channels = call.inputs[X].shape[1] // groups
    cdef ptrdiff_t count = call.inputs[X].size // (call.inputs[X].shape[0] * groups), group, first
    for group in range(begin, end):
        first = group % groups * channels
        _normalize(x + group * count, scale + first, bias + first, y + group * count, channels, count // channels,
                   call.attributes[EPSILON].f)
