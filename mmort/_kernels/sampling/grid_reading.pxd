"""grid_sample: reading the pixels of a tile of positions.

They are read from a plane, or where channels are adjacent, as in a copy of LANES of them, so that one vector load does
the work of LANES scalar ones.  Zeros are read instead of pixels that must not be: NaN or infinity there must not
spread into a sum.
"""
from libc.stdint cimport int32_t
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.sampling.grid_locations cimport TILE, Geometry, MmkGridMap
from mmort._kernels.shared.transposition cimport transpose

cdef extern from "grid_lanes.h" nogil:
    ctypedef struct MmkPlanes:
        const float *x
        ptrdiff_t size
        ptrdiff_t count
        float *y
        ptrdiff_t line
    void sample_nearest_lanes(int lanes, const MmkGridMap *map, const float *grid, ptrdiff_t count,
                              const MmkPlanes *planes) noexcept
    void sample_bilinear_lanes(int lanes, const MmkGridMap *map, ptrdiff_t below, const float *grid, ptrdiff_t count,
                               const MmkPlanes *planes) noexcept
    void locate_bilinear_lanes(int lanes, const MmkGridMap *map, const float *grid, ptrdiff_t count, int32_t *pixels,
                               float *weights, ptrdiff_t line) noexcept
    void gather_bilinear_lanes(int lanes, const MmkPlanes *planes, ptrdiff_t below, const int32_t *pixels,
                               const float *weights, ptrdiff_t line, ptrdiff_t count) noexcept

cdef enum:
    LANES = 8  # adjacent channels that are read together


# ---- from planes -----------------------------------------------------------------------------------------------------

cdef inline simd_void nearest_from_plane(const real *plane, const int32_t *pixels, ptrdiff_t count,
                                         real *y) noexcept nogil:
    cdef real[TILE] line  # known not to overlap anything
    cdef ptrdiff_t p
    cdef real value
    for p in range(count):
        value = plane[pixels[p] if pixels[p] >= 0 else 0]
        line[p] = value if pixels[p] >= 0 else <real>0
    memcpy(y, line, count * sizeof(real))


cdef inline simd_void bilinear_from_plane(const real *plane, const Geometry *g, const int32_t *pixels,
                                          const real *weights, ptrdiff_t count, real *y) noexcept nogil:
    cdef real[TILE] line
    cdef ptrdiff_t p, right = g.right, below = g.below
    cdef real a, b, c, d, zero = 0
    for p in range(count):
        a = plane[pixels[p]]
        b = plane[pixels[p] + right]
        c = plane[pixels[p] + below]
        d = plane[pixels[p] + right + below]
        a = a if weights[p] >= zero else zero
        b = b if weights[TILE + p] >= zero else zero
        c = c if weights[2 * TILE + p] >= zero else zero
        d = d if weights[3 * TILE + p] >= zero else zero
        line[p] = ((((zero + a * weights[p]) + b * weights[TILE + p]) + c * weights[2 * TILE + p])
                   + d * weights[3 * TILE + p])
    memcpy(y, line, count * sizeof(real))


cdef inline real _value(const real *plane, ptrdiff_t row, ptrdiff_t column, ptrdiff_t end,
                        ptrdiff_t width) noexcept nogil:
    return plane[row + column] if row < end and column < width else <real>0


