"""grid_sample: a feature map read at the places that a grid names (torch.nn.functional.grid_sample).

A tile of places is turned into pixel numbers and weights once, and then used for every channel.  The pixels come
straight from the planes, or, where many channels are read at many places, from a copy in which the values of LANES
channels lie side by side, so that one vector load does the work of LANES scalar ones.

Coordinates that are not finite: what lies nowhere reads as zeros with zeros padding and as the last row or column with
the other two; bicubic gives NaN.
"""
from libc.math cimport floor, fmod
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from mmort._kernels.mmk cimport *

ctypedef fused real:
    float
    double

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
    TILE = 128   # places handled together: their pixel numbers and weights stay in the first-level cache
    LANES = 8    # channels that lie side by side in the copy
    NEAR = 1 << 23            # coordinates up to here are reflected without fmod
    MOST_PIXELS = 1 << 30     # of a plane, so that pixel numbers fit in 32 bits


# ---- one coordinate -----------------------------------------------------------------------------------------------

cdef inline real _clamp(real u, real low, real high) noexcept nogil:
    """NaN becomes `low`."""
    u = u if u > low else low
    return u if u < high else high


cdef inline real _clamp_to_border(real u, real last) noexcept nogil:
    """NaN becomes `last`."""
    u = 0 if u < 0 else u
    return u if u < last else last


cdef inline real _floor(real u) noexcept nogil:
    cdef real inside, whole
    if real is float:  # floorf is a function call before SSE4.1; beyond 2**30 a float32 is an integer
        inside = _clamp(u, <real>-MOST_PIXELS, <real>MOST_PIXELS)
        whole = <real><int32_t>inside
        whole -= whole > inside
        return whole if inside == u else u
    else:
        return floor(u)


cdef inline real _reflect(real u, real low, real span) noexcept nogil:
    """Any coordinate whatever, reflected at low and low + span until it lies between them; NaN if it is not finite."""
    cdef real distance = u - low if u > low else low - u
    cdef real rest = fmod(distance, span), turns = floor(distance / span)
    # MMCV counts turns in 32 bits and takes what does not fit for even
    cdef bint odd = turns < 2147483648.0 and <int64_t>turns & 1
    return (span - rest if odd else rest) + low


cdef inline real _near_coefficient(real z) noexcept nogil:
    """The cubic convolution kernel for distances up to 1, with a = -0.75."""
    return (<real>1.25 * z - <real>2.25) * z * z + 1


cdef inline real _far_coefficient(real z) noexcept nogil:
    """The same for distances from 1 to 2."""
    return ((<real>-0.75 * z + <real>3.75) * z - 6) * z + 3


# ---- a tile of coordinates ----------------------------------------------------------------------------------------

cdef inline void _read_coordinates(const real *grid, ptrdiff_t columns, ptrdiff_t size, bint align_corners,
                                   ptrdiff_t count, real *u) noexcept nogil:
    """From [-1, 1] to pixels: 0 is the centre of the first one."""
    cdef ptrdiff_t p
    cdef real n = size, half = <real>0.5
    if columns == 2:  # a stride known to the compiler
        for p in range(count):
            u[p] = grid[2 * p] + 1
    else:
        for p in range(count):
            u[p] = grid[columns * p] + 1
    if align_corners:
        for p in range(count):
            u[p] = u[p] * half * (n - 1)
    else:
        for p in range(count):
            u[p] = (u[p] * n - 1) * half


cdef inline void _pad(real *u, ptrdiff_t size, int64_t padding_mode, bint align_corners,
                      ptrdiff_t count) noexcept nogil:
    """Bring coordinates to [0, size - 1], or with zeros padding to [-2, size + 1]: no pixel is beyond -1 and size."""
    cdef ptrdiff_t p
    cdef real last = size - 1, low = 0 if align_corners else <real>-0.5, span = size - 1 if align_corners else size
    cdef real distance, rest
    cdef int32_t turns
    cdef bint far = False
    if padding_mode == ZEROS:
        for p in range(count):
            u[p] = _clamp(u[p], -2, last + 2)
        return
    if padding_mode == REFLECTION:
        if span == 0:
            for p in range(count):
                u[p] = 0
            return
        for p in range(count):
            distance = u[p] - low if u[p] > low else low - u[p]
            far |= not distance < NEAR
        if far:
            for p in range(count):
                u[p] = _reflect(u[p], low, span)
        else:  # the same numbers: all products and differences here are exact
            for p in range(count):
                distance = u[p] - low if u[p] > low else low - u[p]
                turns = <int32_t>(distance / span)
                rest = distance - <real>turns * span
                rest = rest + span if rest < 0 else rest  # the quotient was rounded up
                u[p] = (span - rest if turns & 1 else rest) + low
    for p in range(count):
        u[p] = _clamp_to_border(u[p], last)


