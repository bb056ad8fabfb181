"""Cutting a call's scratch memory into arrays.

Addresses are kept as integers, so that the same lines also count the bytes before there is any memory.
"""


cdef inline void *take(size_t *address, size_t size) noexcept nogil:
    """The next `size` bytes, aligned to 64."""
    cdef void *memory = <void *>address[0]
    address[0] += (size + 63) & ~<size_t>63
    return memory