cdef inline simd_void bicubic_from_plane(const real *plane, const Geometry *g, const int32_t *columns,
                                         const int32_t *rows, const real *x_weights, const real *y_weights,
                                         ptrdiff_t count, real *y) noexcept nogil:
    cdef real[4 * TILE] sums  # of the columns
    cdef real[TILE] line
    cdef ptrdiff_t p, tap, stride = g.stride, width = g.width * g.step, end = g.height * stride
    cdef bint adjacent = g.step == 1
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    cdef const int32_t *i
    cdef const int32_t *j
    cdef real w0, w1, w2, w3
    for p in range(count):
        i = rows + 4 * p
        j = columns + 4 * p
        w0 = y_weights[4 * p]
        w1 = y_weights[4 * p + 1]
        w2 = y_weights[4 * p + 2]
        w3 = y_weights[4 * p + 3]
        if adjacent and j[3] - j[0] == 3 and j[3] < width and i[3] - i[0] == 3 * stride and i[3] < end:
            a = plane + i[0] + j[0]  # in their natural order
            b = a + stride
            c = b + stride
            d = c + stride
            for tap in range(4):
                sums[4 * p + tap] = ((a[tap] * w0 + b[tap] * w1) + c[tap] * w2) + d[tap] * w3
        else:
            for tap in range(4):
                sums[4 * p + tap] = (((_value(plane, i[0], j[tap], end, width) * w0
                                       + _value(plane, i[1], j[tap], end, width) * w1)
                                      + _value(plane, i[2], j[tap], end, width) * w2)
                                     + _value(plane, i[3], j[tap], end, width) * w3)
    for p in range(4 * count):
        sums[p] = sums[p] * x_weights[p]
    for p in range(count):
        line[p] = ((sums[4 * p] + sums[4 * p + 1]) + sums[4 * p + 2]) + sums[4 * p + 3]
    memcpy(y, line, count * sizeof(real))


# ---- from adjacent channels ------------------------------------------------------------------------------------------
# The number of vectors comes from the geometry: if it were a constant, gcc 12 would unroll the loop over the lanes and
# vectorise the one over the positions instead, which takes twice the time.

cdef inline simd_void _pack_row(const real *x, ptrdiff_t step, ptrdiff_t lanes, ptrdiff_t width,
                                real *row) noexcept nogil:
    """Copies a row of `lanes` planes that are `step` apart; the remaining lanes repeat the last one."""
    cdef const real *b = x + min(1, lanes - 1) * step
    cdef const real *c = x + min(2, lanes - 1) * step
    cdef const real *d = x + min(3, lanes - 1) * step
    cdef const real *e = x + min(4, lanes - 1) * step
    cdef const real *f = x + min(5, lanes - 1) * step
    cdef const real *g = x + min(6, lanes - 1) * step
    cdef const real *h = x + min(7, lanes - 1) * step
    cdef ptrdiff_t i
    for i in range(width):
        row[LANES * i] = x[i]
        row[LANES * i + 1] = b[i]
        row[LANES * i + 2] = c[i]
        row[LANES * i + 3] = d[i]
        row[LANES * i + 4] = e[i]
        row[LANES * i + 5] = f[i]
        row[LANES * i + 6] = g[i]
        row[LANES * i + 7] = h[i]


cdef inline void pack(const real *x, ptrdiff_t lanes, const Geometry *g, real *copy) noexcept nogil:
    cdef ptrdiff_t row
    for row in range(g.height):
        _pack_row(x + row * g.width, g.height * g.width, lanes, g.width, copy)
        copy += g.stride
        memset(copy - LANES, 0, LANES * sizeof(real))
    memset(copy, 0, g.stride * sizeof(real))


cdef inline simd_void find_nearest(const real *map, const int32_t *pixels, ptrdiff_t count, const real *zeros,
                                   const real **sources) noexcept nogil:
    """Points sources at the pixels of a tile's positions, or at zeros."""
    cdef ptrdiff_t p
    for p in range(count):
        sources[p] = map + pixels[p] if pixels[p] >= 0 else zeros


cdef inline simd_void find_bilinear(const real *map, const Geometry *g, const int32_t *pixels, const real *weights,
                                    ptrdiff_t count, const real *zeros, const real **sources) noexcept nogil:
    cdef ptrdiff_t p, right = g.right, below = g.below
    cdef real zero = 0
    cdef const real *first
    for p in range(count):
        first = map + pixels[p]
        sources[p] = first if weights[p] >= zero else zeros
        sources[TILE + p] = first + right if weights[TILE + p] >= zero else zeros
        sources[2 * TILE + p] = first + below if weights[2 * TILE + p] >= zero else zeros
        sources[3 * TILE + p] = first + right + below if weights[3 * TILE + p] >= zero else zeros


