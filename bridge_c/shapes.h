/* shapes.h - the language in which rows and kernels write shapes, "[K, C, output_height, output_width]", and its only
 * parser.
 *
 * In an input, a name has the same size throughout the call.  In an output, it is the dimension of that name in an
 * input, or the value of that attribute.  "M*D" and "C/groups" are computed from names and numbers, the size of "?" is
 * known only after the run, and "..." matches any further dimensions; in an output, it is all of the first input's. */
#ifndef MMORT_SHAPES_H
#define MMORT_SHAPES_H
#include <stddef.h>
#include <stdint.h>

typedef enum { SHAPE_SIZE, SHAPE_NAME, SHAPE_PRODUCT, SHAPE_UNKNOWN, SHAPE_REST } mmk_shape_kind;

/* A dimension of a shape, or a factor of a PRODUCT. */
typedef struct {
    mmk_shape_kind kind;
    const char *text; /* as written, not NUL-terminated */
    size_t length;
    int64_t size; /* of a SIZE */
    int divides;  /* whether a factor follows a "/" */
} mmk_shape_token;

/* Reads the next dimension; returns 0 at the end.  Set `*cursor` to the shape's text before the first call. */
int mmk_next_dimension(const char **cursor, mmk_shape_token *dimension);

/* Reads the next factor of a PRODUCT; returns 0 at the end.  Set `*position` to 0 before the first call. */
int mmk_next_factor(const mmk_shape_token *product, size_t *position, mmk_shape_token *factor);
#endif
