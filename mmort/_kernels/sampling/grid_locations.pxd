"""grid_sample: converts a tile of positions to weights and the indices of pixels: where their first channels are.

The coordinates of a tile are converted axis by axis, in vectors.  Every step is MMCV's arithmetic in its written order.
A weight of -1, or a pixel index outside the map, marks a pixel that must not be read.
"""
from libc.math cimport INFINITY, floor, floorf, fmod, rint, rintf
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *

cdef extern from "grid_lanes.h" nogil:
    int grid_lanes() noexcept
    ctypedef struct MmkGridAxis:
        float size
        float factor
        float low
        float span
        float first
        float last
    ctypedef struct MmkGridMap:
        MmkGridAxis x
        MmkGridAxis y
        float shift
        int32_t stride
        int32_t step

cdef enum:  # interpolation modes
    BILINEAR
    NEAREST
    BICUBIC

cdef enum:  # padding modes
    ZEROS
    BORDER
    REFLECTION

cdef enum:
    TILE = 256  # positions handled together: their pixel indices and weights stay in the first-level cache
    MAX_EXACT = 1 << 24  # sizes up to here are exact in float32
    MAX_PLAIN_REFLECTION = 1 << 23  # coordinates up to here are reflected without fmod


ctypedef struct Geometry:
    ptrdiff_t height
    ptrdiff_t width
    ptrdiff_t columns  # of the grid
    ptrdiff_t stride   # numbers from one row to the next
    ptrdiff_t step     # numbers from one pixel to the next: 1 in a plane
    ptrdiff_t right    # numbers to the right neighbour; 0 if there is one column only
    ptrdiff_t below    # numbers to the neighbour below; 0 if there is one row only
    ptrdiff_t vectors  # of LANES channels: 1
    int64_t mode
    int64_t padding_mode
    bint align_corners
    int lanes  # positions of a vector; 0: there are no vectors for this
    MmkGridMap map  # for these


# ---- one coordinate --------------------------------------------------------------------------------------------------

cdef inline real _clamp_to_border(real u, real last) noexcept nogil:
    """NaN becomes `last`."""
    u = <real>0 if u < <real>0 else u
    return u if u < last else last


cdef inline real _floor(real u) noexcept nogil:
    return floorf(u) if real is float else floor(u)


cdef inline real _round(real u) noexcept nogil:
    """Rounds halves to even."""
    return rintf(u) if real is float else rint(u)


cdef inline real _distance(real u, real low) noexcept nogil:
    cdef real distance = u - low
    return distance if distance > <real>0 else -distance


cdef inline real _reflect(real u, real low, real span) noexcept nogil:
    """Reflects a coordinate at low and low + span until it lies between them; NaN if it is not finite."""
    cdef real distance = _distance(u, low)
    cdef real rest = fmod(distance, span), turns = floor(distance / span)
    # MMCV counts turns in 32 bits and takes a number that does not fit for an even one
    cdef bint odd = turns < 2147483648.0 and <int64_t>turns & 1
    return (span - rest if odd else rest) + low


cdef inline real _near_coefficient(real z) noexcept nogil:
    """Returns the cubic convolution kernel for distances up to 1, with a = -0.75."""
    return (<real>1.25 * z - <real>2.25) * z * z + <real>1


cdef inline real _far_coefficient(real z) noexcept nogil:
    """Returns the cubic convolution kernel for distances from 1 to 2."""
    return ((<real>-0.75 * z + <real>3.75) * z - <real>6) * z + <real>3


# ---- one axis of a tile ----------------------------------------------------------------------------------------------

