/* kernels.h - the functions that kernels of mmort share across files. */
#ifndef MMORT_KERNELS_H
#define MMORT_KERNELS_H
#include <stddef.h>
#include <stdint.h>

#include "mmk.h"

/* Numbers that several threads read and write; no other memory depends on their order. */
#if defined(__GNUC__)
static inline int mmk_load_state(const int8_t *state) { return __atomic_load_n(state, __ATOMIC_RELAXED); }
static inline void mmk_store_state(int8_t *state, int value) {
    __atomic_store_n(state, (int8_t)value, __ATOMIC_RELAXED);
}
static inline int64_t mmk_add(int64_t *sum, int64_t value) { return __atomic_add_fetch(sum, value, __ATOMIC_RELAXED); }
#else
static inline int mmk_load_state(const volatile int8_t *state) { return *state; }
static inline void mmk_store_state(volatile int8_t *state, int value) { *state = (int8_t)value; }
static inline int64_t mmk_add(volatile int64_t *sum, int64_t value) { return *sum += value; }
#endif

/* Begins to load memory that is read soon, which the processor cannot foresee. */
#if defined(__GNUC__)
static inline void mmk_prefetch(const void *address) { __builtin_prefetch(address); }
#else
static inline void mmk_prefetch(const void *address) { (void)address; }
#endif

/* sorting.pyx: stable sorting, of many items on several threads.  `items` and `spare` have room for `count` items each;
 * the functions return the one that holds the result. */

typedef struct {
    uint64_t key;
    int64_t index;
} mmk_item;

/* Sorts by ascending key. */
mmk_item *mmk_sort(mmk_call *call, mmk_item *items, mmk_item *spare, int64_t count);

/* Sorts by descending score (float32 or float64), NaN last.  Sets the items; `index` is the index in `scores`. */
mmk_item *mmk_order(mmk_call *call, const void *scores, int type, mmk_item *items, mmk_item *spare, int64_t count);

/* nms.pyx: suppresses boxes of one class.  `order` has their indices in `boxes`, by descending score.  Sets a flag for
 * each box that a box of higher score suppresses, and for all after the first `max_kept` that are kept (0: no limit).
 * `scratch` has mmk_suppress_size bytes per box, aligned for a double.  Returns 0, or -1 if the call is stopped. */
size_t mmk_suppress_size(int type);
int mmk_suppress(mmk_call *call, int type, const void *boxes, const int64_t *order, int64_t count, double threshold,
                 double offset, int64_t max_kept, int32_t *flags, void *scratch);

/* soft_nms.pyx: the same for Soft-NMS.  `planes` has x1, y1, x2, y2, area and score of all boxes, plane after plane.
 * Moves the scores of the remaining boxes to the front, in the order in which they are emitted, and `indices` with
 * them; returns their number, or -1 if the call is stopped.  The other planes are then in any order.  `method`: 0
 * naive, 1 linear, 2 gaussian.  `scratch` has mmk_soft_suppress_size bytes for `count` boxes. */
size_t mmk_soft_suppress_size(int type, size_t count);
int64_t mmk_soft_suppress(mmk_call *call, int type, void *planes, int64_t *indices, int64_t count, double threshold,
                          double sigma, double min_score, int64_t method, double offset, void *scratch);
#endif
