"""Stable sorting by 32- or 64-bit keys: the order in which the NMS family visits boxes.

That is by descending score, with NaN last; equal scores, such as 0.0 and -0.0, keep the order of their boxes.  soft_nms
has an order of its own, in soft_nms.pyx.

A radix sort takes time proportional to the number of items and keeps equal keys in order.  For several threads, many
items are first divided into parts by the leading bits of their keys; then each part is sorted for itself.
"""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from mmk cimport MMK_FLOAT32, mmk_call, mmk_parallel, simd_void
from mmort._kernels.shared.counting cimport replace_sizes_by_starts
from mmort._kernels.shared.kernels cimport mmk_item
from mmort._kernels.shared.sort_keys cimport key_of_double, key_of_float

cdef enum:
    MAX_COUNTERS = 6 * 2048  # six digits of 11 bits, or eight of 8
    INSERTION_MAX_ITEMS = 12  # multiclass_nms, 100 to 400 boxes in 80 and 20 classes
    RANK_MAX_ITEMS = 128  # up to which counting smaller keys is faster: nms, uniform, 100 boxes
    LANES = 8  # keys that are compared at once
    SHORT_DIGITS_MAX_ITEMS = 1500  # up to which 256 counters a digit are faster than 2048: nms, uniform, 1000 boxes

cdef enum:
    MIN_DIVIDED_ITEMS = 1 << 13  # for which several threads pay: nms, uniform, 20,000 boxes
    SLICES = 8  # of the items, which are counted and divided on several threads
    PARTS = 8
    LEADING_BITS = 11
    LEADING_DIGITS = 1 << LEADING_BITS

cdef enum:  # picoseconds per item: nms, uniform, 50,000 boxes
    KEY_COST = 2000
    COUNT_COST = 2000
    DIVIDE_COST = 2000
    SORT_COST = 10000


ctypedef fused Key:
    int32_t
    int64_t


cdef struct _Scores:
    const void *numbers
    int type


cdef struct _Division:
    const _Scores *scores  # whose keys are not set yet; or NULL
    mmk_item *items
    mmk_item *spare
    int64_t count
    uint64_t[SLICES] smallest  # keys
    uint64_t[SLICES] largest
    uint64_t first_key
    int shift                  # from the difference to the first key to its leading digit
    uint32_t *sizes            # items of each slice and leading digit
    uint8_t[LEADING_DIGITS] parts  # by leading digit
    uint32_t[SLICES][PARTS] starts  # where the items of a slice and part go
    uint32_t[PARTS + 1] bounds      # of the parts


cdef void _set_keys(const _Scores *scores, mmk_item *items, int64_t begin, int64_t end) noexcept nogil:
    cdef int64_t i
    for i in range(begin, end):
        items[i].index = i
    if scores.type == MMK_FLOAT32:
        for i in range(begin, end):
            items[i].key = key_of_float((<const float *>scores.numbers)[i])
    else:
        for i in range(begin, end):
            items[i].key = key_of_double((<const double *>scores.numbers)[i])


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


cdef simd_void _count_smaller(const Key *keys, ptrdiff_t count, ptrdiff_t padded, uint8_t *smaller) noexcept nogil:
    """Counts for each of `count` keys how many of the first `padded` are smaller."""
    cdef Key key, total
    cdef ptrdiff_t i, j
    for i in range(count):
        key = keys[i]
        total = 0
        for j in range(padded):
            total += keys[j] < key
        smaller[i] = <uint8_t>total


