"""operators.h and shapes.h for Cython: what the numpy API needs of the rows."""
from libc.stdint cimport int64_t

from mmk cimport mmk_attribute, mmk_call, mmk_operator

cdef extern from "operators.h" nogil:
    ctypedef struct Formal:
        const char *name
        const char *shape
        int type
        int optional
        int channels_last

    ctypedef enum AttributeType:
        ATTRIBUTE_INT
        ATTRIBUTE_FLOAT
        ATTRIBUTE_STRING
        ATTRIBUTE_PAIR
        ATTRIBUTE_FLAG

    ctypedef struct Attribute:
        const char *name
        AttributeType type
        int required
        mmk_attribute initial
        const char *argument
        const char *words[5]

    ctypedef enum Dtypes:
        DTYPES_FLOAT32
        DTYPES_FLOATING
        DTYPES_REAL

    ctypedef struct OperatorRow:
        const char *kernel
        Formal inputs[1]  # the size is that in operators.h
        Attribute attributes[1]
        Dtypes dtypes

    const OperatorRow operator_rows[]
    const char *mmk_row_error(const OperatorRow *row) noexcept
    size_t mmk_element_size(int type) noexcept
    int mmk_copy_inputs(const OperatorRow *row, mmk_call *call, void **memory) noexcept
    const mmk_operator *mmk_find_kernel(const char *name) noexcept

cdef extern from "shapes.h" nogil:
    ctypedef enum mmk_shape_kind:
        SHAPE_SIZE
        SHAPE_NAME
        SHAPE_PRODUCT
        SHAPE_UNKNOWN
        SHAPE_REST

    ctypedef struct mmk_shape_token:
        mmk_shape_kind kind
        const char *text
        size_t length
        int64_t size
        int divides

    int mmk_next_dimension(const char **cursor, mmk_shape_token *dimension) noexcept
    int mmk_next_factor(const mmk_shape_token *product, size_t *position, mmk_shape_token *factor) noexcept
