"""deform_product.h for Cython."""
from element_types cimport real

cdef extern from "deform_product.h" nogil:
    enum:
        MMK_PANEL

    ctypedef struct mmk_product_shape:
        ptrdiff_t positions
        ptrdiff_t position
        ptrdiff_t channels
        ptrdiff_t taps
        ptrdiff_t tap
        ptrdiff_t weight_skip
        ptrdiff_t panels
        ptrdiff_t panel
        ptrdiff_t sums

    ptrdiff_t mmk_product_rows() noexcept
    void mmk_product_float(const mmk_product_shape *shape, const float *columns, const float *weights,
                           float *sums) noexcept
    void mmk_product_double(const mmk_product_shape *shape, const double *columns, const double *weights,
                            double *sums) noexcept


cdef inline void multiply(const mmk_product_shape *shape, const real *columns, const real *weights,
                          real *sums) noexcept nogil:
    if real is float:
        mmk_product_float(shape, columns, weights, sums)
    else:
        mmk_product_double(shape, columns, weights, sums)
