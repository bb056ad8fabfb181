/* operators.h - what the bridge knows of an operator: one row of the library's table in operators.c. */
#ifndef MMORT_OPERATORS_H
#define MMORT_OPERATORS_H
#include "mmk.h"

/* Shapes are written as the kernels' checks write them, "[K, C, output_height, output_width]".  In an output a name is
 * the dimension of that name in an input, or the value of that attribute; "M*D" is a product of dimensions; "?" is
 * known only after the run; "..." is all dimensions of the first input. */
typedef struct {
    const char *name;
    const char *shape;
    int type;     /* MMK_... */
    int optional; /* may be left out */
} Formal;

/* A PAIR is an INTS of two, the kernel's next two attributes; one INT, or an INTS of one, stands for both.  MMDeploy
 * writes paddings as four, [height, height, width, width]. */
typedef enum { ATTRIBUTE_INT, ATTRIBUTE_FLOAT, ATTRIBUTE_STRING, ATTRIBUTE_PAIR } AttributeType;

typedef struct {
    const char *name;
    AttributeType type;
    int required;           /* there is no default */
    mmk_attribute initial;  /* the default */
    const char *former;     /* a name that old files use; NULL: none */
    const char *choices[5]; /* of a STRING; the kernel gets the position */
} Attribute;

typedef struct {
    const char *kernel;     /* in kernels.h */
    const char *type;       /* ONNX operator type */
    const char *domains[3]; /* ONNX domains that have it, closed by NULL */
    /* Each closed by a NULL name; attributes in the kernel's order. */
    Formal inputs[MMK_MAX_INPUTS + 1];
    Formal outputs[MMK_MAX_OUTPUTS + 1];
    Attribute attributes[MMK_MAX_ATTRIBUTES + 1];
} OperatorRow;

/* How most attributes of a row are written. */
#define INT(name_, default_) {.name = name_, .type = ATTRIBUTE_INT, .initial.i = default_}
#define FLOAT(name_, default_) {.name = name_, .type = ATTRIBUTE_FLOAT, .initial.f = default_}
#define PAIR(name_, default_) {.name = name_, .type = ATTRIBUTE_PAIR, .initial.i = default_}
#define REQUIRED_INT(name_) {.name = name_, .type = ATTRIBUTE_INT, .required = 1}
#define REQUIRED_FLOAT(name_) {.name = name_, .type = ATTRIBUTE_FLOAT, .required = 1}

enum { MOST_OPERATORS = 64, MOST_DOMAINS = 8 }; /* of a library */

extern const OperatorRow operator_rows[]; /* the library's, in its own operators.c; closed by a NULL type */
#endif
