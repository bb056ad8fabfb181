"""deform_conv2d: locates the taps of a tile, and samples them as columns.

Pixel indices and weights are computed once for all channels of a deformable group.  A pixel outside the map counts as 0
and must not be read: pixel indices are moved so that all four pixels are inside, and the few samples that touch one
outside are computed again.
"""
from libc.stdint cimport int32_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.workspace cimport take

cdef enum:
    TILE = 64       # positions of the output handled together
    MAX_TAPS = 64   # of which weights are kept at a time
    MAX_DEPTH = 256  # rows of columns, each a tap in a channel, that are multiplied at a time
    ROWS = 4        # channels of the input that are sampled, and of the output that are summed, together
    LANES = 16      # positions whose columns are adjacent, in a panel

cdef enum:  # lines of TILE values for each tap
    TOP_LEFT    # weights of the four pixels
    TOP_RIGHT
    BOTTOM_LEFT
    BOTTOM_RIGHT
    MODULATION
    LINES


cdef struct Sizes:
    ptrdiff_t channels
    ptrdiff_t height
    ptrdiff_t width
    ptrdiff_t plane_size
    ptrdiff_t right          # pixels to the right neighbour; 0 if there is one column only
    ptrdiff_t below          # pixels to the neighbour below; 0 if there is one row only
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


cdef struct Correction:  # a sample that touches a pixel outside
    int32_t position
    int32_t pixel   # index of the top left one, which may be outside
    int32_t inside  # which of the four are inside, one bit each


cdef struct Workspace:
    int32_t *pixels            # [MAX_TAPS, TILE] index of a sample's top left pixel, moved so that all four are inside
    void *factors              # [MAX_TAPS, LINES, TILE]
    Correction *corrections    # [MAX_TAPS * TILE], tap after tap
    int32_t *first_correction  # [MAX_TAPS + 1] of a tap
    void *columns              # [panels, depth, LANES]
    size_t size


cdef inline Workspace workspace(void *memory, size_t itemsize) noexcept nogil:
    cdef Workspace w
    cdef size_t address = <size_t>memory
    w.pixels = <int32_t *>take(&address, MAX_TAPS * TILE * sizeof(int32_t))
    w.factors = take(&address, MAX_TAPS * LINES * TILE * itemsize)
    w.corrections = <Correction *>take(&address, MAX_TAPS * TILE * sizeof(Correction))
    w.first_correction = <int32_t *>take(&address, (MAX_TAPS + 1) * sizeof(int32_t))
    w.columns = take(&address, MAX_DEPTH * TILE * itemsize)
    w.size = address - <size_t>memory
    return w


# ---- where a tap reads -----------------------------------------------------------------------------------------------

cdef struct _Tile:
    int32_t[TILE] origin_y  # position of tap 0 without an offset
    int32_t[TILE] origin_x
    int32_t[TILE] corner    # indices of the true top left pixels, not moved
    int32_t[TILE] inside


cdef inline int32_t _clamp(int32_t value, int32_t high) noexcept nogil:
    value = value if value < high else high
    return 0 if value < 0 else value


