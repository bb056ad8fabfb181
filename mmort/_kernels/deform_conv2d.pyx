"""deform_conv2d, modulated_deform_conv2d: convolution whose taps read at learned positions (Dai et al. 2017, Zhu et al.
2019).

The output is computed tile by tile: the positions that the taps of a tile read are located once for all channels
(deform_taps.pxd); the samples of a block of channels become columns that stay in the cache; the product of weights and
columns is added to the output.  The matrix of all columns is never built.  Every sum is in MMCV's order, tap after tap
in channel after channel (for kernels of more than MAX_TAPS taps, MAX_TAPS at a time), so the bits are MMCV's too.
"""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.deform_taps cimport (LANES, MAX_DEPTH, MAX_TAPS, ROWS, TILE, Sizes, Workspace, correct, locate_taps,
                                         sample, workspace)
from mmort._kernels.workspace cimport element_size

cdef enum:  # attributes
    STRIDE_H
    STRIDE_W
    PADDING_H
    PADDING_W
    DILATION_H
    DILATION_W
    GROUPS
    DEFORM_GROUPS

cdef enum:  # inputs of modulated_deform_conv2d; deform_conv2d has no mask, and its weight takes that index
    INPUT
    OFFSET
    MASK
    WEIGHT
    BIAS

cdef enum:
    MIN_TILES = 16  # that a small map is divided into
    MAX_SIZE = 1 << 29  # strides, paddings, dilations, and pixels of a plane, so that all coordinates fit in 32 bits

cdef enum:  # picoseconds per position; deform_conv2d, 1x256x100x152 to 256 channels
    PRODUCT_COST = 18  # and per weight
    SAMPLE_COST = 500  # and per tap of a channel


cdef inline ptrdiff_t _output_size(ptrdiff_t size, ptrdiff_t kernel, ptrdiff_t stride, ptrdiff_t padding,
                                   ptrdiff_t dilation) noexcept nogil:
    """Returns 0 if the kernel does not fit into the padded map."""
    cdef ptrdiff_t last = size + 2 * padding - 1
    if last < 0 or kernel - 1 > last // dilation:
        return 0
    return (last - dilation * (kernel - 1)) // stride + 1


cdef inline int64_t _product(int64_t a, int64_t b) noexcept nogil:
    """Returns the product of two sizes, or, if that does not fit in 64 bits, a size that no array has."""
    return a * b if b == 0 or a <= (<int64_t>1 << 62) // b else <int64_t>1 << 62


# ---- the product -----------------------------------------------------------------------------------------------------

cdef simd_void _multiply_rows(const real *panel, const real *weights_a, const real *weights_b, const real *weights_c,
                              const real *weights_d, ptrdiff_t depth, real *sums, ptrdiff_t step) noexcept nogil:
    """Adds the product of ROWS rows of weights and a panel of columns to sums whose rows are `step` apart."""
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
    """Adds the product of `rows` rows of weights and all columns to as many rows of `count` sums."""
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


# ---- tiles -----------------------------------------------------------------------------------------------------------

cdef void _convolve(const Sizes *s, const real *x, const real *offset, const real *mask, const real *weights, real *y,
                    ptrdiff_t start, ptrdiff_t count, const Workspace *w) noexcept nogil:
    """Computes positions [start, start + count) of an image; `y` points at the first of them."""
    cdef ptrdiff_t panels = (count + LANES - 1) // LANES
    cdef ptrdiff_t channels = s.channels // s.groups, outputs = s.outputs // s.groups
    cdef ptrdiff_t deform_channels = s.channels // s.deform_groups
    cdef ptrdiff_t first_tap = 0, taps, max_channels, depth, channel, last, group, deform_group, located
    cdef ptrdiff_t first_offset, i
    cdef real *columns = <real *>w.columns
    for i in range(s.outputs):
        memset(y + i * s.positions, 0, count * sizeof(real))
    while first_tap < s.taps:
        taps = min(MAX_TAPS, s.taps - first_tap)
        max_channels = MAX_DEPTH // taps if taps == s.taps else 1  # the weights of a block must be contiguous
        located = -1
        channel = 0
        while channel < s.channels:
            group = channel // channels
            deform_group = channel // deform_channels
            if located != deform_group:
                first_offset = deform_group * s.taps * s.positions
                locate_taps(s, offset + 2 * first_offset, mask + first_offset if mask != NULL else NULL, start, count,
                            first_tap, taps, w)
                located = deform_group
            last = min(channel + max_channels, min((group + 1) * channels, (deform_group + 1) * deform_channels))
            depth = (last - channel) * taps
            sample(s, w, x + channel * s.plane_size, last - channel, taps, panels, depth * LANES, columns)
            for i in range(last - channel):
                correct(s, w, x + (channel + i) * s.plane_size, taps, depth * LANES, columns + i * taps * LANES)
            _multiply(columns, depth,
                      weights + (group * outputs * channels + channel - group * channels) * s.taps + first_tap,
                      channels * s.taps, outputs, y + group * outputs * s.positions, s.positions, count)
            channel = last
        first_tap += taps


