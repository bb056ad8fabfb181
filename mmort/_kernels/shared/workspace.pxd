"""Dividing a block of scratch memory into arrays.

Addresses are integers, so that the same code also computes the size of a block before it is allocated.
"""
from mmk cimport MMK_FLOAT32


cdef inline void *take(size_t *address, size_t size) noexcept nogil:
    """Returns the next `size` bytes, aligned to 64."""
    cdef void *memory = <void *>address[0]
    address[0] += (size + 63) & ~<size_t>63
    return memory


cdef inline size_t element_size(int type) noexcept nogil:
    """Returns the size of a float32 or float64 number in bytes."""
    return sizeof(float) if type == MMK_FLOAT32 else sizeof(double)