# Sums are collected in an array of the function, which is known not to overlap anything.  Of LANES channels, those from
# `first` to `last` are results.

cdef inline simd_void nearest_from_channels(const real **sources, ptrdiff_t shift, ptrdiff_t count, ptrdiff_t first,
                                            ptrdiff_t last, real *y, ptrdiff_t line) noexcept nogil:
    """Copies the channels of each position, `shift` numbers after its source."""
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p
    for p in range(count):
        memcpy(sums + LANES * p, sources[p] + shift, LANES * sizeof(real))
    transpose(sums + first, LANES, count, last - first, y, line)


cdef inline simd_void bilinear_from_channels(const real **sources, ptrdiff_t shift, const Geometry *g,
                                             const real *weights, ptrdiff_t count, ptrdiff_t first, ptrdiff_t last,
                                             real *y, ptrdiff_t line) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef real zero = 0
    cdef ptrdiff_t p, lane, lanes = LANES * g.vectors
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    for p in range(count):
        a = sources[p] + shift
        b = sources[TILE + p] + shift
        c = sources[2 * TILE + p] + shift
        d = sources[3 * TILE + p] + shift
        for lane in range(lanes):
            sums[LANES * p + lane] = ((((zero + a[lane] * weights[p]) + b[lane] * weights[TILE + p])
                                       + c[lane] * weights[2 * TILE + p]) + d[lane] * weights[3 * TILE + p])
    transpose(sums + first, LANES, count, last - first, y, line)


cdef inline const real *_pixel(const real *map, int32_t row, int32_t column, int32_t end, int32_t width,
                               const real *zeros) noexcept nogil:
    return map + (row + column) if row < end and column < width else zeros


cdef inline simd_void bicubic_from_channels(const real *map, const Geometry *g, const real *zeros,
                                            const int32_t *columns, const int32_t *rows, const real *x_weights,
                                            const real *y_weights, ptrdiff_t count, ptrdiff_t first, ptrdiff_t last,
                                            real *y, ptrdiff_t line) noexcept nogil:
    """Samples the channels of each position; `zeros` is NULL if the map has a row and a column of them at its end."""
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p, lane, tap, lanes = LANES * g.vectors
    cdef int32_t width = <int32_t>(g.width * g.step), end = <int32_t>(g.height * g.stride)
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    cdef real w0, w1, w2, w3, weight
    memset(sums, 0, sizeof(sums))
    for p in range(count):
        w0 = y_weights[0]
        w1 = y_weights[1]
        w2 = y_weights[2]
        w3 = y_weights[3]
        if zeros == NULL or (max(max(columns[0], columns[1]), max(columns[2], columns[3])) < width
                             and max(max(rows[0], rows[1]), max(rows[2], rows[3])) < end):
            for tap in range(4):
                weight = x_weights[tap]
                a = map + (rows[0] + columns[tap])
                b = map + (rows[1] + columns[tap])
                c = map + (rows[2] + columns[tap])
                d = map + (rows[3] + columns[tap])
                for lane in range(lanes):
                    sums[LANES * p + lane] += (((a[lane] * w0 + b[lane] * w1) + c[lane] * w2) + d[lane] * w3) * weight
        else:
            for tap in range(4):
                weight = x_weights[tap]
                a = _pixel(map, rows[0], columns[tap], end, width, zeros)
                b = _pixel(map, rows[1], columns[tap], end, width, zeros)
                c = _pixel(map, rows[2], columns[tap], end, width, zeros)
                d = _pixel(map, rows[3], columns[tap], end, width, zeros)
                for lane in range(lanes):
                    sums[LANES * p + lane] += (((a[lane] * w0 + b[lane] * w1) + c[lane] * w2) + d[lane] * w3) * weight
        columns += 4
        rows += 4
        x_weights += 4
        y_weights += 4
    transpose(sums + first, LANES, count, last - first, y, line)