cdef inline bint _all_outside(const real *x, const real *y, ptrdiff_t width, ptrdiff_t height, real reach,
                              ptrdiff_t count) noexcept nogil:
    """Whether every place is finite and at least `reach` beyond the first and last pixels."""
    cdef ptrdiff_t p
    cdef real right = <real>(width - 1) + reach, bottom = <real>(height - 1) + reach
    cdef int32_t live = 0
    for p in range(count):
        live |= (((x[p] > -reach) & (x[p] < right) & (y[p] > -reach) & (y[p] < bottom))
                 | (x[p] - x[p] != 0) | (y[p] - y[p] != 0))
    return not live


cdef inline void _linear_axis(const real *u, ptrdiff_t size, ptrdiff_t count, int32_t *first, real *left,
                              real *right) noexcept nogil:
    """Two neighbouring pixels of the axis, first and first + 1, and their weights; -1: the pixel is not to be read."""
    cdef ptrdiff_t p
    cdef int32_t pixel, start, last = <int32_t>max(size - 2, 0)
    cdef real before, after
    for p in range(count):
        pixel = <int32_t>u[p]
        pixel -= <real>pixel > u[p]
        before = <real>(pixel + 1) - u[p]
        after = u[p] - <real>pixel
        start = 0 if pixel < 0 else pixel
        start = start if start < last else last
        first[p] = start
        left[p] = before if start == pixel else (after if start == pixel + 1 else -1)
        right[p] = after if start == pixel else (before if start + 1 == pixel else -1)
    if size == 1:
        for p in range(count):
            right[p] = -1


cdef inline void _cubic_axis(real *u, ptrdiff_t size, int64_t padding_mode, bint align_corners, int32_t stride,
                             ptrdiff_t count, int32_t *pixels, real *weights) noexcept nogil:
    """Four pixels a place, times `stride`; one that is not to be read has number `size`."""
    cdef real[TILE] v
    cdef ptrdiff_t p, tap
    cdef real part, n = size
    cdef int32_t pixel
    for p in range(count):
        part = u[p]
        u[p] = _floor(u[p])
        part -= u[p]
        weights[4 * p] = _far_coefficient(part + 1)
        weights[4 * p + 1] = _near_coefficient(part)
        weights[4 * p + 2] = _near_coefficient(1 - part)
        weights[4 * p + 3] = _far_coefficient((1 - part) + 1)
    for tap in range(4):
        for p in range(count):
            v[p] = u[p] - 1 + tap
        _pad(v, size, padding_mode, align_corners, count)
        for p in range(count):
            pixel = <int32_t>(v[p] if (v[p] >= 0) & (v[p] < n) else n)
            pixels[4 * p + tap] = pixel * stride


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
    cdef real part, half = <real>0.5
    _read_coordinates(grid, g.columns, g.width, g.align_corners, count, x)
    _read_coordinates(grid + 1, g.columns, g.height, g.align_corners, count, y)
    _pad(x, g.width, g.padding_mode, g.align_corners, count)
    _pad(y, g.height, g.padding_mode, g.align_corners, count)
    live[0] = not _all_outside(x, y, g.width, g.height, 1, count)
    if not live[0]:
        return
    for p in range(count):
        column = <int32_t>x[p]
        column -= <real>column > x[p]
        part = x[p] - <real>column
        column += (part > half) | ((part == half) & column)  # a half goes to the even number
        row = <int32_t>y[p]
        row -= <real>row > y[p]
        part = y[p] - <real>row
        row += (part > half) | ((part == half) & row)
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
    _read_coordinates(grid, g.columns, g.width, g.align_corners, count, x)
    _read_coordinates(grid + 1, g.columns, g.height, g.align_corners, count, y)
    _pad(x, g.width, g.padding_mode, g.align_corners, count)
    _pad(y, g.height, g.padding_mode, g.align_corners, count)
    live[0] = not _all_outside(x, y, g.width, g.height, 1, count)
    if not live[0]:
        return
    _linear_axis(x, g.width, count, column, left, right)
    _linear_axis(y, g.height, count, row, upper, lower)
    for p in range(count):
        pixels[p] = row[p] * stride + column[p]
        weights[p] = -1 if (left[p] < 0) | (upper[p] < 0) else left[p] * upper[p]
        weights[TILE + p] = -1 if (right[p] < 0) | (upper[p] < 0) else right[p] * upper[p]
        weights[2 * TILE + p] = -1 if (left[p] < 0) | (lower[p] < 0) else left[p] * lower[p]
        weights[3 * TILE + p] = -1 if (right[p] < 0) | (lower[p] < 0) else right[p] * lower[p]


