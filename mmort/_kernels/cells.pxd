"""Hash tables of boxes, keyed by the magnitude of their sides (a level) and a cell of the plane."""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

ctypedef union _Bits:
    double value
    uint64_t bits

cdef enum:
    BIAS = 1023  # of a double's exponent


cdef struct Table:
    uint32_t *heads  # by bucket: an entry plus 1; 0: none
    uint32_t *nexts  # by entry: the next in its bucket, plus 1
    int shift        # of the hash, to fit the number of buckets


cdef inline size_t table_size(int64_t count) noexcept nogil:
    """Returns how many numbers `heads` and `nexts` have together for `count` entries."""
    return 5 * count


cdef inline Table empty_table(uint32_t *memory, int64_t count) noexcept nogil:
    """Returns a table for `count` entries, with two to four buckets for each."""
    cdef Table table
    table.heads = memory
    table.nexts = memory + 4 * count
    table.shift = 64
    while <int64_t>1 << (65 - table.shift) <= 4 * count:
        table.shift -= 1
    memset(table.heads, 0, (<size_t>1 << (64 - table.shift)) * sizeof(uint32_t))
    return table


cdef inline void add_entry(const Table *table, uint64_t bucket, ptrdiff_t entry) noexcept nogil:
    table.nexts[entry] = table.heads[bucket]
    table.heads[bucket] = <uint32_t>(entry + 1)


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
