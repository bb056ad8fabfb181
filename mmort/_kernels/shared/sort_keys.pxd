"""Keys of floating-point numbers: integers that increase as the number decreases; sorting.pyx sorts by them."""
from libc.stdint cimport uint32_t, uint64_t

ctypedef union Single:
    float value
    uint32_t bits

ctypedef union Double:
    double value
    uint64_t bits


cdef inline uint64_t key_of_float(float value) noexcept nogil:
    """Returns a key below 2**32: equal for 0.0 and -0.0, and the largest for NaN."""
    cdef Single number
    if value != value:
        return 0xFFFFFFFFu
    number.value = value + <float>0  # -0.0 becomes 0.0
    return number.bits if number.bits >> 31 else 0x7FFFFFFFu - number.bits


cdef inline uint64_t key_of_double(double value) noexcept nogil:
    cdef Double number
    if value != value:
        return 0xFFFFFFFFFFFFFFFFu
    number.value = value + <double>0
    return number.bits if number.bits >> 63 else 0x7FFFFFFFFFFFFFFFu - number.bits
