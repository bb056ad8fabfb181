/* operators.h - an operator's row: the one record of its inputs, outputs, attributes, types, words and defaults.
 *
 * A library lists its rows in operators.c.  The numpy API checks and converts arguments by them, the ONNX Runtime
 * library makes custom operators of them, and describe.c hands them out, so that the torch API, the exporters and the
 * tests are derived from them too. */
#ifndef MMORT_OPERATORS_H
#define MMORT_OPERATORS_H
#include "mmk.h"

enum { MAX_OPERATORS = 64, MAX_DOMAINS = 8 }; /* of a library */
enum { MAX_OPERATOR_DOMAINS = 2, MAX_WORDS = 4 };

/* `name` is both the node's and the function's.  shapes.h explains how shapes are written. */
typedef struct {
    const char *name;
    const char *shape;
    int type;     /* MMK_..., of the ONNX operator */
    int optional; /* may be left out */
} Formal;

/* A FLAG is an INT in ONNX and a bool in Python.  A PAIR is an INTS of two, the kernel's next two attributes; one INT,
 * or an INTS of one, stands for both.  MMDeploy writes paddings as four, [height, height, width, width]. */
typedef enum { ATTRIBUTE_INT, ATTRIBUTE_FLOAT, ATTRIBUTE_STRING, ATTRIBUTE_PAIR, ATTRIBUTE_FLAG } AttributeType;

typedef struct {
    const char *name; /* in ONNX */
    AttributeType type;
    int required;          /* there is no default */
    mmk_attribute initial; /* the default */
    const char *former;    /* a name that old files use; NULL: none */
    const char *argument;  /* of the function; NULL: `name`.  Two INTs of one argument are a pair */
    /* Closed by NULL: the argument is one of these, and the kernel and an INT get its index. */
    const char *words[MAX_WORDS + 1];
} Attribute;

/* The dtypes that a kernel computes in, where ONNX has float32. */
typedef enum {
    DTYPES_FLOAT32,  /* float32 only */
    DTYPES_FLOATING, /* float32 or float64, the same for all inputs */
    DTYPES_REAL      /* any integers, bool, float32 or float64 */
} Dtypes;

typedef struct {
    const char *kernel; /* mmk_<kernel>_prepare and mmk_<kernel>_run */
    const char *type;   /* ONNX operator type; NULL: no ONNX operator */
    /* The ONNX domains that have it, the preferred one first; closed by NULL. */
    const char *domains[MAX_OPERATOR_DOMAINS + 1];
    /* Each closed by a NULL name; attributes in the kernel's order. */
    Formal inputs[MMK_MAX_INPUTS + 1];
    Formal outputs[MMK_MAX_OUTPUTS + 1];
    Attribute attributes[MMK_MAX_ATTRIBUTES + 1];
    Dtypes dtypes; /* of the numpy API */
} OperatorRow;

/* How most attributes of a row are written. */
#define INT(name_, default_) {.name = name_, .type = ATTRIBUTE_INT, .initial.i = default_}
#define FLAG(name_, default_) {.name = name_, .type = ATTRIBUTE_FLAG, .initial.i = default_}
#define FLOAT(name_, default_) {.name = name_, .type = ATTRIBUTE_FLOAT, .initial.f = default_}
#define PAIR(name_, default_) {.name = name_, .type = ATTRIBUTE_PAIR, .initial.i = default_}
#define REQUIRED_INT(name_) {.name = name_, .type = ATTRIBUTE_INT, .required = 1}
#define REQUIRED_FLOAT(name_) {.name = name_, .type = ATTRIBUTE_FLOAT, .required = 1}

extern const OperatorRow operator_rows[]; /* the library's, in its own operators.c; closed by a NULL kernel */

/* How many of the kernel's attributes an attribute fills. */
static inline int attribute_slots(const Attribute *attribute) { return attribute->type == ATTRIBUTE_PAIR ? 2 : 1; }

/* "float32" and the like; "unknown" for a number that is not an element type. */
const char *mmk_element_type_name(int type);

/* Bytes of an element; 0 for a number that is not an element type. */
size_t mmk_element_size(int type);

/* "INT", "FLOAT", "STRING" or "INTS". */
const char *mmk_attribute_type_name(AttributeType type);

/* Returns what is wrong with a row, as the end of a sentence that begins with it; NULL: nothing. */
const char *mmk_row_error(const OperatorRow *row);

/* The kernel of that name; NULL if there is none. */
const mmk_operator *mmk_find_kernel(const char *name);
#endif