cdef inline bint _read_axis(const real *grid, ptrdiff_t columns, ptrdiff_t size, int64_t padding_mode,
                            bint align_corners, ptrdiff_t count, real *u) noexcept nogil:
    """Maps [-1, 1] to pixel coordinates (0 is the centre of the first pixel); returns whether any was not clamped.

    They are clamped to [-2, size + 1] with zeros padding, and to [0, size - 1] with border padding.

    NaN becomes the upper bound, which is infinite where nothing is clamped.
    """
    cdef ptrdiff_t p
    cdef real one = 1, n = size
    cdef real factor = <real>0.5 if align_corners else n, shift = 0 if align_corners else 1
    cdef real scale = n - one if align_corners else <real>0.5
    cdef real low = 0, high = n - one, value, clamped
    cdef int32_t unmoved = False
    if padding_mode == ZEROS:
        low = -2
        high = n + one
    elif padding_mode == REFLECTION:
        low = -<real>INFINITY
        high = <real>INFINITY
    if columns == 2:  # a stride that the compiler knows
        for p in range(count):
            value = ((grid[2 * p] + one) * factor - shift) * scale
            clamped = low if value < low else value
            clamped = clamped if clamped < high else high
            unmoved |= clamped == value
            u[p] = clamped
    else:
        for p in range(count):
            value = ((grid[columns * p] + one) * factor - shift) * scale
            clamped = low if value < low else value
            clamped = clamped if clamped < high else high
            unmoved |= clamped == value
            u[p] = clamped
    return unmoved


cdef inline bint _all_outside(const real *u, const real *other, ptrdiff_t size, ptrdiff_t count) noexcept nogil:
    """Returns whether all coordinates are at least two pixels outside, and finite like those of the other axis."""
    cdef ptrdiff_t p
    cdef real end = size + 1
    cdef int32_t live = False
    for p in range(count):
        live |= ((u[p] > <real>-2) & (u[p] < end)) | (u[p] - u[p] != <real>0) | (other[p] - other[p] != <real>0)
    return not live


cdef inline void _fold(real *u, ptrdiff_t size, bint align_corners, ptrdiff_t count) noexcept nogil:
    """Reflects coordinates at the borders."""
    cdef ptrdiff_t p
    cdef real last = size - 1, low = 0 if align_corners else <real>-0.5, span = size - 1 if align_corners else size
    cdef real distance, rest, more, mirrored
    cdef int32_t turns, far = False
    if span == 0:
        for p in range(count):
            u[p] = 0
        return
    for p in range(count):
        far |= not _distance(u[p], low) < <real>MAX_PLAIN_REFLECTION
    if far:
        for p in range(count):
            u[p] = _reflect(u[p], low, span)
    else:  # gives the same numbers: all products and differences here are exact
        for p in range(count):
            distance = _distance(u[p], low)
            turns = <int32_t>(distance / span)
            rest = distance - <real>turns * span
            more = rest + span
            rest = more if rest < <real>0 else rest  # the quotient was rounded up
            mirrored = span - rest
            u[p] = (mirrored if turns & 1 else rest) + low
    for p in range(count):
        u[p] = _clamp_to_border(u[p], last)


cdef inline void _linear_axis(const real *u, ptrdiff_t size, ptrdiff_t count, int32_t *first, real *left,
                              real *right) noexcept nogil:
    """Finds two neighbouring pixels, first and first + 1, and their weights; -1: must not be read."""
    cdef ptrdiff_t p
    cdef int32_t pixel, start, last = <int32_t>max(size - 2, 0)
    cdef real whole, before, after, one = 1
    for p in range(count):
        whole = _floor(u[p])
        before = (whole + one) - u[p]
        after = u[p] - whole
        pixel = <int32_t>whole
        start = 0 if pixel < 0 else pixel
        start = start if start < last else last
        first[p] = start
        left[p] = before if start == pixel else (after if start == pixel + 1 else <real>-1)
        right[p] = after if start == pixel else (before if start + 1 == pixel else <real>-1)
    if size == 1:
        for p in range(count):
            right[p] = -1


cdef inline real _product(real a, real b) noexcept nogil:
    """Returns the product of two weights; -1: must not be read."""
    cdef real product = a * b
    return <real>-1 if (a < <real>0) | (b < <real>0) else product


