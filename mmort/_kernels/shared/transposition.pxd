"""Transposition of matrices: pixels of planes to channels side by side, and results of channels back to planes."""
from element_types cimport real
from mmk cimport *

cdef extern from "region_lanes.h" nogil:
    bint has_transposition() noexcept
    void transpose_lanes(const float *source, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns, float *target,
                         ptrdiff_t line) noexcept

cdef enum:
    BLOCK = 8  # rows and columns of a block, which is transposed in vectors


cdef inline simd_void _transpose_blocks(const real *source, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns,
                                        real *target, ptrdiff_t line) noexcept nogil:
    cdef ptrdiff_t row, column = 0, i, j
    cdef const real *block
    cdef real *transposed
    while column < columns:
        column = min(column, columns - BLOCK)  # the last block may overlap the one before
        row = 0
        while row < rows:
            row = min(row, rows - BLOCK)
            block = source + row * stride + column
            transposed = target + column * line + row
            for j in range(BLOCK):
                for i in range(BLOCK):
                    transposed[j * line + i] = block[i * stride + j]
            row += BLOCK
        column += BLOCK


cdef inline void transpose(const real *source, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t columns, real *target,
                           ptrdiff_t line) noexcept nogil:
    """Sets target[column * line + row] to source[row * stride + column]."""
    cdef ptrdiff_t row, column
    if rows < BLOCK or columns < BLOCK:
        for column in range(columns):
            for row in range(rows):
                target[column * line + row] = source[row * stride + column]
        return
    if real is float:
        if has_transposition():
            transpose_lanes(source, stride, rows, columns, target, line)
            return
    _transpose_blocks(source, stride, rows, columns, target, line)