cdef simd_void _locate_bicubic(const Geometry *g, const real *grid, ptrdiff_t count, int32_t *columns, int32_t *rows,
                               real *x_weights, real *y_weights, bint *live) noexcept nogil:
    """Four columns and four rows (times stride) a place, with their weights; width or height: not to be read."""
    cdef real[TILE] x
    cdef real[TILE] y
    _read_coordinates(grid, g.columns, g.width, g.align_corners, count, x)
    _read_coordinates(grid + 1, g.columns, g.height, g.align_corners, count, y)
    live[0] = g.padding_mode != ZEROS or not _all_outside(x, y, g.width, g.height, 2, count)
    if not live[0]:
        return
    _cubic_axis(x, g.width, g.padding_mode, g.align_corners, 1, count, columns, x_weights)
    _cubic_axis(y, g.height, g.padding_mode, g.align_corners, <int32_t>g.stride, count, rows, y_weights)


# ---- reading from planes ------------------------------------------------------------------------------------------

cdef simd_void _nearest_from_plane(const real *plane, const int32_t *pixels, ptrdiff_t count,
                                   real *y) noexcept nogil:
    cdef ptrdiff_t p
    cdef real value
    for p in range(count):
        value = plane[pixels[p] if pixels[p] >= 0 else 0]
        y[p] = value if pixels[p] >= 0 else 0


cdef simd_void _bilinear_from_plane(const real *plane, ptrdiff_t right, ptrdiff_t below, const int32_t *pixels,
                                    const real *weights, ptrdiff_t count, real *y) noexcept nogil:
    cdef ptrdiff_t p
    cdef real a, b, c, d
    for p in range(count):
        a = plane[pixels[p]]
        b = plane[pixels[p] + right]
        c = plane[pixels[p] + below]
        d = plane[pixels[p] + right + below]
        # what is not to be read must not spoil the sum, be it NaN or infinite
        a = a if weights[p] >= 0 else 0
        b = b if weights[TILE + p] >= 0 else 0
        c = c if weights[2 * TILE + p] >= 0 else 0
        d = d if weights[3 * TILE + p] >= 0 else 0
        y[p] = (((0 + a * weights[p]) + b * weights[TILE + p]) + c * weights[2 * TILE + p]) + d * weights[3 * TILE + p]


cdef inline real _value(const real *plane, ptrdiff_t row, ptrdiff_t column, ptrdiff_t end, ptrdiff_t width) noexcept nogil:
    return plane[row + column] if row < end and column < width else 0