cdef mmk_item *_rank_sort(mmk_item *items, mmk_item *spare, int64_t count) noexcept nogil:
    """Sorts by the number of smaller keys, which takes the same time in any order; returns `spare`."""
    cdef int64_t[RANK_MAX_ITEMS] keys
    cdef int32_t[RANK_MAX_ITEMS] short_keys
    cdef uint8_t[RANK_MAX_ITEMS] smaller, positions
    cdef int64_t padded = (count + LANES - 1) // LANES * LANES, i
    cdef uint64_t bits = 0
    for i in range(count):
        bits |= items[i].key
        keys[i] = <int64_t>(items[i].key ^ (<uint64_t>1 << 63))  # signed, as vectors compare
    if bits >> 32:
        for i in range(count, padded):
            keys[i] = INT64_MAX
        _count_smaller(keys, count, padded, smaller)
    else:
        for i in range(count):
            short_keys[i] = <int32_t>(<uint32_t>items[i].key ^ (<uint32_t>1 << 31))
        for i in range(count, padded):
            short_keys[i] = INT32_MAX
        _count_smaller(short_keys, count, padded, smaller)
    for i in range(count):
        positions[i] = <uint8_t>i
    for i in range(count):
        spare[positions[smaller[i]]] = items[i]
        positions[smaller[i]] += 1  # where the next item of an equal key goes
    return spare


cdef mmk_item *_radix_sort(mmk_item *items, mmk_item *spare, int64_t count) noexcept nogil:
    """Returns the one of `items` and `spare` that holds the result."""
    cdef uint32_t[MAX_COUNTERS] starts  # for each digit, the start of each bucket
    cdef uint32_t *start
    cdef uint64_t key, varying_bits = 0
    cdef mmk_item *sorted_items
    cdef int64_t i
    cdef int digit, digits = 0, bits = 8 if count <= SHORT_DIGITS_MAX_ITEMS else 11, buckets = 1 << bits
    if count <= INSERTION_MAX_ITEMS:
        _insertion_sort(items, count)
        return items
    if count <= RANK_MAX_ITEMS:
        return _rank_sort(items, spare, count)
    for i in range(count):
        varying_bits |= items[i].key ^ items[0].key
    while digits * bits < 64 and varying_bits >> (digits * bits):
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
        replace_sizes_by_starts(start, buckets, 0)
        for i in range(count):
            key = (items[i].key >> (digit * bits)) & (buckets - 1)
            spare[start[key]] = items[i]
            start[key] += 1
        sorted_items = spare
        spare = items
        items = sorted_items
    return items


# ---- on several threads ----------------------------------------------------------------------------------------------

cdef inline int64_t _slice_start(const _Division *division, int64_t slice) noexcept nogil:
    return slice * division.count // SLICES


