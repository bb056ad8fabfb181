/* shapes.h - the language in which rows and kernels write shapes, "[K, C, output_height, output_width]", parsed once.
 *
 * In an input a name stands for one size throughout the call.  In an output it is the dimension of that name in an
 * input, or the value of that attribute.  "M*D" and "C/groups" are computed from names and numbers, "?" is known only
 * after the run, and "..." stands for any further dimensions; in an output, all of the first input's. */
#ifndef MMORT_SHAPES_H
#define MMORT_SHAPES_H
#include <stddef.h>
#include <stdint.h>

typedef enum { SHAPE_SIZE, SHAPE_NAME, SHAPE_PRODUCT, SHAPE_UNKNOWN, SHAPE_REST } mmk_shape_kind;

/* One dimension of a written shape, or one factor of a PRODUCT. */
typedef struct {
    mmk_shape_kind kind;
    const char *text; /* as it is written, not closed by a zero */
    size_t length;
    int64_t size; /* of a SIZE */
    int divides;  /* of a factor: it stands behind "/" */
} mmk_shape_token;

/* Reads the next dimension; 0 at the end.  `cursor` begins at the shape's text. */
int mmk_next_dimension(const char **cursor, mmk_shape_token *dimension);

/* Reads the next factor of a PRODUCT, in which it begins at `*position` = 0; 0 at the end. */
int mmk_next_factor(const mmk_shape_token *product, size_t *position, mmk_shape_token *factor);
#endif