cdef inline simd_void _cubic_axis(real *u, ptrdiff_t size, int64_t padding_mode, bint align_corners, int32_t stride,
                                  ptrdiff_t count, int32_t *pixels, real *weights) noexcept nogil:
    """Finds four pixels per position, times `stride`, and their weights; `size` marks one that must not be read."""
    cdef real[4 * TILE] v  # four lines, interleaved afterwards
    cdef int32_t[4 * TILE] numbers
    cdef ptrdiff_t p, tap
    cdef real part, whole, one = 1, n = size
    cdef int32_t pixel
    for p in range(count):
        whole = _floor(u[p])
        part = u[p] - whole
        u[p] = whole
        v[p] = _far_coefficient(part + one)
        v[TILE + p] = _near_coefficient(part)
        v[2 * TILE + p] = _near_coefficient(one - part)
        v[3 * TILE + p] = _far_coefficient((one - part) + one)
    for p in range(count):
        for tap in range(4):
            weights[4 * p + tap] = v[tap * TILE + p]
    for tap in range(4):
        for p in range(count):
            v[p] = u[p] + <real>(tap - 1)
        if padding_mode == BORDER:
            for p in range(count):
                v[p] = _clamp_to_border(v[p], n - one)
        elif padding_mode == REFLECTION:
            _fold(v, size, align_corners, count)
        for p in range(count):
            pixel = <int32_t>(v[p] if (v[p] >= <real>0) & (v[p] < n) else n)
            numbers[tap * TILE + p] = pixel * stride
    for p in range(count):
        for tap in range(4):
            pixels[4 * p + tap] = numbers[tap * TILE + p]


# ---- both axes of a tile ---------------------------------------------------------------------------------------------

cdef inline bint _read_positions(const Geometry *g, const real *grid, ptrdiff_t count, real *x, real *y) noexcept nogil:
    """Maps the grid to pixels; returns False if no position reads a pixel."""
    if not _read_axis(grid, g.columns, g.width, g.padding_mode, g.align_corners, count, x) and g.padding_mode == ZEROS:
        return False
    if (not _read_axis(grid + 1, g.columns, g.height, g.padding_mode, g.align_corners, count, y)
            and g.padding_mode == ZEROS):
        return False
    if g.padding_mode == REFLECTION:
        _fold(x, g.width, g.align_corners, count)
        _fold(y, g.height, g.align_corners, count)
    return True


cdef inline simd_void _locate_nearest(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *pixels,
                                      bint *live) noexcept nogil:
    """Finds pixel indices; -1: none."""
    cdef real[TILE] x
    cdef real[TILE] y
    cdef ptrdiff_t p
    cdef int32_t column, row, width = <int32_t>g.width, height = <int32_t>g.height
    cdef int32_t stride = <int32_t>g.stride, step = <int32_t>g.step
    live[0] = _read_positions(g, grid, count, x, y)
    if not live[0]:
        return
    for p in range(count):
        column = <int32_t>_round(x[p])
        row = <int32_t>_round(y[p])
        pixels[p] = row * stride + column * step if (
            (column >= 0) & (column < width) & (row >= 0) & (row < height)) else -1


cdef inline simd_void _locate_bilinear(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *pixels,
                                       real *weights, bint *live) noexcept nogil:
    """Finds the indices of the upper left pixels and the weights of all four; -1: must not be read."""
    cdef real[TILE] x
    cdef real[TILE] y
    cdef real[TILE] left
    cdef real[TILE] right
    cdef real[TILE] upper
    cdef real[TILE] lower
    cdef int32_t[TILE] column
    cdef int32_t[TILE] row
    cdef ptrdiff_t p
    cdef int32_t stride = <int32_t>g.stride, step = <int32_t>g.step
    live[0] = _read_positions(g, grid, count, x, y)
    if not live[0]:
        return
    _linear_axis(x, g.width, count, column, left, right)
    _linear_axis(y, g.height, count, row, upper, lower)
    for p in range(count):
        pixels[p] = row[p] * stride + column[p] * step
        weights[p] = _product(left[p], upper[p])
        weights[TILE + p] = _product(right[p], upper[p])
        weights[2 * TILE + p] = _product(left[p], lower[p])
        weights[3 * TILE + p] = _product(right[p], lower[p])


