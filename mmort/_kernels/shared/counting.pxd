"""Counting sort: items are counted by bucket, so that each bucket has its range of the result."""
from libc.stdint cimport uint32_t


cdef inline void replace_sizes_by_starts(uint32_t *buckets, ptrdiff_t count, uint32_t start) noexcept nogil:
    """Replaces the sizes of adjacent buckets by where they start; the first one's start is given."""
    cdef uint32_t size
    cdef ptrdiff_t bucket
    for bucket in range(count):
        size = buckets[bucket]
        buckets[bucket] = start
        start += size
