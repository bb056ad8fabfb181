"""Hash tables of boxes, keyed by the magnitude of their sides (a level) and a cell of the plane."""
from libc.stdint cimport int64_t, uint64_t

ctypedef union _Bits:
    double value
    uint64_t bits

cdef enum:
    BIAS = 1023  # of a double's exponent


cdef inline uint64_t bucket_of(int64_t level_x, int64_t level_y, int64_t x, int64_t y, int shift) noexcept nogil:
    cdef uint64_t key = (<uint64_t>level_x * 0x9E3779B97F4A7C15u + <uint64_t>level_y * 0xC2B2AE3D27D4EB4Fu
                         + <uint64_t>x * 0x165667B19E3779F9u + <uint64_t>y * 0xD6E8FEB86659FD93u)
    key ^= key >> 32
    return key * 0xFF51AFD7ED558CCDu >> shift


cdef inline int64_t floor_of(double value) noexcept nogil:
    # libm's floor is a call where the baseline has no instruction for it
    cdef int64_t towards_zero = <int64_t>value
    return towards_zero - (value < towards_zero)


cdef inline int64_t level_of(double side) noexcept nogil:
    """Returns the exponent of a positive side."""
    cdef _Bits number
    number.value = side
    return <int64_t>(number.bits >> 52)


cdef inline double largest_side(int64_t level) noexcept nogil:
    """Returns a number that no side of the level exceeds."""
    cdef _Bits number
    number.bits = <uint64_t>min(level + 1, 2 * BIAS) << 52
    return number.value


cdef inline double per_largest_side(int64_t level) noexcept nogil:
    """Returns 1 / largest_side(level), for sides from 1e-300 to 1e300."""
    cdef _Bits number
    number.bits = <uint64_t>(2 * BIAS - (level + 1)) << 52
    return number.value
