"""deform_conv2d, modulated_deform_conv2d: convolution whose taps read at learned places (Dai et al. 2017, Zhu et al.
2019).

A tile of output places at a time: where its taps read is worked out once for all channels; the samples of a block of
channels become columns that stay in the cache; the product of weights and columns is added to the output.  The matrix
of all columns never exists.  Every sum is made in MMCV's order, tap after tap in channel after channel (for kernels of
more than TAPS taps, TAPS at a time), so the bits are MMCV's too.

A pixel outside of the map is 0, and must not be read: the few samples that touch one are made again, with care.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.workspace cimport take

cdef enum:  # attributes
    STRIDE_H
    STRIDE_W
    PADDING_H
    PADDING_W
    DILATION_H
    DILATION_W
    GROUPS
    DEFORM_GROUPS

cdef enum:  # inputs of both, and places of the others where there is a mask
    INPUT
    OFFSET
    MASK
    WEIGHT
    BIAS

cdef enum:
    TILE = 64    # places handled together
    TAPS = 64    # whose places are kept at a time
    PIECES = 16  # of a small map
    DEPTH = 256  # rows of columns, each a tap in a channel, that are multiplied at a time
    ROWS = 4     # channels of the input that are sampled, and of the output that are summed, side by side
    LANES = 16   # places whose columns lie side by side, in a panel
    MOST = 1 << 29  # strides, paddings, dilations, and pixels of a plane, so that all coordinates fit in 32 bits

cdef enum:  # lines of TILE numbers for each tap
    TOP_LEFT    # weights of the four pixels
    TOP_RIGHT
    BOTTOM_LEFT
    BOTTOM_RIGHT
    MODULATION
    LINES


cdef struct _Sizes:
    ptrdiff_t channels
    ptrdiff_t height
    ptrdiff_t width
    ptrdiff_t outputs        # channels of the output
    ptrdiff_t output_height
    ptrdiff_t output_width
    ptrdiff_t places         # of an output channel
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
    ptrdiff_t tile           # places handled together


cdef struct _Correction:
    int32_t place
    int32_t pixel   # number of the top left one, which may lie outside
    int32_t inside  # which of the four are inside, a bit each


cdef struct _Workspace:
    int32_t *pixels            # [TAPS, TILE] number of a sample's top left pixel, moved so that all four are inside
    void *factors              # [TAPS, LINES, TILE]
    _Correction *corrections   # [TAPS * TILE] samples that touch a pixel outside, tap after tap
    int32_t *first_correction  # [TAPS + 1] of a tap
    void *columns              # [panels, depth, LANES]
    size_t size


cdef _Workspace _workspace(void *memory, ptrdiff_t itemsize) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>memory
    w.pixels = <int32_t *>take(&address, TAPS * TILE * sizeof(int32_t))
    w.factors = take(&address, TAPS * LINES * TILE * itemsize)
    w.corrections = <_Correction *>take(&address, TAPS * TILE * sizeof(_Correction))
    w.first_correction = <int32_t *>take(&address, (TAPS + 1) * sizeof(int32_t))
    w.columns = take(&address, DEPTH * TILE * itemsize)
    w.size = address - <size_t>memory
    return w


cdef inline ptrdiff_t _output_size(ptrdiff_t size, ptrdiff_t kernel, ptrdiff_t stride, ptrdiff_t padding,
                                   ptrdiff_t dilation) noexcept nogil:
    """0 if the kernel does not fit into the padded map."""
    cdef ptrdiff_t last = size + 2 * padding - 1
    if last < 0 or kernel - 1 > last // dilation:
        return 0
    return (last - dilation * (kernel - 1)) // stride + 1


cdef inline int64_t _product(int64_t a, int64_t b) noexcept nogil:
    """Of two sizes; what is too large for 64 bits is larger than any array."""
    return a * b if b == 0 or a <= (<int64_t>1 << 62) // b else <int64_t>1 << 62


# ---- where a tap reads --------------------------------------------------------------------------------------------

cdef inline int32_t _clamp(int32_t value, int32_t high) noexcept nogil:
    value = value if value < high else high
    return 0 if value < 0 else value


cdef simd_void _locate(const int32_t *origins, int32_t row, int32_t column, const real *offset_y, const real *offset_x,
                       ptrdiff_t height, ptrdiff_t width, ptrdiff_t count, real *factors, int32_t *pixels,
                       int32_t *corners, int32_t *inside) noexcept nogil:
    """Weights and pixel numbers of a tap: the moved ones, and the true ones with what is inside of the map.

    A place a pixel or more outside reads nothing; one that is NaN gives NaN, unless the other coordinate is outside.
    """
    cdef ptrdiff_t p
    cdef int32_t last_row = <int32_t>height - 1, last_column = <int32_t>width - 1, stride = <int32_t>width
    cdef int32_t i, j, near, top, bottom, left, right
    cdef real y, x, ly, lx, hy, hx, limited_y, limited_x, low = -1, one = 1, y_end = height, x_end = width
    for p in range(count):
        y = <real>(origins[p] + row) + offset_y[p]
        x = <real>(origins[TILE + p] + column) + offset_x[p]
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
        corners[p] = i * stride + j
        top = near & (i >= 0)
        bottom = near & (i < last_row)
        left = j >= 0
        right = j < last_column
        inside[p] = (top & left) + (top & right) * 2 + (bottom & left) * 4 + (bottom & right) * 8


cdef void _locate_taps(const _Sizes *s, const real *offset, const real *mask, ptrdiff_t row, ptrdiff_t start,
                       ptrdiff_t count, ptrdiff_t first_tap, ptrdiff_t taps, const _Workspace *w) noexcept nogil:
    """Taps [first_tap, first_tap + taps) at the places [start, start + count); `row` is the mask's for tap 0."""
    cdef int32_t[2 * TILE] origins  # rows and columns that tap 0 would read without an offset
    cdef int32_t[TILE] corners
    cdef int32_t[TILE] inside
    cdef int32_t *pixels = w.pixels
    cdef real *factors = <real *>w.factors
    cdef ptrdiff_t p, tap, shift, shift_y
    cdef int32_t corrections = 0
    for p in range(count):
        origins[p] = <int32_t>((start + p) // s.output_width * s.stride_h - s.padding_h)
        origins[TILE + p] = <int32_t>((start + p) % s.output_width * s.stride_w - s.padding_w)
    memset(pixels, 0, TAPS * TILE * sizeof(int32_t))
    memset(factors, 0, TAPS * LINES * TILE * sizeof(real))
    for tap in range(first_tap, first_tap + taps):
        shift = (row + tap) * s.places + start
        shift_y = 2 * (row + tap) * s.places + start
        _locate(origins, <int32_t>(tap // s.kernel_width * s.dilation_h),
                <int32_t>(tap % s.kernel_width * s.dilation_w), offset + shift_y, offset + shift_y + s.places, s.height,
                s.width, count, factors, pixels, corners, inside)
        for p in range(count):
            factors[MODULATION * TILE + p] = <real>1 if mask == NULL else mask[shift + p]
        w.first_correction[tap - first_tap] = corrections
        for p in range(count):
            if inside[p] != 15:
                w.corrections[corrections].place = <int32_t>p
                w.corrections[corrections].pixel = corners[p]
                w.corrections[corrections].inside = inside[p]
                corrections += 1
        pixels += TILE
        factors += LINES * TILE
    w.first_correction[taps] = corrections


# ---- samples ------------------------------------------------------------------------------------------------------

cdef inline void _sample_some(const real *plane, ptrdiff_t pixels, ptrdiff_t right, ptrdiff_t below,
                              const int32_t *top_left, const real *factors, ptrdiff_t channels, ptrdiff_t taps,
                              ptrdiff_t panels, ptrdiff_t panel_size, real *columns) noexcept nogil:
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
                    pixel += pixels
                    column += taps * LANES
        top_left += TILE
        factors += LINES * TILE
        columns += LANES


cdef simd_void _sample(const real *plane, ptrdiff_t pixels, ptrdiff_t right, ptrdiff_t below, const int32_t *top_left,
                       const real *factors, ptrdiff_t channels, ptrdiff_t taps, ptrdiff_t panels, ptrdiff_t panel_size,
                       real *columns) noexcept nogil:
    """All taps of some channels, a row of the columns each."""
    while channels >= ROWS:  # the compiler is to see how many, so that it keeps the factors in registers
        _sample_some(plane, pixels, right, below, top_left, factors, ROWS, taps, panels, panel_size, columns)
        plane += ROWS * pixels
        columns += ROWS * taps * LANES
        channels -= ROWS
    while channels > 0:
        _sample_some(plane, pixels, right, below, top_left, factors, 1, taps, panels, panel_size, columns)
        plane += pixels
        columns += taps * LANES
        channels -= 1


cdef inline real _pixel_or_zero(const real *plane, ptrdiff_t pixel, int32_t inside) noexcept nogil:
    return plane[pixel] if inside else <real>0


cdef void _correct(const real *plane, ptrdiff_t width, const _Workspace *w, ptrdiff_t taps, ptrdiff_t panel_size,
                   real *columns) noexcept nogil:
    """The samples of a channel that touch a pixel outside, once more."""
    cdef ptrdiff_t tap, i
    cdef const _Correction *c
    cdef const real *factors
    cdef real sample
    for tap in range(taps):
        for i in range(w.first_correction[tap], w.first_correction[tap + 1]):
            c = &w.corrections[i]
            factors = <const real *>w.factors + tap * LINES * TILE + c.place
            sample = 0
            if c.inside:  # else the factors may be anything
                sample = (factors[TOP_LEFT * TILE] * _pixel_or_zero(plane, c.pixel, c.inside & 1)
                          + factors[TOP_RIGHT * TILE] * _pixel_or_zero(plane, c.pixel + 1, c.inside & 2)
                          + factors[BOTTOM_LEFT * TILE] * _pixel_or_zero(plane, c.pixel + width, c.inside & 4)
                          + factors[BOTTOM_RIGHT * TILE] * _pixel_or_zero(plane, c.pixel + width + 1, c.inside & 8))
            columns[c.place // LANES * panel_size + c.place % LANES] = factors[MODULATION * TILE] * sample
        columns += LANES


# ---- the product --------------------------------------------------------------------------------------------------

cdef simd_void _multiply_rows(const real *panel, const real *weights_a, const real *weights_b, const real *weights_c,
                              const real *weights_d, ptrdiff_t depth, real *sums, ptrdiff_t step) noexcept nogil:
    """Add the products of ROWS rows of weights and a panel of columns to sums whose rows are `step` apart."""
    cdef ptrdiff_t k, lane
    cdef real[LANES] a
    cdef real[LANES] b
    cdef real[LANES] c
    cdef real[LANES] d
    cdef real wa, wb, wc, wd, value
    for lane in range(LANES):
        a[lane] = sums[lane]
        b[lane] = sums[step + lane]
        c[lane] = sums[2 * step + lane]
        d[lane] = sums[3 * step + lane]
    for k in range(depth):
        wa = weights_a[k]
        wb = weights_b[k]
        wc = weights_c[k]
        wd = weights_d[k]
        for lane in range(LANES):
            value = panel[k * LANES + lane]
            a[lane] += wa * value
            b[lane] += wb * value
            c[lane] += wc * value
            d[lane] += wd * value
    for lane in range(LANES):
        sums[lane] = a[lane]
        sums[step + lane] = b[lane]
        sums[2 * step + lane] = c[lane]
        sums[3 * step + lane] = d[lane]


cdef void _multiply(const real *columns, ptrdiff_t depth, const real *weights, ptrdiff_t weight_step, ptrdiff_t rows,
                    real *y, ptrdiff_t step, ptrdiff_t count) noexcept nogil:
    """Add the products of `rows` rows of weights and all columns to as many rows of `count` sums."""
    cdef ptrdiff_t start = 0, row, row_count, lane_count, r
    cdef const real *a
    cdef const real *b
    cdef const real *c
    cdef const real *d
    cdef real *sums
    cdef real[ROWS * LANES] narrow  # where there are fewer rows or lanes
    memset(narrow, 0, sizeof(narrow))
    while start < count:
        lane_count = min(LANES, count - start)
        row = 0
        while row < rows:
            row_count = min(ROWS, rows - row)
            sums = y + row * step + start
            a = weights + row * weight_step
            b = a + min(1, row_count - 1) * weight_step
            c = a + min(2, row_count - 1) * weight_step
            d = a + min(3, row_count - 1) * weight_step
            if row_count == ROWS and lane_count == LANES:
                _multiply_rows(columns, a, b, c, d, depth, sums, step)
            else:
                for r in range(row_count):
                    memcpy(narrow + r * LANES, sums + r * step, lane_count * sizeof(real))
                _multiply_rows(columns, a, b, c, d, depth, <real *>narrow, LANES)
                for r in range(row_count):
                    memcpy(sums + r * step, narrow + r * LANES, lane_count * sizeof(real))
            row += ROWS
        columns += depth * LANES
        start += LANES


# ---- tiles --------------------------------------------------------------------------------------------------------

cdef void _convolve(const _Sizes *s, const real *x, const real *offset, const real *mask, const real *weights,
                    const real *bias, real *y, ptrdiff_t image, ptrdiff_t start, ptrdiff_t count,
                    const _Workspace *w) noexcept nogil:
    """The places [start, start + count) of one image."""
    cdef ptrdiff_t right = s.width > 1, below = s.width if s.height > 1 else 0, pixels = s.height * s.width
    cdef ptrdiff_t panels = (count + LANES - 1) // LANES
    cdef ptrdiff_t channels = s.channels // s.groups, outputs = s.outputs // s.groups
    cdef ptrdiff_t deform_channels = s.channels // s.deform_groups
    cdef ptrdiff_t first_tap = 0, taps, most, depth, channel, last, group, deform_group, located, i, p
    cdef real *columns = <real *>w.columns
    x += image * s.channels * pixels
    y += image * s.outputs * s.places + start
    for i in range(s.outputs):
        memset(y + i * s.places, 0, count * sizeof(real))
    while first_tap < s.taps:
        taps = min(TAPS, s.taps - first_tap)
        most = DEPTH // taps if taps == s.taps else 1  # the weights of a block are to lie in one piece
        located = -1
        channel = 0
        while channel < s.channels:
            group = channel // channels
            deform_group = channel // deform_channels
            if located != deform_group:
                _locate_taps(s, offset, mask, (image * s.deform_groups + deform_group) * s.taps, start, count,
                             first_tap, taps, w)
                located = deform_group
            last = min(channel + most, min((group + 1) * channels, (deform_group + 1) * deform_channels))
            depth = (last - channel) * taps
            _sample(x + channel * pixels, pixels, right, below, w.pixels, <const real *>w.factors, last - channel, taps,
                    panels, depth * LANES, columns)
            for i in range(last - channel):
                _correct(x + (channel + i) * pixels, s.width, w, taps, depth * LANES, columns + i * taps * LANES)
            _multiply(columns, depth,
                      weights + (group * outputs * channels + channel - group * channels) * s.taps + first_tap,
                      channels * s.taps, outputs, y + group * outputs * s.places, s.places, count)
            channel = last
        first_tap += taps
    if bias != NULL:
        for i in range(s.outputs):
            for p in range(count):
                y[i * s.places + p] += bias[i]


cdef void _tiles(const mmk_call *call, const real *x, const real *offset, const real *mask, const real *weights,
                 const real *bias, real *y, ptrdiff_t begin, ptrdiff_t end, void *scratch) noexcept nogil:
    cdef _Sizes s = _sizes(call)
    cdef _Workspace w = _workspace(scratch, sizeof(real))
    cdef ptrdiff_t tiles = (s.places + s.tile - 1) // s.tile, tile, start
    for tile in range(begin, end):
        start = tile % tiles * s.tile
        _convolve(&s, x, offset, mask, weights, bias, y, tile // tiles, start, min(s.tile, s.places - start), &w)


# ---- the two operators --------------------------------------------------------------------------------------------

cdef bint _is_modulated(const mmk_call *call) noexcept nogil:
    return call.inputs[WEIGHT].type != MMK_ABSENT  # else the weight comes in place of the mask


cdef _Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef _Sizes s
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef const mmk_tensor *weight = &call.inputs[WEIGHT if _is_modulated(call) else MASK]
    s.channels = x.shape[1]
    s.height = x.shape[2]
    s.width = x.shape[3]
    s.outputs = weight.shape[0]
    s.kernel_width = weight.shape[3]
    s.stride_h = call.attributes[STRIDE_H].i
    s.stride_w = call.attributes[STRIDE_W].i
    s.padding_h = call.attributes[PADDING_H].i
    s.padding_w = call.attributes[PADDING_W].i
    s.dilation_h = call.attributes[DILATION_H].i
    s.dilation_w = call.attributes[DILATION_W].i
    s.groups = call.attributes[GROUPS].i
    s.deform_groups = call.attributes[DEFORM_GROUPS].i
    s.output_height = _output_size(s.height, weight.shape[2], s.stride_h, s.padding_h, s.dilation_h)
    s.output_width = _output_size(s.width, weight.shape[3], s.stride_w, s.padding_w, s.dilation_w)
    s.places = s.output_height * s.output_width
    s.taps = _product(weight.shape[2], weight.shape[3]) if x.size else 0  # without pixels there is nothing to add
    # small maps are cut smaller, so that there is work for all threads; the results do not depend on it
    s.tile = min(TILE, max(1, _product(x.shape[0], s.places) // (PIECES * LANES)) * LANES)
    return s


cdef int _check_attributes(mmk_call *call) noexcept nogil:
    cdef const mmk_attribute *a = call.attributes
    cdef int i
    for i in range(STRIDE_H, GROUPS):
        if a[i].i < (0 if i == PADDING_H or i == PADDING_W else 1) or a[i].i > MOST:
            return mmk_fail(call, "%s must be between %d and 2**29, got [%lld, %lld]",
                            b"stride" if i < PADDING_H else b"padding" if i < DILATION_H else b"dilation",
                            <int>(0 if i == PADDING_H or i == PADDING_W else 1), <long long>a[i & ~1].i,
                            <long long>a[i | 1].i)
    for i in range(GROUPS, DEFORM_GROUPS + 1):
        if a[i].i < 1:
            return mmk_fail(call, "%s must be at least 1, got %lld", b"groups" if i == GROUPS else b"deform_groups",
                            <long long>a[i].i)
    return 0


cdef int _check_map(mmk_call *call, int i, const char *argument, const char *form,
                    const int64_t *shape) noexcept nogil:
    """An input that has a value, or some, for each place: its rank, and then its sizes."""
    cdef char[96] required
    snprintf(required, sizeof(required), "[%lld, %lld, %lld, %lld]", <long long>shape[0], <long long>shape[1],
             <long long>shape[2], <long long>shape[3])
    return mmk_check_shape(call, i, argument, form if call.inputs[i].rank != 4 else <const char *>required)


cdef int _prepare(mmk_call *call, bint modulated) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef int weight_at = WEIGHT if modulated else MASK
    cdef const mmk_tensor *weight = &call.inputs[weight_at]
    cdef int64_t taps
    cdef int64_t[4] shape
    cdef _Sizes s
    if (_check_attributes(call) or mmk_check_shape(call, INPUT, "input", "[N, C, H, W]")
            or mmk_check_shape(call, weight_at, "weight", "[O, C/groups, KH, KW]")):
        return -1
    if max(x.shape[2], 1) > MOST // max(x.shape[3], 1):
        return mmk_fail(call, "input may have up to 2**29 pixels, got [%lld, %lld]", <long long>x.shape[2],
                        <long long>x.shape[3])
    s = _sizes(call)
    if s.channels % s.groups or s.outputs % s.groups:
        return mmk_fail(call, "groups must divide the channels of input and output, %lld and %lld, got %lld",
                        <long long>s.channels, <long long>s.outputs, <long long>s.groups)
    if s.channels % s.deform_groups:
        return mmk_fail(call, "deform_groups must divide the channels of input, %lld, got %lld", <long long>s.channels,
                        <long long>s.deform_groups)
    if weight.shape[1] != s.channels // s.groups or weight.shape[2] < 1 or weight.shape[3] < 1:
        return mmk_fail(call,
                        "weight must be [O, %lld, KH, KW] with KH and KW at least 1, got [%lld, %lld, %lld, %lld]",
                        <long long>(s.channels // s.groups), <long long>weight.shape[0], <long long>weight.shape[1],
                        <long long>weight.shape[2], <long long>weight.shape[3])
    if modulated and call.inputs[BIAS].type != MMK_ABSENT and mmk_check_shape(call, BIAS, "bias", "[O]"):
        return -1
    taps = _product(weight.shape[2], weight.shape[3])
    shape[0] = x.shape[0]
    shape[1] = _product(_product(2, s.deform_groups), taps)
    shape[2] = s.output_height
    shape[3] = s.output_width
    if _check_map(call, OFFSET, "offset", "[N, deform_groups*2*KH*KW, OH, OW]", shape):
        return -1
    shape[1] = _product(s.deform_groups, taps)
    if modulated and _check_map(call, MASK, "mask", "[N, deform_groups*KH*KW, OH, OW]", shape):
        return -1
    shape[1] = s.outputs
    if mmk_set_output(call, 0, x.type, 4, shape):
        return -1
    if call.outputs[0].size:
        mmk_add_phase(call, x.shape[0] * ((s.places + s.tile - 1) // s.tile),
                      s.tile * (weight.size * 0.018 + s.channels * s.taps * 0.5))
        call.worker_scratch_size[0] = _workspace(
            NULL, sizeof(float) if x.type == MMK_FLOAT32 else sizeof(double)).size
    return 0


cdef void _run(mmk_call *call, bint modulated, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *x = call.inputs[INPUT].data
    cdef const void *offset = call.inputs[OFFSET].data
    cdef const void *mask = call.inputs[MASK].data if modulated else NULL
    cdef const void *weight = call.inputs[WEIGHT if modulated else MASK].data
    cdef const void *bias = call.inputs[BIAS].data if modulated else NULL
    cdef void *y = call.outputs[0].data
    if call.inputs[INPUT].type == MMK_FLOAT64:
        _tiles(call, <const double *>x, <const double *>offset, <const double *>mask, <const double *>weight,
               <const double *>bias, <double *>y, begin, end, scratch)
    else:
        _tiles(call, <const float *>x, <const float *>offset, <const float *>mask, <const float *>weight,
               <const float *>bias, <float *>y, begin, end, scratch)


cdef public int mmk_deform_conv2d_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call, False)


cdef public void mmk_deform_conv2d_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                       void *scratch) noexcept nogil:
    _run(call, False, begin, end, scratch)


cdef public int mmk_modulated_deform_conv2d_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call, True)


cdef public void mmk_modulated_deform_conv2d_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                                 void *scratch) noexcept nogil:
    _run(call, True, begin, end, scratch)