cdef void _tiles(const mmk_call *call, const real *input, bint modulated, ptrdiff_t begin, ptrdiff_t end,
                 void *scratch) noexcept nogil:
    """Computes tiles [begin, end), counted through all images."""
    cdef Sizes s = _sizes(call)
    cdef Workspace w = workspace(scratch, sizeof(real))
    cdef const real *offset = <const real *>call.inputs[OFFSET].data
    cdef const real *mask = <const real *>call.inputs[MASK].data if modulated else NULL
    cdef const real *weights = <const real *>call.inputs[WEIGHT if modulated else MASK].data
    cdef const real *bias = <const real *>call.inputs[BIAS].data if modulated else NULL
    cdef real *y
    cdef ptrdiff_t tiles = (s.positions + s.tile - 1) // s.tile, tile, image, start, count, first_offset, i, p
    for tile in range(begin, end):
        image = tile // tiles
        start = tile % tiles * s.tile
        count = min(s.tile, s.positions - start)
        first_offset = image * s.deform_groups * s.taps * s.positions
        y = <real *>call.outputs[0].data + image * s.outputs * s.positions + start
        _convolve(&s, input + image * s.channels * s.plane_size, offset + 2 * first_offset,
                  mask + first_offset if mask != NULL else NULL, weights, y, start, count, &w)
        if bias != NULL:
            for i in range(s.outputs):
                for p in range(count):
                    y[i * s.positions + p] += bias[i]


# ---- the two operators -----------------------------------------------------------------------------------------------

cdef bint _is_modulated(const mmk_call *call) noexcept nogil:
    return call.inputs[WEIGHT].type != MMK_ABSENT  # else the weight takes the index of the mask


cdef Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef Sizes s
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef const mmk_tensor *weight = &call.inputs[WEIGHT if _is_modulated(call) else MASK]
    s.channels = x.shape[1]
    s.height = x.shape[2]
    s.width = x.shape[3]
    s.plane_size = s.height * s.width
    s.right = s.width > 1
    s.below = s.width if s.height > 1 else 0
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
    s.positions = s.output_height * s.output_width
    s.taps = _product(weight.shape[2], weight.shape[3]) if x.size else 0  # without pixels there is nothing to add
    # small maps have smaller tiles, so that there is work for all threads; results do not depend on the size
    s.tile = min(TILE, max(1, _product(x.shape[0], s.positions) // (MIN_TILES * LANES)) * LANES)
    return s


cdef int _check_attributes(mmk_call *call) noexcept nogil:
    cdef const mmk_attribute *a = call.attributes
    cdef int i
    for i in range(STRIDE_H, GROUPS):
        if a[i].i < (0 if i == PADDING_H or i == PADDING_W else 1) or a[i].i > MAX_SIZE:
            return mmk_fail(call, "%s must be between %d and 2**29, got [%lld, %lld]",
                            b"stride" if i < PADDING_H else b"padding" if i < DILATION_H else b"dilation",
                            <int>(0 if i == PADDING_H or i == PADDING_W else 1), <long long>a[i & ~1].i,
                            <long long>a[i | 1].i)
    for i in range(GROUPS, DEFORM_GROUPS + 1):
        if a[i].i < 1:
            return mmk_fail(call, "%s must be at least 1, got %lld", b"groups" if i == GROUPS else b"deform_groups",
                            <long long>a[i].i)
    return 0


cdef int _check_map(mmk_call *call, int i, const char *argument, const char *letters,
                    const int64_t *shape) noexcept nogil:
    """Rejects an input whose shape does not match; the message has letters if the rank differs, else numbers."""
    cdef char[96] required
    snprintf(required, sizeof(required), "[%lld, %lld, %lld, %lld]", <long long>shape[0], <long long>shape[1],
             <long long>shape[2], <long long>shape[3])
    return mmk_check_shape(call, i, argument, letters if call.inputs[i].rank != 4 else <const char *>required)


cdef int _prepare(mmk_call *call, bint modulated) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef int weight_index = WEIGHT if modulated else MASK
    cdef const mmk_tensor *weight = &call.inputs[weight_index]
    cdef int64_t taps
    cdef int64_t[4] shape
    cdef Sizes s
    if (_check_attributes(call) or mmk_check_shape(call, INPUT, "input", "[N, C, H, W]")
            or mmk_check_shape(call, weight_index, "weight", "[O, C/groups, KH, KW]")):
        return -1
    if max(x.shape[2], 1) > MAX_SIZE // max(x.shape[3], 1):
        return mmk_fail(call, "input must have at most 2**29 pixels, got [%lld, %lld]", <long long>x.shape[2],
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
    if mmk_check_steps(call, <double>weight.shape[1] * taps * call.outputs[0].size, "products"):
        return -1
    if call.outputs[0].size:
        mmk_add_phase(call, x.shape[0] * ((s.positions + s.tile - 1) // s.tile),
                      1e-3 * s.tile * (<double>PRODUCT_COST * weight.size + <double>SAMPLE_COST * s.channels * s.taps))
        call.worker_scratch_size[0] = workspace(NULL, element_size(x.type)).size
    return 0


cdef void _run(const mmk_call *call, bint modulated, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    if call.inputs[INPUT].type == MMK_FLOAT64:
        _tiles(call, <const double *>input, modulated, begin, end, scratch)
    else:
        _tiles(call, <const float *>input, modulated, begin, end, scratch)


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
