"""grid_sample: a feature map read at the places that a grid names (torch.nn.functional.grid_sample).

A tile of places is turned into pixel numbers and weights once, and then used for every channel.  The pixels come
straight from the planes, or, where many channels are read at many places, from a copy in which the values of LANES
channels lie side by side, so that one vector load does the work of LANES scalar ones.

Coordinates that are not finite: what lies nowhere reads as zeros with zeros padding and as the last row or column with
the other two; bicubic gives NaN.
"""
from libc.math cimport INFINITY, floor, floorf, fmod, rint, rintf
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *

cdef enum:  # attributes
    INTERPOLATION_MODE
    PADDING_MODE
    ALIGN_CORNERS

cdef enum:
    BILINEAR
    NEAREST
    BICUBIC

cdef enum:
    ZEROS
    BORDER
    REFLECTION

cdef enum:
    TILE = 256   # places handled together: their pixel numbers and weights stay in the first-level cache
    LANES = 8    # channels that lie side by side in the copy
    BUNDLE_PIXELS = 1 << 15   # of the copies that are in use at a time
    NEAR = 1 << 23            # coordinates up to here are reflected without fmod
    MOST_PIXELS = 1 << 29     # of a plane, so that pixel numbers fit in 32 bits, also those a little outside


# ---- one coordinate -----------------------------------------------------------------------------------------------

cdef inline real _clamp_to_border(real u, real last) noexcept nogil:
    """NaN becomes `last`."""
    u = <real>0 if u < <real>0 else u
    return u if u < last else last


cdef inline real _floor(real u) noexcept nogil:
    return floorf(u) if real is float else floor(u)


cdef inline real _round(real u) noexcept nogil:
    """A half goes to the even number."""
    return rintf(u) if real is float else rint(u)


cdef inline real _distance(real u, real low) noexcept nogil:
    cdef real distance = u - low
    return distance if distance > <real>0 else -distance


cdef inline real _reflect(real u, real low, real span) noexcept nogil:
    """Any coordinate whatever, reflected at low and low + span until it lies between them; NaN if it is not finite."""
    cdef real distance = _distance(u, low)
    cdef real rest = fmod(distance, span), turns = floor(distance / span)
    # MMCV counts turns in 32 bits and takes what does not fit for even
    cdef bint odd = turns < 2147483648.0 and <int64_t>turns & 1
    return (span - rest if odd else rest) + low


cdef inline real _near_coefficient(real z) noexcept nogil:
    """The cubic convolution kernel for distances up to 1, with a = -0.75."""
    return (<real>1.25 * z - <real>2.25) * z * z + <real>1


cdef inline real _far_coefficient(real z) noexcept nogil:
    """The same for distances from 1 to 2."""
    return ((<real>-0.75 * z + <real>3.75) * z - <real>6) * z + <real>3


# ---- a tile of coordinates ----------------------------------------------------------------------------------------

