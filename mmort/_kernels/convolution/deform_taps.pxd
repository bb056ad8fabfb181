"""deform_conv2d: locates the taps of a tile, and samples them as columns.

Offsets of pixels and their weights are computed once for all channels of a deformable group.  Pixels are read from a
copy of the map with channels last (sampling.pxd), so that a vector has one pixel of many channels.  A pixel outside the
map counts as 0: behind the copy there is one of zeros.
"""
from libc.stdint cimport int32_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.sampling.sampling cimport LANES, padded
from mmort._kernels.shared.workspace cimport take

cdef enum:
    TILE = 84        # positions of the output handled together: a multiple of what any product takes at a time
    MAX_TAPS = 64    # located at a time
    MAX_DEPTH = 576  # rows of columns, each a tap in a channel, multiplied at a time: more if LANES channels have more

cdef enum:  # numbers of each tap at each position
    TOP_LEFT    # weights of the four pixels
    TOP_RIGHT
    BOTTOM_LEFT
    BOTTOM_RIGHT
    MODULATION
    PIXELS = 4
    FACTORS = 5


cdef struct Sizes:
    ptrdiff_t channels
    ptrdiff_t height
    ptrdiff_t width
    ptrdiff_t pixels         # of all images
    ptrdiff_t outputs        # channels of the output
    ptrdiff_t output_height
    ptrdiff_t output_width
    ptrdiff_t positions      # of an output channel
    ptrdiff_t kernel_width
    ptrdiff_t taps
    ptrdiff_t stride_h
    ptrdiff_t stride_w
    ptrdiff_t padding_h
    ptrdiff_t padding_w
    ptrdiff_t dilation_h
    ptrdiff_t dilation_w
    ptrdiff_t groups
    ptrdiff_t deform_groups
    ptrdiff_t tile           # positions handled together
    ptrdiff_t max_channels   # sampled together
    ptrdiff_t panels         # of weights of a group
    ptrdiff_t sums           # numbers summed at a position: those of all panels


cdef struct Workspace:
    ptrdiff_t *pixels  # [MAX_TAPS, TILE, PIXELS] offsets in the copy
    void *factors      # [MAX_TAPS, TILE, FACTORS]
    void *columns      # [TILE, taps, channels sampled together]
    void *sums         # [TILE, outputs]
    size_t size


cdef inline Workspace workspace(const Sizes *s, void *memory, size_t itemsize) noexcept nogil:
    cdef Workspace w
    cdef size_t address = <size_t>memory
    cdef ptrdiff_t taps = min(MAX_TAPS, s.taps)
    w.pixels = <ptrdiff_t *>take(&address, taps * TILE * PIXELS * sizeof(ptrdiff_t))
    w.factors = take(&address, taps * TILE * FACTORS * itemsize)
    w.columns = take(&address, TILE * taps * s.max_channels * itemsize)
    w.sums = take(&address, TILE * s.sums * itemsize)
    w.size = address - <size_t>memory
    return w


# ---- where a tap reads -----------------------------------------------------------------------------------------------

cdef struct _Tile:
    int32_t[TILE] origin_y  # position of tap 0 without an offset
    int32_t[TILE] origin_x
    int32_t[TILE] corner    # index of the top left pixel, which may be outside
    int32_t[TILE] inside    # which of the four are inside, one bit each


