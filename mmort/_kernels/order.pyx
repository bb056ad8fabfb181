"""Stable sorting by 32- or 64-bit keys: the order in which the NMS family visits boxes.

A radix sort takes time proportional to the number of items and keeps equal keys in order.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from mmk cimport MMK_FLOAT32
from mmort._kernels.kernels cimport mmk_item
from mmort._kernels.sort_keys cimport key_of_double, key_of_float

cdef enum:
    MAX_COUNTERS = 6 * 2048  # six digits of 11 bits, or eight of 8
    INSERTION_MAX_ITEMS = 64  # up to which insertion sort is faster: nms, uniform, 100 boxes
    SHORT_DIGITS_MAX_ITEMS = 1500  # up to which 256 counters a digit are faster than 2048: nms, uniform, 1000 boxes


cdef void _insertion_sort(mmk_item *items, int64_t count) noexcept nogil:
    cdef int64_t i, j
    cdef mmk_item item
    for i in range(1, count):
        item = items[i]
        j = i
        while j > 0 and items[j - 1].key > item.key:
            items[j] = items[j - 1]
            j -= 1
        items[j] = item


cdef public mmk_item *mmk_sort(mmk_item *items, mmk_item *spare, int64_t count) noexcept nogil:
    cdef uint32_t[MAX_COUNTERS] starts  # for each digit, the start of each bucket
    cdef uint32_t *start
    cdef uint32_t before, size
    cdef uint64_t key, used_bits = 0
    cdef mmk_item *sorted_items
    cdef int64_t i
    cdef int digit, digits = 0, bits = 8 if count <= SHORT_DIGITS_MAX_ITEMS else 11, buckets = 1 << bits
    if count <= INSERTION_MAX_ITEMS:
        _insertion_sort(items, count)
        return items
    for i in range(count):
        used_bits |= items[i].key
    while digits * bits < 64 and used_bits >> (digits * bits):
        digits += 1
    memset(starts, 0, digits * buckets * sizeof(uint32_t))
    for i in range(count):
        key = items[i].key
        for digit in range(digits):
            starts[digit * buckets + ((key >> (digit * bits)) & (buckets - 1))] += 1
    for digit in range(digits):
        start = starts + digit * buckets
        if start[(items[0].key >> (digit * bits)) & (buckets - 1)] == <uint32_t>count:
            continue  # all items have the same digit
        before = 0
        for i in range(buckets):
            size = start[i]
            start[i] = before
            before += size
        for i in range(count):
            key = (items[i].key >> (digit * bits)) & (buckets - 1)
            spare[start[key]] = items[i]
            start[key] += 1
        sorted_items = spare
        spare = items
        items = sorted_items
    return items


cdef public mmk_item *mmk_order(const void *scores, int type, mmk_item *items, mmk_item *spare,
                                int64_t count) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        items[i].index = i
    if type == MMK_FLOAT32:
        for i in range(count):
            items[i].key = key_of_float((<const float *>scores)[i])
    else:
        for i in range(count):
            items[i].key = key_of_double((<const double *>scores)[i])
    return mmk_sort(items, spare, count)