cdef inline bint _read_axis(const real *grid, ptrdiff_t columns, ptrdiff_t size, int64_t padding_mode,
                            bint align_corners, ptrdiff_t count, real *u) noexcept nogil:
    """From [-1, 1] to pixels (0 is the centre of the first one), clamped to [-2, size + 1] with zeros padding and to
    [0, size - 1] with border padding; False if the clamp moved them all.

    NaN becomes the upper bound, which is infinite for what is not clamped.
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


cdef inline bint _all_beyond(const real *u, ptrdiff_t size, ptrdiff_t count) noexcept nogil:
    """Whether all coordinates are finite and two pixels or more outside."""
    cdef ptrdiff_t p
    cdef real end = size + 1
    cdef int32_t live = False
    for p in range(count):
        live |= ((u[p] > <real>-2) & (u[p] < end)) | (u[p] - u[p] != <real>0)
    return not live


cdef inline void _fold(real *u, ptrdiff_t size, bint align_corners, ptrdiff_t count) noexcept nogil:
    """Reflect at the borders."""
    cdef ptrdiff_t p
    cdef real last = size - 1, low = 0 if align_corners else <real>-0.5, span = size - 1 if align_corners else size
    cdef real distance, rest, more, mirrored
    cdef int32_t turns, far = False
    if span == 0:
        for p in range(count):
            u[p] = 0
        return
    for p in range(count):
        far |= not _distance(u[p], low) < <real>NEAR
    if far:
        for p in range(count):
            u[p] = _reflect(u[p], low, span)
    else:  # the same numbers: all products and differences here are exact
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
    """Two neighbouring pixels of the axis, first and first + 1, and their weights; -1: the pixel is not to be read."""
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
    """Of two weights; -1: not to be read."""
    cdef real product = a * b
    return <real>-1 if (a < <real>0) | (b < <real>0) else product


cdef simd_void _cubic_axis(real *u, ptrdiff_t size, int64_t padding_mode, bint align_corners, int32_t stride,
                           ptrdiff_t count, int32_t *pixels, real *weights) noexcept nogil:
    """Four pixels a place, times `stride`, and their weights; a pixel that is not to be read has number `size`."""
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


# ---- a tile of places: pixel numbers and weights; False if no place reads a pixel ---------------------------------

ctypedef struct Geometry:
    ptrdiff_t height
    ptrdiff_t width
    ptrdiff_t columns  # of the grid
    ptrdiff_t stride   # pixels from one row to the next
    int64_t padding_mode
    bint align_corners


cdef simd_void _locate_nearest(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *pixels,
                               bint *live) noexcept nogil:
    """Pixel numbers; -1: none."""
    cdef real[TILE] x
    cdef real[TILE] y
    cdef ptrdiff_t p
    cdef int32_t column, row, width = <int32_t>g.width, height = <int32_t>g.height, stride = <int32_t>g.stride
    live[0] = _read_axis(grid, g.columns, g.width, g.padding_mode, g.align_corners, count, x) or g.padding_mode != ZEROS
    if not live[0]:
        return
    live[0] = (_read_axis(grid + 1, g.columns, g.height, g.padding_mode, g.align_corners, count, y)
               or g.padding_mode != ZEROS)
    if not live[0]:
        return
    if g.padding_mode == REFLECTION:
        _fold(x, g.width, g.align_corners, count)
        _fold(y, g.height, g.align_corners, count)
    for p in range(count):
        column = <int32_t>_round(x[p])
        row = <int32_t>_round(y[p])
        pixels[p] = row * stride + column if (
            (column >= 0) & (column < width) & (row >= 0) & (row < height)) else -1


cdef simd_void _locate_bilinear(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *pixels, real *weights,
                                bint *live) noexcept nogil:
    """Numbers of the upper left pixels and weights of the four; -1: the pixel is not to be read."""
    cdef real[TILE] x
    cdef real[TILE] y
    cdef real[TILE] left
    cdef real[TILE] right
    cdef real[TILE] upper
    cdef real[TILE] lower
    cdef int32_t[TILE] column
    cdef int32_t[TILE] row
    cdef ptrdiff_t p
    cdef int32_t stride = <int32_t>g.stride
    live[0] = _read_axis(grid, g.columns, g.width, g.padding_mode, g.align_corners, count, x) or g.padding_mode != ZEROS
    if not live[0]:
        return
    live[0] = (_read_axis(grid + 1, g.columns, g.height, g.padding_mode, g.align_corners, count, y)
               or g.padding_mode != ZEROS)
    if not live[0]:
        return
    if g.padding_mode == REFLECTION:
        _fold(x, g.width, g.align_corners, count)
        _fold(y, g.height, g.align_corners, count)
    _linear_axis(x, g.width, count, column, left, right)
    _linear_axis(y, g.height, count, row, upper, lower)
    for p in range(count):
        pixels[p] = row[p] * stride + column[p]
        weights[p] = _product(left[p], upper[p])
        weights[TILE + p] = _product(right[p], upper[p])
        weights[2 * TILE + p] = _product(left[p], lower[p])
        weights[3 * TILE + p] = _product(right[p], lower[p])


cdef simd_void _locate_bicubic(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *columns, int32_t *rows,
                               real *x_weights, real *y_weights, bint *live) noexcept nogil:
    """Four columns and four rows (times stride) a place, with their weights; width or height: not to be read."""
    cdef real[TILE] x
    cdef real[TILE] y
    # not clamped, so that what is not finite gives NaN, and because it is the pixels that are padded here
    _read_axis(grid, g.columns, g.width, REFLECTION, g.align_corners, count, x)
    _read_axis(grid + 1, g.columns, g.height, REFLECTION, g.align_corners, count, y)
    live[0] = g.padding_mode != ZEROS or not (_all_beyond(x, g.width, count) or _all_beyond(y, g.height, count))
    if not live[0]:
        return
    _cubic_axis(x, g.width, g.padding_mode, g.align_corners, 1, count, columns, x_weights)
    _cubic_axis(y, g.height, g.padding_mode, g.align_corners, <int32_t>g.stride, count, rows, y_weights)


# ---- reading from planes ------------------------------------------------------------------------------------------

cdef simd_void _nearest_from_plane(const real *plane, const int32_t *pixels, ptrdiff_t count,
                                   real *y) noexcept nogil:
    cdef real[TILE] line  # known to overlap nothing
    cdef ptrdiff_t p
    cdef real value
    for p in range(count):
        value = plane[pixels[p] if pixels[p] >= 0 else 0]
        line[p] = value if pixels[p] >= 0 else <real>0
    memcpy(y, line, count * sizeof(real))


cdef simd_void _bilinear_from_plane(const real *plane, ptrdiff_t right, ptrdiff_t below, const int32_t *pixels,
                                    const real *weights, ptrdiff_t count, real *y) noexcept nogil:
    cdef real[TILE] line
    cdef ptrdiff_t p
    cdef real a, b, c, d, zero = 0
    for p in range(count):
        a = plane[pixels[p]]
        b = plane[pixels[p] + right]
        c = plane[pixels[p] + below]
        d = plane[pixels[p] + right + below]
        # what is not to be read must not spoil the sum, be it NaN or infinite
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


cdef simd_void _bicubic_from_plane(const real *plane, ptrdiff_t height, ptrdiff_t width, const int32_t *columns,
                                   const int32_t *rows, const real *x_weights, const real *y_weights, ptrdiff_t count,
                                   real *y) noexcept nogil:
    cdef real[4 * TILE] sums  # of the columns
    cdef real[TILE] line
    cdef ptrdiff_t p, tap, end = height * width
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
        if j[3] - j[0] == 3 and j[3] < width and i[3] - i[0] == 3 * width and i[3] < end:  # in their natural order
            a = plane + i[0] + j[0]
            b = a + width
            c = b + width
            d = c + width
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


# ---- reading from the copy: LANES channels side by side, and zeros in a further column and row ---------------------
# The argument `one` is 1, but the compiler is not to know: it would unroll the loop over the lanes and vectorise the
# one over the places instead, which takes twice the time.

cdef simd_void _pack_row(const real *x, ptrdiff_t step, ptrdiff_t lanes, ptrdiff_t width, real *row) noexcept nogil:
    """One row of `lanes` planes that are `step` apart; the lanes that are left repeat the last one."""
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


cdef void _pack(const real *x, ptrdiff_t lanes, const Geometry *g, real *copy) noexcept nogil:
    cdef ptrdiff_t row
    for row in range(g.height):
        _pack_row(x + row * g.width, g.height * g.width, lanes, g.width, copy)
        copy += g.stride * LANES
        memset(copy - LANES, 0, LANES * sizeof(real))
    memset(copy, 0, g.stride * LANES * sizeof(real))


cdef inline void _unpack(const real *sums, ptrdiff_t count, real *lines) noexcept nogil:
    cdef ptrdiff_t p
    for p in range(count):
        lines[p] = sums[LANES * p]
        lines[TILE + p] = sums[LANES * p + 1]
        lines[2 * TILE + p] = sums[LANES * p + 2]
        lines[3 * TILE + p] = sums[LANES * p + 3]
        lines[4 * TILE + p] = sums[LANES * p + 4]
        lines[5 * TILE + p] = sums[LANES * p + 5]
        lines[6 * TILE + p] = sums[LANES * p + 6]
        lines[7 * TILE + p] = sums[LANES * p + 7]


cdef simd_void _nearest_from_copy(const real *copy, ptrdiff_t nothing, const int32_t *pixels, ptrdiff_t count,
                                  real *lines) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p
    cdef const real *source
    for p in range(count):
        source = copy + LANES * <ptrdiff_t>(pixels[p] if pixels[p] >= 0 else nothing)
        memcpy(sums + LANES * p, source, LANES * sizeof(real))
    _unpack(sums, count, lines)


cdef simd_void _bilinear_from_copy(const real *copy, ptrdiff_t one, ptrdiff_t nothing, ptrdiff_t right,
                                   ptrdiff_t below, const int32_t *pixels, const real *weights, ptrdiff_t count,
                                   real *lines) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef int32_t[4 * TILE] sources
    cdef real zero = 0
    cdef int32_t zeros = <int32_t>nothing, step = <int32_t>right, row = <int32_t>below
    cdef ptrdiff_t p, lane
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    for p in range(count):
        sources[p] = pixels[p] if weights[p] >= zero else zeros
        sources[TILE + p] = pixels[p] + step if weights[TILE + p] >= zero else zeros
        sources[2 * TILE + p] = pixels[p] + row if weights[2 * TILE + p] >= zero else zeros
        sources[3 * TILE + p] = pixels[p] + step + row if weights[3 * TILE + p] >= zero else zeros
    for p in range(count):
        a = copy + LANES * <ptrdiff_t>sources[p]
        b = copy + LANES * <ptrdiff_t>sources[TILE + p]
        c = copy + LANES * <ptrdiff_t>sources[2 * TILE + p]
        d = copy + LANES * <ptrdiff_t>sources[3 * TILE + p]
        for lane in range(LANES * one):
            sums[LANES * p + lane] = ((((zero + a[lane] * weights[p]) + b[lane] * weights[TILE + p])
                                       + c[lane] * weights[2 * TILE + p]) + d[lane] * weights[3 * TILE + p])
    _unpack(sums, count, lines)


cdef simd_void _bicubic_from_copy(const real *copy, ptrdiff_t one, const int32_t *columns, const int32_t *rows,
                                  const real *x_weights, const real *y_weights, ptrdiff_t count,
                                  real *lines) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p, lane, tap
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
        for tap in range(4):
            weight = x_weights[tap]
            a = copy + LANES * <ptrdiff_t>(rows[0] + columns[tap])
            b = copy + LANES * <ptrdiff_t>(rows[1] + columns[tap])
            c = copy + LANES * <ptrdiff_t>(rows[2] + columns[tap])
            d = copy + LANES * <ptrdiff_t>(rows[3] + columns[tap])
            for lane in range(LANES * one):
                sums[LANES * p + lane] += (((a[lane] * w0 + b[lane] * w1) + c[lane] * w2) + d[lane] * w3) * weight
        columns += 4
        rows += 4
        x_weights += 4
        y_weights += 4
    _unpack(sums, count, lines)


# ---- the two ways through a call -----------------------------------------------------------------------------------

cdef Geometry _geometry(const mmk_call *call, bint copied) noexcept nogil:
    cdef Geometry g
    g.height = call.inputs[0].shape[2]
    g.width = call.inputs[0].shape[3]
    g.columns = call.inputs[1].shape[3]
    g.stride = g.width + copied
    g.padding_mode = call.attributes[PADDING_MODE].i
    g.align_corners = call.attributes[ALIGN_CORNERS].i != 0
    return g


cdef inline ptrdiff_t _copy_size(const Geometry *g) noexcept nogil:
    """Numbers in the copy of LANES channels."""
    return (g.height + 1) * g.stride * LANES


cdef void _planes(mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin,
                  ptrdiff_t end) noexcept nogil:
    """Tiles [begin, end) of all images, in all channels."""
    cdef Geometry g = _geometry(call, False)
    cdef ptrdiff_t channels = call.inputs[0].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t places = call.outputs[0].shape[2] * call.outputs[0].shape[3], tiles = (places + TILE - 1) // TILE
    cdef ptrdiff_t right = g.width > 1, below = g.width if g.height > 1 else 0
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i
    cdef int32_t[4 * TILE] first
    cdef int32_t[4 * TILE] second
    cdef real[4 * TILE] weights
    cdef real[4 * TILE] y_weights
    cdef ptrdiff_t tile, image, start, count, channel
    cdef const real *plane
    cdef const real *locations
    cdef real *result
    cdef bint live = False
    for tile in range(begin, end):
        image = tile // tiles
        start = tile % tiles * TILE
        count = min(TILE, places - start)
        locations = grid + (image * places + start) * g.columns
        if mode == NEAREST:
            _locate_nearest(&g, locations, count, first, &live)
        elif mode == BILINEAR:
            _locate_bilinear(&g, locations, count, first, weights, &live)
        else:
            _locate_bicubic(&g, locations, count, first, second, weights, y_weights, &live)
        for channel in range(image * channels, (image + 1) * channels):
            plane = x + channel * pixels
            result = y + channel * places + start
            if not live:
                memset(result, 0, count * sizeof(real))
            elif mode == NEAREST:
                _nearest_from_plane(plane, first, count, result)
            elif mode == BILINEAR:
                _bilinear_from_plane(plane, right, below, first, weights, count, result)
            else:
                _bicubic_from_plane(plane, g.height, g.width, first, second, weights, y_weights, count, result)


cdef void _copies(mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin, ptrdiff_t end,
                  real *copies) noexcept nogil:
    """Bundles of channel groups [begin, end) of all images, at all places."""
    cdef Geometry g = _geometry(call, True)
    cdef ptrdiff_t channels = call.inputs[0].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t places = call.outputs[0].shape[2] * call.outputs[0].shape[3]
    cdef ptrdiff_t most = LANES * _groups_in_bundle(call), bundles = (channels + most - 1) // most
    cdef ptrdiff_t right = g.width > 1, below = g.stride if g.height > 1 else 0, nothing = g.height * g.stride
    cdef ptrdiff_t copy_size = _copy_size(&g)
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i
    cdef int32_t[4 * TILE] first
    cdef int32_t[4 * TILE] second
    cdef real[4 * TILE] weights
    cdef real[4 * TILE] y_weights
    cdef real[LANES * TILE] lines
    cdef ptrdiff_t bundle, image, channel, last, group, groups, tile, start, count, lane
    cdef const real *locations
    cdef const real *copy
    cdef bint live = False
    for bundle in range(begin, end):
        image = bundle // bundles
        channel = image * channels + bundle % bundles * most
        last = min(channel + most, (image + 1) * channels)
        groups = (last - channel + LANES - 1) // LANES
        for group in range(groups):
            _pack(x + (channel + group * LANES) * pixels, min(LANES, last - channel - group * LANES), &g,
                  copies + group * copy_size)
        for tile in range((places + TILE - 1) // TILE):
            start = tile * TILE
            count = min(TILE, places - start)
            locations = grid + (image * places + start) * g.columns
            if mode == NEAREST:
                _locate_nearest(&g, locations, count, first, &live)
            elif mode == BILINEAR:
                _locate_bilinear(&g, locations, count, first, weights, &live)
            else:
                _locate_bicubic(&g, locations, count, first, second, weights, y_weights, &live)
            for group in range(groups):
                copy = copies + group * copy_size
                if not live:
                    memset(lines, 0, sizeof(lines))
                elif mode == NEAREST:
                    _nearest_from_copy(copy, nothing, first, count, lines)
                elif mode == BILINEAR:
                    _bilinear_from_copy(copy, 1, nothing, right, below, first, weights, count, lines)
                else:
                    _bicubic_from_copy(copy, 1, first, second, weights, y_weights, count, lines)
                for lane in range(min(LANES, last - channel - group * LANES)):
                    memcpy(y + (channel + group * LANES + lane) * places + start, lines + lane * TILE,
                           count * sizeof(real))


cdef ptrdiff_t _groups_in_bundle(const mmk_call *call) noexcept nogil:
    """How many groups of LANES channels share the work of locating: few enough for the cache and for the threads."""
    cdef const mmk_tensor *x = &call.inputs[0]
    cdef int64_t groups = (x.shape[1] + LANES - 1) // LANES
    cdef int64_t in_cache = BUNDLE_PIXELS // (x.shape[2] * x.shape[3])
    return max(1, min(4, min(in_cache, x.shape[0] * groups // 8)))


cdef bint _worth_copying(const mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[0]
    cdef int64_t groups = (x.shape[1] + LANES - 1) // LANES
    return (x.shape[1] >= LANES and x.shape[0] * groups >= 2
            and 2 * call.outputs[0].shape[2] * call.outputs[0].shape[3] >= x.shape[2] * x.shape[3])


cdef public int mmk_grid_sample_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[0]
    cdef mmk_tensor *grid = &call.inputs[1]
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i, padding_mode = call.attributes[PADDING_MODE].i
    cdef int64_t[4] shape
    cdef int64_t places, channels
    cdef double locate, read
    cdef Geometry g
    cdef bint has_more_columns = grid.rank == 4 and grid.shape[3] > 2
    if (mmk_check_shape(call, 0, "input", "[N, C, H, W]")
            or mmk_check_shape(call, 1, "grid", "[N, OH, OW, XY]" if has_more_columns else "[N, OH, OW, 2]")):
        return -1
    if mode < BILINEAR or mode > BICUBIC:
        return mmk_fail(call, "interpolation_mode must be 0 (bilinear), 1 (nearest) or 2 (bicubic), got %lld",
                        <long long>mode)
    if padding_mode < ZEROS or padding_mode > REFLECTION:
        return mmk_fail(call, "padding_mode must be 0 (zeros), 1 (border) or 2 (reflection), got %lld",
                        <long long>padding_mode)
    shape[0] = x.shape[0]
    shape[1] = x.shape[1]
    shape[2] = grid.shape[1]
    shape[3] = grid.shape[2]
    if mmk_set_output(call, 0, x.type, 4, shape):
        return -1
    if call.outputs[0].size == 0:
        return 0
    if x.size == 0:
        return mmk_fail(call, "input must have pixels to read, got [%lld, %lld, %lld, %lld]", <long long>x.shape[0],
                        <long long>x.shape[1], <long long>x.shape[2], <long long>x.shape[3])
    if x.shape[2] >= MOST_PIXELS // (x.shape[3] + 1):
        return mmk_fail(call, "input may have up to 2**29 pixels, got [%lld, %lld]", <long long>x.shape[2],
                        <long long>x.shape[3])
    places = shape[2] * shape[3]
    locate = 3 if mode == BICUBIC else 0.8  # nanoseconds
    read = 3 if mode == BICUBIC else 0.4 if mode == NEAREST else 0.9
    if _worth_copying(call):
        channels = LANES * _groups_in_bundle(call)
        mmk_add_phase(call, shape[0] * ((shape[1] + channels - 1) // channels),
                      places * (locate + channels * read / 2) + x.shape[2] * x.shape[3] * channels * 0.3)
        g = _geometry(call, True)
        call.worker_scratch_size[0] = (<size_t>(_copy_size(&g) * _groups_in_bundle(call))
                                       * (sizeof(float) if x.type == MMK_FLOAT32 else sizeof(double)))
    else:
        mmk_add_phase(call, shape[0] * ((places + TILE - 1) // TILE), min(places, TILE) * (locate + shape[1] * read))
    return 0


cdef public void mmk_grid_sample_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef const void *x = call.inputs[0].data
    cdef const void *grid = call.inputs[1].data
    cdef void *y = call.outputs[0].data
    cdef bint copying = _worth_copying(call)
    if call.inputs[0].type == MMK_FLOAT64:
        if copying:
            _copies(call, <const double *>x, <const double *>grid, <double *>y, begin, end, <double *>scratch)
        else:
            _planes(call, <const double *>x, <const double *>grid, <double *>y, begin, end)
    elif copying:
        _copies(call, <const float *>x, <const float *>grid, <float *>y, begin, end, <float *>scratch)
    else:
        _planes(call, <const float *>x, <const float *>grid, <float *>y, begin, end)
