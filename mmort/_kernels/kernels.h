/* kernels.h - the functions that mmort's kernels call of each other. */
#ifndef MMORT_KERNELS_H
#define MMORT_KERNELS_H
#include <stddef.h>
#include <stdint.h>

/* order.pyx: stable sorting.  `items` and `spare` have room for `count` each; returns the one that holds the
 * result. */

typedef struct {
    uint64_t key;
    int64_t index;
} mmk_item;

/* By ascending key. */
mmk_item *mmk_sort(mmk_item *items, mmk_item *spare, int64_t count);

/* By descending score (float32 or float64); NaN comes last.  Fills in the items; `index` is the index in `scores`. */
mmk_item *mmk_order(const void *scores, int type, mmk_item *items, mmk_item *spare, int64_t count);

/* nms.pyx: suppression among boxes of one class.  `order` has the boxes' indices in `boxes`, by descending score; a
 * flag is set for each box that a better one suppresses, or that is not among the `max_kept` best kept (0: all).
 * Scratch memory: mmk_suppress_size bytes a box, aligned for a double. */
size_t mmk_suppress_size(int type);
void mmk_suppress(int type, const void *boxes, const int64_t *order, int64_t count, double threshold, double offset,
                  int64_t max_kept, int32_t *flags, void *scratch);

/* soft_nms.pyx: the same for Soft-NMS.  `planes` holds x1, y1, x2, y2, area and score of all boxes, plane after plane;
 * on return the boxes left come first, by descending score, and their number is returned.  `method`: 0 naive, 1 linear,
 * 2 gaussian.  `indices` follow the boxes. */
int64_t mmk_soft_suppress(int type, void *planes, int64_t *indices, int64_t count, double threshold, double sigma,
                          double min_score, int64_t method, double offset);
#endif
