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

/* An input or an output.  Nodes and functions share its name; shapes.h defines how its shape is written. */
typedef struct {
    const char *name;
    const char *shape;
    int type;          /* MMK_..., in ONNX */
    int optional;      /* may be left out */
    int copied;        /* before prepare: its values decide about addresses, and another thread may change them */
    int channels_last; /* [N, C, H, W] of less than 2**30 numbers may stay channels-last in memory */
} Formal;

/* A FLAG is an INT in ONNX and a bool in Python.  A PAIR is an INTS of two numbers, which become the kernel's next two
 * attributes; a single INT, or an INTS of one, sets both.  An INTS of four, as MMDeploy writes paddings, must be
 * [height, height, width, width]. */
typedef enum { ATTRIBUTE_INT, ATTRIBUTE_FLOAT, ATTRIBUTE_STRING, ATTRIBUTE_PAIR, ATTRIBUTE_FLAG } AttributeType;

typedef struct {
    const char *name; /* in ONNX */
    AttributeType type;
    int required;          /* has no default */
    mmk_attribute initial; /* the default */
    const char *former;    /* the name in old files; NULL: the same */
    const char *argument;  /* the function's; NULL: `name`.  Two INTs with the same argument are a pair */
    /* If any: the words that the argument may be, NULL-terminated.  The kernel, and an INT in ONNX, get the index. */
    const char *words[MAX_WORDS + 1];
} Attribute;

/* The dtypes that a kernel computes in where its row has float32. */
typedef enum {
    DTYPES_FLOAT32,  /* float32 only */
    DTYPES_FLOATING, /* float32 or float64, the same for all inputs */
    DTYPES_REAL      /* any integer type, bool, float32 or float64 */
} Dtypes;

typedef struct {
    const char *kernel; /* mmk_<kernel>_prepare and mmk_<kernel>_run */
    const char *type;   /* ONNX operator type; NULL: no ONNX operator */
    /* The ONNX domains that it is registered in, the preferred one first; NULL-terminated. */
    const char *domains[MAX_OPERATOR_DOMAINS + 1];
    /* Each terminated by a NULL name; attributes in the kernel's order. */
    Formal inputs[MMK_MAX_INPUTS + 1];
    Formal outputs[MMK_MAX_OUTPUTS + 1];
    Attribute attributes[MMK_MAX_ATTRIBUTES + 1];
    Dtypes dtypes; /* in the numpy API */
} OperatorRow;

/* Shorthands for common attributes. */
#define INT(name_, default_) {.name = name_, .type = ATTRIBUTE_INT, .initial.i = default_}
#define FLAG(name_, default_) {.name = name_, .type = ATTRIBUTE_FLAG, .initial.i = default_}
#define FLOAT(name_, default_) {.name = name_, .type = ATTRIBUTE_FLOAT, .initial.f = default_}
#define PAIR(name_, default_) {.name = name_, .type = ATTRIBUTE_PAIR, .initial.i = default_}
#define REQUIRED_INT(name_) {.name = name_, .type = ATTRIBUTE_INT, .required = 1}
#define REQUIRED_FLOAT(name_) {.name = name_, .type = ATTRIBUTE_FLOAT, .required = 1}

extern const OperatorRow operator_rows[]; /* defined in the library's operators.c; terminated by a NULL kernel */

/* Returns how many of the kernel's attributes an attribute fills. */
static inline int attribute_slots(const Attribute *attribute) { return attribute->type == ATTRIBUTE_PAIR ? 2 : 1; }

/* Returns numpy's name of an element type, "float32"; "unknown" for any other number. */
const char *mmk_element_type_name(int type);

/* Returns the bytes of an element; 0 for a number that is not an element type. */
size_t mmk_element_size(int type);

/* Returns the type in ONNX: "INT", "FLOAT", "STRING" or "INTS". */
const char *mmk_attribute_type_name(AttributeType type);

/* Returns what is wrong with a row, as the text that follows "the row of NAME "; NULL if it is valid. */
const char *mmk_row_error(const OperatorRow *row);

/* Points the inputs that the row has as `copied` at copies in `*memory`, which the front end frees.  Returns 0, or -1
 * if there is not enough memory. */
int mmk_copy_inputs(const OperatorRow *row, mmk_call *call, void **memory);

/* Returns the kernel of that name; NULL if there is none. */
const mmk_operator *mmk_find_kernel(const char *name);
#endif