cdef inline simd_void _locate(const Sizes *s, ptrdiff_t tap, const real *offset_y, const real *offset_x,
                              ptrdiff_t count, _Tile *tile, real *factors, int32_t *pixels) noexcept nogil:
    """Computes the weights and pixel indices of a tap: the moved ones, and the true ones with which are inside.

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
        factors[TOP_LEFT * TILE + p] = hy * hx
        factors[TOP_RIGHT * TILE + p] = hy * lx
        factors[BOTTOM_LEFT * TILE + p] = ly * hx
        factors[BOTTOM_RIGHT * TILE + p] = ly * lx
        pixels[p] = _clamp(i, last_row - 1) * stride + _clamp(j, last_column - 1)
        tile.corner[p] = i * stride + j
        top = near & (i >= 0)
        bottom = near & (i < last_row)
        left = j >= 0
        right = j < last_column
        tile.inside[p] = (top & left) + (top & right) * 2 + (bottom & left) * 4 + (bottom & right) * 8


cdef inline void locate_taps(const Sizes *s, const real *offset, const real *mask, ptrdiff_t start, ptrdiff_t count,
                             ptrdiff_t first_tap, ptrdiff_t taps, const Workspace *w) noexcept nogil:
    """Locates taps [first_tap, first_tap + taps) of positions [start, start + count); `mask` may be NULL."""
    cdef _Tile tile
    cdef int32_t *pixels = w.pixels
    cdef real *factors = <real *>w.factors
    cdef const real *offset_y
    cdef ptrdiff_t p, tap
    cdef int32_t corrections = 0
    for p in range(count):
        tile.origin_y[p] = <int32_t>((start + p) // s.output_width * s.stride_h - s.padding_h)
        tile.origin_x[p] = <int32_t>((start + p) % s.output_width * s.stride_w - s.padding_w)
    memset(pixels, 0, MAX_TAPS * TILE * sizeof(int32_t))
    memset(factors, 0, MAX_TAPS * LINES * TILE * sizeof(real))
    for tap in range(first_tap, first_tap + taps):
        offset_y = offset + 2 * tap * s.positions + start
        _locate(s, tap, offset_y, offset_y + s.positions, count, &tile, factors, pixels)
        for p in range(count):
            factors[MODULATION * TILE + p] = <real>1 if mask == NULL else mask[tap * s.positions + start + p]
        w.first_correction[tap - first_tap] = corrections
        for p in range(count):
            if tile.inside[p] != 15:
                w.corrections[corrections].position = <int32_t>p
                w.corrections[corrections].pixel = tile.corner[p]
                w.corrections[corrections].inside = tile.inside[p]
                corrections += 1
        pixels += TILE
        factors += LINES * TILE
    w.first_correction[taps] = corrections


# ---- samples ---------------------------------------------------------------------------------------------------------

cdef inline void _sample_channels(const Sizes *s, const Workspace *w, const real *plane, ptrdiff_t channels,
                                  ptrdiff_t taps, ptrdiff_t panels, ptrdiff_t panel_size, real *columns) noexcept nogil:
    cdef ptrdiff_t plane_size = s.plane_size, right = s.right, below = s.below
    cdef const int32_t *top_left = w.pixels
    cdef const real *factors = <const real *>w.factors
    cdef ptrdiff_t _tap, panel, lane, p, _channel
    cdef const real *pixel
    cdef real *column
    cdef real a, b, c, d, modulation
    for _tap in range(taps):
        for panel in range(panels):
            for lane in range(LANES):
                p = panel * LANES + lane
                a = factors[TOP_LEFT * TILE + p]
                b = factors[TOP_RIGHT * TILE + p]
                c = factors[BOTTOM_LEFT * TILE + p]
                d = factors[BOTTOM_RIGHT * TILE + p]
                modulation = factors[MODULATION * TILE + p]
                pixel = plane + top_left[p]
                column = columns + panel * panel_size + lane
                for _channel in range(channels):
                    column[0] = modulation * (a * pixel[0] + b * pixel[right] + c * pixel[below]
                                              + d * pixel[below + right])
                    pixel += plane_size
                    column += taps * LANES
        top_left += TILE
        factors += LINES * TILE
        columns += LANES


cdef inline simd_void sample(const Sizes *s, const Workspace *w, const real *plane, ptrdiff_t channels, ptrdiff_t taps,
                             ptrdiff_t panels, ptrdiff_t panel_size, real *columns) noexcept nogil:
    """Samples all taps of `channels` channels, each into a row of the columns."""
    while channels >= ROWS:  # a constant, so that the compiler keeps the factors in registers
        _sample_channels(s, w, plane, ROWS, taps, panels, panel_size, columns)
        plane += ROWS * s.plane_size
        columns += ROWS * taps * LANES
        channels -= ROWS
    while channels > 0:
        _sample_channels(s, w, plane, 1, taps, panels, panel_size, columns)
        plane += s.plane_size
        columns += taps * LANES
        channels -= 1


cdef inline real _pixel_or_zero(const real *plane, ptrdiff_t pixel, int32_t inside) noexcept nogil:
    return plane[pixel] if inside else <real>0


cdef inline void correct(const Sizes *s, const Workspace *w, const real *plane, ptrdiff_t taps, ptrdiff_t panel_size,
                         real *columns) noexcept nogil:
    """Computes again the samples of a channel that touch a pixel outside."""
    cdef ptrdiff_t tap, i
    cdef const Correction *c
    cdef const real *factors
    cdef real value
    for tap in range(taps):
        for i in range(w.first_correction[tap], w.first_correction[tap + 1]):
            c = &w.corrections[i]
            factors = <const real *>w.factors + tap * LINES * TILE + c.position
            value = 0
            if c.inside:  # else the factors may have any value
                value = (factors[TOP_LEFT * TILE] * _pixel_or_zero(plane, c.pixel, c.inside & 1)
                         + factors[TOP_RIGHT * TILE] * _pixel_or_zero(plane, c.pixel + 1, c.inside & 2)
                         + factors[BOTTOM_LEFT * TILE] * _pixel_or_zero(plane, c.pixel + s.width, c.inside & 4)
                         + factors[BOTTOM_RIGHT * TILE] * _pixel_or_zero(plane, c.pixel + s.width + 1, c.inside & 8))
            columns[c.position // LANES * panel_size + c.position % LANES] = factors[MODULATION * TILE] * value
        columns += LANES