cdef simd_void _bicubic_from_plane(const real *plane, ptrdiff_t height, ptrdiff_t width, const int32_t *columns,
                                   const int32_t *rows, const real *x_weights, const real *y_weights, ptrdiff_t count,
                                   real *y) noexcept nogil:
    cdef real[4] sums
    cdef ptrdiff_t p, tap, end = height * width
    cdef const real *source
    for p in range(count):
        if (columns[3] - columns[0] == 3 and columns[3] < width
                and rows[3] - rows[0] == 3 * width and rows[3] < end):  # sixteen pixels in their natural order
            source = plane + rows[0] + columns[0]
            for tap in range(4):
                sums[tap] = (((source[tap] * y_weights[0] + source[width + tap] * y_weights[1])
                              + source[2 * width + tap] * y_weights[2]) + source[3 * width + tap] * y_weights[3])
        else:
            for tap in range(4):
                sums[tap] = (((_value(plane, rows[0], columns[tap], end, width) * y_weights[0]
                               + _value(plane, rows[1], columns[tap], end, width) * y_weights[1])
                              + _value(plane, rows[2], columns[tap], end, width) * y_weights[2])
                             + _value(plane, rows[3], columns[tap], end, width) * y_weights[3])
        y[p] = (((sums[0] * x_weights[0] + sums[1] * x_weights[1]) + sums[2] * x_weights[2])
                + sums[3] * x_weights[3])
        columns += 4
        rows += 4
        x_weights += 4
        y_weights += 4


# ---- reading from the copy: LANES channels side by side, and zeros in a further column and row ---------------------

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
    cdef ptrdiff_t p, lane
    cdef const real *source
    for p in range(count):
        source = copy + LANES * <ptrdiff_t>(pixels[p] if pixels[p] >= 0 else nothing)
        for lane in range(LANES):
            sums[LANES * p + lane] = source[lane]
    _unpack(sums, count, lines)


cdef simd_void _bilinear_from_copy(const real *copy, ptrdiff_t nothing, ptrdiff_t right, ptrdiff_t below,
                                   const int32_t *pixels, const real *weights, ptrdiff_t count,
                                   real *lines) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p, lane
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    for p in range(count):
        a = copy + LANES * (pixels[p] if weights[p] >= 0 else nothing)
        b = copy + LANES * (pixels[p] + right if weights[TILE + p] >= 0 else nothing)
        c = copy + LANES * (pixels[p] + below if weights[2 * TILE + p] >= 0 else nothing)
        d = copy + LANES * (pixels[p] + right + below if weights[3 * TILE + p] >= 0 else nothing)
        for lane in range(LANES):
            sums[LANES * p + lane] = ((((0 + a[lane] * weights[p]) + b[lane] * weights[TILE + p])
                                       + c[lane] * weights[2 * TILE + p]) + d[lane] * weights[3 * TILE + p])
    _unpack(sums, count, lines)


cdef simd_void _bicubic_from_copy(const real *copy, const int32_t *columns, const int32_t *rows,
                                  const real *x_weights, const real *y_weights, ptrdiff_t count,
                                  real *lines) noexcept nogil:
    cdef real[LANES * TILE] sums
    cdef ptrdiff_t p, lane, tap
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    cdef real value
    for p in range(count):
        for tap in range(4):
            a = copy + LANES * <ptrdiff_t>(rows[0] + columns[tap])
            b = copy + LANES * <ptrdiff_t>(rows[1] + columns[tap])
            c = copy + LANES * <ptrdiff_t>(rows[2] + columns[tap])
            d = copy + LANES * <ptrdiff_t>(rows[3] + columns[tap])
            for lane in range(LANES):
                value = (((a[lane] * y_weights[0] + b[lane] * y_weights[1]) + c[lane] * y_weights[2])
                         + d[lane] * y_weights[3]) * x_weights[tap]
                sums[LANES * p + lane] = value if tap == 0 else sums[LANES * p + lane] + value
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


