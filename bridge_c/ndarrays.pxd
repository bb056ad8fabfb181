"""numpy's C API: what the numpy API needs of it."""

cdef extern from *:
    """
    #define NPY_NO_DEPRECATED_API NPY_1_22_API_VERSION
    #define NPY_TARGET_VERSION NPY_1_22_API_VERSION /* what is declared here is older still */
    """

cdef extern from "numpy/arrayobject.h":
    ctypedef Py_ssize_t npy_intp
    ctypedef struct PyArrayObject:
        pass
    enum:
        NPY_DOUBLE

    int import_array "_import_array"() except -1
    bint PyArray_CheckExact(object value)
    bint PyArray_ISCARRAY_RO(PyArrayObject *array)  # dense, in C order, aligned, and in the machine's byte order
    bint PyArray_ISBEHAVED_RO(PyArrayObject *array)  # aligned, and in the machine's byte order
    int PyArray_TYPE(PyArrayObject *array)
    int PyArray_NDIM(PyArrayObject *array)
    npy_intp PyArray_DIM(PyArrayObject *array, int dimension)
    npy_intp PyArray_STRIDE(PyArrayObject *array, int dimension)
    npy_intp PyArray_ITEMSIZE(PyArrayObject *array)
    npy_intp PyArray_SIZE(PyArrayObject *array)
    void *PyArray_DATA(PyArrayObject *array)
    object PyArray_SimpleNew(int rank, npy_intp *shape, int type)
