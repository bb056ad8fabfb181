/* deform_product.h - the product of weights and columns, the part of a deformable convolution that takes most time.
 *
 * A panel is 64 bytes of weights for each product that is summed: those of 16 outputs in float32, of 8 in float64.  The
 * outputs of a panel are summed side by side, for several positions at a time, whose columns are read one by one. */
#ifndef MMORT_DEFORM_PRODUCT_H
#define MMORT_DEFORM_PRODUCT_H
#include <stddef.h>

enum { MMK_PANEL = 64 }; /* bytes; a panel and the sums are aligned to it */

typedef struct {
    ptrdiff_t positions;   /* rows of columns and of sums: a multiple of mmk_product_rows() */
    ptrdiff_t position;    /* distance of two rows of columns */
    ptrdiff_t channels;    /* summed: channel after channel, */
    ptrdiff_t taps;        /* and tap after tap in each */
    ptrdiff_t tap;         /* distance of two taps in columns; channels are adjacent */
    ptrdiff_t weight_skip; /* weights of a channel in a panel that belong to other taps */
    ptrdiff_t panels;
    ptrdiff_t panel; /* distance of two panels of weights */
    ptrdiff_t sums;  /* distance of two rows of sums */
} mmk_product_shape; /* distances and weights to skip are counted in numbers, not bytes */

/* Returns the number of positions that the positions of a call are a multiple of. */
ptrdiff_t mmk_product_rows(void);

/* Add the products to the sums, each in its order.  With AVX2 or AVX-512 multiplication and addition are fused, which
 * gives the same bits in both; otherwise products are rounded. */
void mmk_product_float(const mmk_product_shape *shape, const float *columns, const float *weights, float *sums);
void mmk_product_double(const mmk_product_shape *shape, const double *columns, const double *weights, double *sums);
#endif