cdef int _copies(mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin,
                 ptrdiff_t end) noexcept nogil:
    """Groups of LANES channels [begin, end) of all images, at all places."""
    cdef Geometry g = _geometry(call, True)
    cdef ptrdiff_t channels = call.inputs[0].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t places = call.outputs[0].shape[2] * call.outputs[0].shape[3]
    cdef ptrdiff_t groups = (channels + LANES - 1) // LANES
    cdef ptrdiff_t right = g.width > 1, below = g.stride if g.height > 1 else 0, nothing = g.height * g.stride
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i
    cdef int32_t[4 * TILE] first
    cdef int32_t[4 * TILE] second
    cdef real[4 * TILE] weights
    cdef real[4 * TILE] y_weights
    cdef real[LANES * TILE] lines
    cdef ptrdiff_t group, image, channel, lanes, tile, start, count, lane
    cdef const real *locations
    cdef bint live = False
    cdef real *copy = <real *>malloc((g.height + 1) * g.stride * LANES * sizeof(real))
    if copy == NULL:
        return -1
    for group in range(begin, end):
        image = group // groups
        channel = group % groups * LANES
        lanes = min(LANES, channels - channel)
        channel += image * channels
        _pack(x + channel * pixels, lanes, &g, copy)
        for tile in range((places + TILE - 1) // TILE):
            start = tile * TILE
            count = min(TILE, places - start)
            locations = grid + (image * places + start) * g.columns
            if mode == NEAREST:
                _locate_nearest(&g, locations, count, first, &live)
                if live:
                    _nearest_from_copy(copy, nothing, first, count, lines)
            elif mode == BILINEAR:
                _locate_bilinear(&g, locations, count, first, weights, &live)
                if live:
                    _bilinear_from_copy(copy, nothing, right, below, first, weights, count, lines)
            else:
                _locate_bicubic(&g, locations, count, first, second, weights, y_weights, &live)
                if live:
                    _bicubic_from_copy(copy, first, second, weights, y_weights, count, lines)
            if not live:
                memset(lines, 0, sizeof(lines))
            for lane in range(lanes):
                memcpy(y + (channel + lane) * places + start, lines + lane * TILE, count * sizeof(real))
    free(copy)
    return 0


cdef bint _worth_copying(const mmk_call *call) noexcept nogil:
    cdef const int64_t *shape = call.inputs[0].shape
    cdef int64_t groups = (shape[1] + LANES - 1) // LANES
    return (shape[1] >= LANES and shape[0] * groups >= 4
            and 2 * call.outputs[0].shape[2] * call.outputs[0].shape[3] >= shape[2] * shape[3])


cdef public int mmk_grid_sample_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[0]
    cdef mmk_tensor *grid = &call.inputs[1]
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i, padding_mode = call.attributes[PADDING_MODE].i
    cdef int64_t[4] shape
    cdef int64_t places, groups
    cdef double locate, read
    if mmk_check_shape(call, 0, "input", "[N, C, H, W]") or mmk_check_shape(call, 1, "grid", "[N, OH, OW, XY]"):
        return -1
    if grid.shape[3] < 2:
        return mmk_fail(call, "grid must have x and y in its last dimension, got [%lld, %lld, %lld, %lld]",
                        <long long>grid.shape[0], <long long>grid.shape[1], <long long>grid.shape[2],
                        <long long>grid.shape[3])
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
        return mmk_fail(call, "input may have up to 2**30 pixels, got [%lld, %lld]", <long long>x.shape[2],
                        <long long>x.shape[3])
    places = shape[2] * shape[3]
    locate = 6 if mode == BICUBIC else 1.5
    read = 2 if mode == BICUBIC else 0.9
    if _worth_copying(call):
        groups = (shape[1] + LANES - 1) // LANES
        mmk_add_phase(call, shape[0] * groups, places * (locate + LANES * read / 2) + x.shape[2] * x.shape[3] * 4.0)
    else:
        mmk_add_phase(call, shape[0] * ((places + TILE - 1) // TILE), min(places, TILE) * (locate + shape[1] * read))
    return 0


cdef public int mmk_grid_sample_run(mmk_call *call, int phase, int64_t begin, int64_t end) noexcept nogil:
    cdef const void *x = call.inputs[0].data
    cdef const void *grid = call.inputs[1].data
    cdef void *y = call.outputs[0].data
    cdef bint copying = _worth_copying(call)
    if call.inputs[0].type == MMK_FLOAT64:
        if copying:
            return _copies(call, <const double *>x, <const double *>grid, <double *>y, begin, end)
        _planes(call, <const double *>x, <const double *>grid, <double *>y, begin, end)
    else:
        if copying:
            return _copies(call, <const float *>x, <const float *>grid, <float *>y, begin, end)
        _planes(call, <const float *>x, <const float *>grid, <float *>y, begin, end)
    return 0
