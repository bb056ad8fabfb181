"""kernels.h for Cython: the functions that kernels of mmort share across files."""
from libc.stdint cimport int8_t, int32_t, int64_t, uint64_t

from mmk cimport mmk_call

cdef extern from "kernels.h" nogil:
    ctypedef struct mmk_item:
        uint64_t key
        int64_t index

    int mmk_load_state(const int8_t *state) noexcept
    void mmk_store_state(int8_t *state, int value) noexcept
    int64_t mmk_add(int64_t *sum, int64_t value) noexcept
    void mmk_prefetch(const void *address) noexcept

    mmk_item *mmk_sort(mmk_call *call, mmk_item *items, mmk_item *spare, int64_t count) noexcept
    mmk_item *mmk_order(mmk_call *call, const void *scores, int type, mmk_item *items, mmk_item *spare,
                        int64_t count) noexcept

    size_t mmk_suppress_size(int type) noexcept
    # both return -1 if the call is stopped
    int mmk_suppress(mmk_call *call, int type, const void *boxes, const int64_t *order, int64_t count,
                     double threshold, double offset, int64_t max_kept, int32_t *flags, void *scratch) noexcept
    int64_t mmk_soft_suppress(mmk_call *call, int type, void *planes, int64_t *indices, int64_t count,
                              double threshold, double sigma, double min_score, int64_t method, double offset,
                              void *scratch) noexcept
    size_t mmk_soft_suppress_size(int type, size_t count) noexcept
