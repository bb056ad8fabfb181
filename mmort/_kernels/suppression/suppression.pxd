"""Limits and checks of arguments that the NMS kernels share, and their sorting by class."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from mmk cimport mmk_call, mmk_fail, mmk_is_stopped
from mmort._kernels.shared.kernels cimport mmk_add, mmk_item, mmk_sort

cdef enum:
    MAX_BOXES = (1 << 29) - 1  # so that four times the number of boxes fits in 32 bits
    MAX_COMPARISONS = 1 << 17  # for each box of a class, on average
    MAX_COMPARED = 2 * MAX_COMPARISONS  # boxes of a class that may all be compared with each other
    COMPARISONS_PER_CHECK = 1 << 20  # whether the call goes on


cdef inline int check_count(mmk_call *call, int64_t count) noexcept nogil:
    if count > MAX_BOXES:
        return mmk_fail(call, "at most %d boxes are supported, got %lld", <int>MAX_BOXES, <long long>count)
    return 0


cdef inline int check_compared(mmk_call *call, int64_t count) noexcept nogil:
    if count > MAX_COMPARED:
        return mmk_fail(call, "at most %d boxes can be compared with each other, got %lld", <int>MAX_COMPARED,
                        <long long>count)
    return 0


cdef inline bint may_continue(mmk_call *call, int64_t *comparisons, int64_t *uncounted, int64_t count) noexcept nogil:
    """Returns whether suppression among `count` boxes goes on; counts the comparisons since the last check."""
    cdef int64_t total
    if uncounted[0] < COMPARISONS_PER_CHECK:
        return True
    total = mmk_add(comparisons, uncounted[0])
    uncounted[0] = 0
    if total > MAX_COMPARISONS * count:
        mmk_fail(call, "%lld boxes of a class take more than %d comparisons each, the limit; pass fewer boxes",
                 <long long>count, <int>MAX_COMPARISONS)
    return not mmk_is_stopped(call)


cdef inline int check_threshold(mmk_call *call, const char *name, double threshold) noexcept nogil:
    if threshold != threshold:
        return mmk_fail(call, "%s must be a number, got nan", name)
    return 0


cdef inline mmk_item *sort_by_class(mmk_call *call, const int64_t *classes, const int64_t *boxes, int64_t count,
                                    mmk_item *items, mmk_item *spare, int32_t *starts,
                                    int64_t *class_count) noexcept nogil:
    """Sorts the ranks of `boxes`, which are in order of descending score, by class (NULL: all are of one class).

    The `index` of an item is a rank.  Sets `starts` to the positions where the classes begin, and the end of the last.
    """
    cdef int64_t rank, smallest = 0, largest = 0
    if classes != NULL and count:
        smallest = largest = classes[boxes[0]]
    for rank in range(count):
        items[rank].key = 0 if classes == NULL else <uint64_t>classes[boxes[rank]]
        items[rank].index = rank
        if classes != NULL:
            smallest = min(smallest, <int64_t>items[rank].key)
            largest = max(largest, <int64_t>items[rank].key)
    if smallest == largest:
        class_count[0] = 1 if count else 0
        starts[0] = 0
        starts[class_count[0]] = <int32_t>count
        return items
    for rank in range(count):
        items[rank].key -= <uint64_t>smallest
    items = mmk_sort(call, items, spare, count)
    class_count[0] = 0
    for rank in range(count):
        if rank == 0 or items[rank].key != items[rank - 1].key:
            starts[class_count[0]] = <int32_t>rank
            class_count[0] += 1
    starts[class_count[0]] = <int32_t>count
    return items