cdef void _find_bounds(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Sets the keys of slices, and finds their smallest and largest."""
    cdef _Division *division = <_Division *>argument
    cdef uint64_t smallest, largest
    cdef int64_t slice, i
    for slice in range(begin, end):
        if division.scores != NULL:
            _set_keys(division.scores, division.items, _slice_start(division, slice), _slice_start(division, slice + 1))
        smallest = largest = division.items[_slice_start(division, slice)].key
        for i in range(_slice_start(division, slice), _slice_start(division, slice + 1)):
            smallest = min(smallest, division.items[i].key)
            largest = max(largest, division.items[i].key)
        division.smallest[slice] = smallest
        division.largest[slice] = largest


cdef void _count_digits(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    cdef const _Division *division = <const _Division *>argument
    cdef uint32_t *sizes
    cdef int64_t slice, i
    for slice in range(begin, end):
        sizes = division.sizes + slice * LEADING_DIGITS
        memset(sizes, 0, LEADING_DIGITS * sizeof(uint32_t))
        for i in range(_slice_start(division, slice), _slice_start(division, slice + 1)):
            sizes[(division.items[i].key - division.first_key) >> division.shift] += 1


cdef void _choose_parts(_Division *division) noexcept nogil:
    """Groups the leading digits to parts of about the same size."""
    cdef uint32_t[LEADING_DIGITS] sizes
    cdef int[PARTS + 1] first_digits
    cdef uint64_t before = 0
    cdef uint32_t start = 0
    cdef int digit, part = 0, slice
    memset(sizes, 0, sizeof(sizes))
    for slice in range(SLICES):
        for digit in range(LEADING_DIGITS):
            sizes[digit] += division.sizes[slice * LEADING_DIGITS + digit]
    first_digits[0] = 0
    for digit in range(LEADING_DIGITS):
        while part < PARTS - 1 and before * PARTS >= <uint64_t>(part + 1) * <uint64_t>division.count:
            part += 1
            first_digits[part] = digit
        division.parts[digit] = <uint8_t>part
        before += sizes[digit]
    while part < PARTS:
        part += 1
        first_digits[part] = LEADING_DIGITS
    for part in range(PARTS):
        division.bounds[part] = start
        for slice in range(SLICES):
            division.starts[slice][part] = start
            for digit in range(first_digits[part], first_digits[part + 1]):
                start += division.sizes[slice * LEADING_DIGITS + digit]
    division.bounds[PARTS] = start


cdef void _divide(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Moves the items of slices to their parts."""
    cdef _Division *division = <_Division *>argument
    cdef uint32_t *starts
    cdef int64_t slice, i
    cdef int part
    for slice in range(begin, end):
        starts = division.starts[slice]
        for i in range(_slice_start(division, slice), _slice_start(division, slice + 1)):
            part = division.parts[(division.items[i].key - division.first_key) >> division.shift]
            division.spare[starts[part]] = division.items[i]
            starts[part] += 1


cdef void _sort_parts(mmk_call *call, void *argument, int64_t begin, int64_t end) noexcept nogil:
    """Sorts parts, from `spare` to `items`."""
    cdef const _Division *division = <const _Division *>argument
    cdef const mmk_item *part_items
    cdef int64_t part, start, count
    for part in range(begin, end):
        start = division.bounds[part]
        count = division.bounds[part + 1] - start
        part_items = _radix_sort(division.spare + start, division.items + start, count)
        if part_items != division.items + start:
            memcpy(division.items + start, part_items, count * sizeof(mmk_item))


cdef mmk_item *_sort(mmk_call *call, const _Scores *scores, mmk_item *items, mmk_item *spare,
                     int64_t count) noexcept nogil:
    cdef _Division division
    cdef uint64_t largest
    cdef double per_slice = 1e-3 * count / SLICES
    cdef int slice
    if call.max_chunks < 2 or count < MIN_DIVIDED_ITEMS:
        if scores != NULL:
            _set_keys(scores, items, 0, count)
        return _radix_sort(items, spare, count)
    division.scores = scores
    division.items = items
    division.spare = spare
    division.count = count
    division.sizes = <uint32_t *>spare  # until items are moved there
    mmk_parallel(call, SLICES, KEY_COST * per_slice, _find_bounds, &division)
    division.first_key = division.smallest[0]
    largest = division.largest[0]
    for slice in range(1, SLICES):
        division.first_key = min(division.first_key, division.smallest[slice])
        largest = max(largest, division.largest[slice])
    division.shift = 0
    while (largest - division.first_key) >> division.shift >= LEADING_DIGITS:
        division.shift += 1
    mmk_parallel(call, SLICES, COUNT_COST * per_slice, _count_digits, &division)
    _choose_parts(&division)
    mmk_parallel(call, SLICES, DIVIDE_COST * per_slice, _divide, &division)
    mmk_parallel(call, PARTS, SORT_COST * per_slice, _sort_parts, &division)
    return items


cdef public mmk_item *mmk_sort(mmk_call *call, mmk_item *items, mmk_item *spare, int64_t count) noexcept nogil:
    return _sort(call, NULL, items, spare, count)


cdef public mmk_item *mmk_order(mmk_call *call, const void *scores, int type, mmk_item *items, mmk_item *spare,
                                int64_t count) noexcept nogil:
    cdef _Scores keyed
    keyed.numbers = scores
    keyed.type = type
    return _sort(call, &keyed, items, spare, count)