cdef inline simd_void _locate(const Sizes *s, ptrdiff_t tap, const real *offset_y, const real *offset_x,
                              ptrdiff_t count, _Tile *tile, real *weights) noexcept nogil:
    """Computes the weights of a tap's pixels, as four lines of TILE, and which pixels they are.

    A position a pixel or more outside reads nothing; a NaN coordinate gives NaN, unless the other one is outside.
    """
    cdef ptrdiff_t p
    cdef int32_t row = <int32_t>(tap // s.kernel_width * s.dilation_h)
    cdef int32_t column = <int32_t>(tap % s.kernel_width * s.dilation_w)
    cdef int32_t last_row = <int32_t>s.height - 1, last_column = <int32_t>s.width - 1, stride = <int32_t>s.width
    cdef int32_t i, j, near, top, bottom, left, right
    cdef real y, x, ly, lx, hy, hx, limited_y, limited_x, low = -1, one = 1, y_end = s.height, x_end = s.width
    for p in range(count):
        y = <real>(tile.origin_y[p] + row) + offset_y[p]
        x = <real>(tile.origin_x[p] + column) + offset_x[p]
        near = not ((y <= low) | (y >= y_end) | (x <= low) | (x >= x_end))
        limited_y = y if y > low else low
        limited_x = x if x > low else low
        limited_y = limited_y if limited_y < y_end else y_end
        limited_x = limited_x if limited_x < x_end else x_end
        i = <int32_t>limited_y
        j = <int32_t>limited_x
        i -= limited_y < <real>i
        j -= limited_x < <real>j
        ly = y - <real>i
        lx = x - <real>j
        hy = one - ly
        hx = one - lx
        weights[TOP_LEFT * TILE + p] = hy * hx
        weights[TOP_RIGHT * TILE + p] = hy * lx
        weights[BOTTOM_LEFT * TILE + p] = ly * hx
        weights[BOTTOM_RIGHT * TILE + p] = ly * lx
        tile.corner[p] = i * stride + j
        top = near & (i >= 0)
        bottom = near & (i < last_row)
        left = j >= 0
        right = j < last_column
        tile.inside[p] = (top & left) + (top & right) * 2 + (bottom & left) * 4 + (bottom & right) * 8


cdef inline void locate_taps(const Sizes *s, ptrdiff_t first_pixel, const real *offset, const real *mask,
                             ptrdiff_t start, ptrdiff_t count, ptrdiff_t first_tap, ptrdiff_t taps,
                             const Workspace *w) noexcept nogil:
    """Locates taps [first_tap, first_tap + taps) of positions [start, start + count); `mask` may be NULL.

    `first_pixel` is the image's first in the copy.
    """
    cdef _Tile tile
    cdef real[PIXELS * TILE] weights
    cdef ptrdiff_t *pixels = w.pixels
    cdef real *factors = <real *>w.factors
    cdef const real *offset_y
    cdef ptrdiff_t stride = padded(s.channels), p, tap, i, pixel
    cdef int32_t inside
    for p in range(count):
        tile.origin_y[p] = <int32_t>((start + p) // s.output_width * s.stride_h - s.padding_h)
        tile.origin_x[p] = <int32_t>((start + p) % s.output_width * s.stride_w - s.padding_w)
    memset(pixels, 0, taps * TILE * PIXELS * sizeof(ptrdiff_t))
    memset(factors, 0, taps * TILE * FACTORS * sizeof(real))
    for tap in range(first_tap, first_tap + taps):
        offset_y = offset + 2 * tap * s.positions + start
        _locate(s, tap, offset_y, offset_y + s.positions, count, &tile, <real *>weights)
        for p in range(count):
            inside = tile.inside[p]
            for i in range(PIXELS):
                pixel = first_pixel + tile.corner[p] + (i >> 1) * s.width + (i & 1)
                pixels[p * PIXELS + i] = (pixel if inside >> i & 1 else s.pixels) * stride
                factors[p * FACTORS + i] = weights[i * TILE + p] if inside else <real>0
            factors[p * FACTORS + MODULATION] = <real>1 if mask == NULL else mask[tap * s.positions + start + p]
        pixels += TILE * PIXELS
        factors += TILE * FACTORS


# ---- samples ---------------------------------------------------------------------------------------------------------

cdef inline simd_void sample(const Workspace *w, const real *copy, ptrdiff_t count, ptrdiff_t taps,
                             ptrdiff_t channels) noexcept nogil:
    """Samples all taps of `count` positions into the columns; `channels` is a multiple of LANES."""
    cdef real *column = <real *>w.columns
    cdef const real *factors
    cdef const ptrdiff_t *pixels
    cdef const real *top_left
    cdef const real *top_right
    cdef const real *bottom_left
    cdef const real *bottom_right
    cdef ptrdiff_t p, tap, c, lane
    cdef real a, b, d, e, modulation
    cdef real[LANES] value
    for p in range(count):
        for tap in range(taps):
            pixels = w.pixels + (tap * TILE + p) * PIXELS
            factors = <const real *>w.factors + (tap * TILE + p) * FACTORS
            top_left = copy + pixels[TOP_LEFT]
            top_right = copy + pixels[TOP_RIGHT]
            bottom_left = copy + pixels[BOTTOM_LEFT]
            bottom_right = copy + pixels[BOTTOM_RIGHT]
            a = factors[TOP_LEFT]
            b = factors[TOP_RIGHT]
            d = factors[BOTTOM_LEFT]
            e = factors[BOTTOM_RIGHT]
            modulation = factors[MODULATION]
            c = 0
            while c < channels:
                for lane in range(LANES):
                    value[lane] = modulation * (a * top_left[c + lane] + b * top_right[c + lane]
                                                + d * bottom_left[c + lane] + e * bottom_right[c + lane])
                for lane in range(LANES):
                    column[c + lane] = value[lane]
                c += LANES
            column += channels