cdef inline simd_void _locate_bicubic(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *columns,
                                      int32_t *rows, real *x_weights, real *y_weights, bint *live) noexcept nogil:
    """Finds four columns (times step) and four rows (times stride) per position, and their weights; width or height
    (times the same): none.
    """
    cdef real[TILE] x
    cdef real[TILE] y
    # not clamped: here the pixels are padded, and coordinates that are not finite give NaN
    _read_axis(grid, g.columns, g.width, REFLECTION, g.align_corners, count, x)
    _read_axis(grid + 1, g.columns, g.height, REFLECTION, g.align_corners, count, y)
    live[0] = g.padding_mode != ZEROS or not (
        _all_outside(x, y, g.width, count) or _all_outside(y, x, g.height, count))
    if not live[0]:
        return
    _cubic_axis(x, g.width, g.padding_mode, g.align_corners, <int32_t>g.step, count, columns, x_weights)
    _cubic_axis(y, g.height, g.padding_mode, g.align_corners, <int32_t>g.stride, count, rows, y_weights)


cdef inline void _set_axis(const Geometry *g, ptrdiff_t size, MmkGridAxis *axis) noexcept nogil:
    cdef float n = <float>size
    axis.size = n
    axis.factor = <float>0.5 * (n - 1 if g.align_corners else n)  # halved before it is rounded: the same numbers
    axis.low = 0 if g.align_corners else <float>-0.5
    axis.span = 0 if g.padding_mode != REFLECTION else n - 1 if g.align_corners else n
    axis.first = -2 if g.padding_mode == ZEROS else 0
    axis.last = n + 1 if g.padding_mode == ZEROS else n - 1


cdef inline void set_lanes(Geometry *g, bint is_float32) noexcept nogil:
    """Sets whether and how positions are handled in vectors."""
    g.lanes = 0
    if (not is_float32 or g.mode == BICUBIC or g.columns != 2 or g.mode == BILINEAR and (g.width < 2 or g.step > 1)
            or max(g.width, g.height) > MAX_EXACT):
        return
    g.lanes = grid_lanes()
    _set_axis(g, g.width, &g.map.x)
    _set_axis(g, g.height, &g.map.y)
    g.map.shift = 0 if g.align_corners else <float>0.5
    g.map.stride = <int32_t>g.stride
    g.map.step = <int32_t>g.step


cdef inline simd_void _are_near(const float *grid, ptrdiff_t count, float limit, bint *near) noexcept nogil:
    cdef ptrdiff_t i
    cdef int32_t far = False
    for i in range(2 * count):
        far |= not _distance(grid[i], 0) < limit
    near[0] = not far


cdef inline bint are_in_lanes(const Geometry *g, const float *grid, ptrdiff_t count) noexcept nogil:
    """Returns whether a tile is handled in vectors: also if it is reflected, unless that needs fmod."""
    cdef bint near = True
    if not g.lanes or count < g.lanes:
        return False
    if g.padding_mode == REFLECTION:  # a pixel is at most (abs(coordinate) + 1) * size / 2 away, and a half
        _are_near(grid, count, <float>MAX_PLAIN_REFLECTION / <float>max(g.width, g.height) - 1, &near)
    return near


cdef inline bint locate(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *pixels, int32_t *rows,
                        real *weights, real *y_weights) noexcept nogil:
    """Locates a tile; returns whether it reads any pixel.  For bicubic, `pixels` and `weights` are the columns'."""
    cdef bint live = False
    if g.mode == NEAREST:
        _locate_nearest(g, grid, count, pixels, &live)
    elif g.mode == BILINEAR:
        _locate_bilinear(g, grid, count, pixels, weights, &live)
    else:
        _locate_bicubic(g, grid, count, pixels, rows, weights, y_weights, &live)
    return live
