"""deform_conv2d, modulated_deform_conv2d: convolution whose taps read at learned positions (Dai et al. 2017, Zhu et al.
2019).

The map is copied with channels last, and the weights into the order in which the product reads them.  Then the output
is computed tile by tile: the taps of a tile are located once for all channels (deform_taps.pxd); their samples in a
block of channels become columns that stay in the cache; the product of weights and columns is added to sums
(deform_product.c), which are written at the end.  The matrix of all columns is never built.  Every sum is in MMCV's
order, tap after tap in channel after channel (for kernels of more than MAX_TAPS taps, MAX_TAPS at a time), so without
fused multiply-add the bits are MMCV's too.
"""
from libc.stdint cimport int64_t
from libc.stdio cimport snprintf
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.convolution.deform_product cimport MMK_PANEL, mmk_product_rows, mmk_product_shape, multiply
from mmort._kernels.convolution.deform_taps cimport (MAX_DEPTH, MAX_TAPS, TILE, Sizes, Workspace, locate_taps, sample,
                                                     workspace)
from mmort._kernels.sampling.sampling cimport COPY, LANES, add_copy_phase, padded, run_copy_phase
from mmort._kernels.shared.transposition cimport transpose
from mmort._kernels.shared.workspace cimport element_size

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

cdef enum:  # phases
    PACK = COPY + 1
    CONVOLVE

cdef enum:
    MIN_TILES = 4  # that a small map is divided into
    STEP = 14  # positions of which a smaller tile is a multiple
    MAX_SIZE = 1 << 29  # strides, paddings, dilations, and pixels of a plane, so that all coordinates fit in 32 bits

cdef enum:  # picoseconds
    PACK_COST = 300  # per weight; 1x256x7x7 to 256 channels, stride 2
    # per position; deform_conv2d, 1x256x100x152 to 256 channels
    PRODUCT_COST = 10  # and per weight
    SAMPLE_COST = 200  # and per tap of a channel


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


# ---- weights ---------------------------------------------------------------------------------------------------------

cdef inline real *_packed_weights(const mmk_call *call, const Sizes *s, const real *_copy) noexcept nogil:
    """Returns where the packed weights are: [group, panel, channel of the group, tap, lane]."""
    # behind the copy and its pixel of zeros; a vector of its last channels may end LANES later
    return <real *>call.scratch + (s.pixels + 1) * padded(s.channels) + LANES


cdef void _pack(const mmk_call *call, const real *weights, int64_t begin, int64_t end) noexcept nogil:
    """Packs panels [begin, end), counted through all groups, and sets the pixel of zeros."""
    cdef Sizes s = _sizes(call)
    cdef ptrdiff_t lanes = MMK_PANEL // sizeof(real), depth = s.channels // s.groups * s.taps
    cdef ptrdiff_t outputs = s.outputs // s.groups, unit, first, rows, lane, k
    cdef real *panel
    if begin == 0:
        memset(<real *>call.scratch + s.pixels * padded(s.channels), 0, padded(s.channels) * sizeof(real))
    for unit in range(begin, end):
        panel = _packed_weights(call, &s, weights) + unit * depth * lanes
        first = unit % s.panels * lanes
        rows = min(lanes, outputs - first)
        transpose(weights + (unit // s.panels * outputs + first) * depth, depth, rows, depth, panel, lanes)
        if rows < lanes:
            for k in range(depth):
                for lane in range(rows, lanes):
                    panel[k * lanes + lane] = 0


# ---- tiles -----------------------------------------------------------------------------------------------------------

cdef void _multiply_block(const Sizes *s, const real *weights, ptrdiff_t positions, ptrdiff_t first, ptrdiff_t last,
                          ptrdiff_t first_tap, ptrdiff_t taps, const Workspace *w) noexcept nogil:
    """Adds the products of the sampled channels [first, last), which may be of several groups, to the sums."""
    cdef ptrdiff_t lanes = MMK_PANEL // sizeof(real), channels = s.channels // s.groups, group, channel
    cdef mmk_product_shape shape
    shape.positions = positions
    shape.taps = taps
    shape.tap = padded(last - first)
    shape.position = taps * shape.tap
    shape.weight_skip = (s.taps - taps) * lanes
    shape.panels = s.panels
    shape.panel = channels * s.taps * lanes
    shape.sums = s.sums
    for group in range(first // channels, (last - 1) // channels + 1):
        channel = max(first, group * channels)
        shape.channels = min(last, (group + 1) * channels) - channel
        multiply(&shape, <real *>w.columns + channel - first,
                 weights + group * s.panels * shape.panel + ((channel - group * channels) * s.taps + first_tap) * lanes,
                 <real *>w.sums + group * s.panels * lanes)


cdef simd_void _add_bias(const real *bias, ptrdiff_t outputs, ptrdiff_t count, real *sums,
                         ptrdiff_t stride) noexcept nogil:
    """Adds a number for each output to the sums of `count` positions."""
    cdef ptrdiff_t p, output
    for p in range(count):
        for output in range(outputs):
            sums[p * stride + output] += bias[output]


cdef void _write(const Sizes *s, real *sums, const real *bias, ptrdiff_t count, real *y) noexcept nogil:
    """Adds the bias, which may be NULL, to the sums of `count` positions, and writes them to the output."""
    cdef ptrdiff_t outputs = s.outputs // s.groups, lanes = MMK_PANEL // sizeof(real), group
    for group in range(s.groups):
        if bias != NULL:
            _add_bias(bias + group * outputs, outputs, count, sums, s.sums)
        transpose(sums, s.sums, count, outputs, y, s.positions)
        sums += s.panels * lanes
        y += outputs * s.positions


cdef void _convolve(const Sizes *s, const real *copy, ptrdiff_t image, const real *offset, const real *mask,
                    const real *weights, ptrdiff_t start, ptrdiff_t count, const Workspace *w) noexcept nogil:
    """Sums positions [start, start + count) of an image."""
    cdef ptrdiff_t step = mmk_product_rows(), positions = (count + step - 1) // step * step
    cdef ptrdiff_t deform_channels = s.channels // s.deform_groups
    cdef ptrdiff_t first_tap = 0, taps, channel, last, deform_group, first_offset
    memset(w.sums, 0, positions * s.sums * sizeof(real))
    while first_tap < s.taps:
        taps = min(MAX_TAPS, s.taps - first_tap)
        for deform_group in range(s.deform_groups):
            first_offset = (image * s.deform_groups + deform_group) * s.taps * s.positions
            locate_taps(s, image * s.height * s.width, offset + 2 * first_offset,
                        mask + first_offset if mask != NULL else NULL, start, count, first_tap, taps, w)
            channel = deform_group * deform_channels
            while channel < (deform_group + 1) * deform_channels:
                last = min(channel + s.max_channels, (deform_group + 1) * deform_channels)
                sample(w, copy + channel, positions, taps, padded(last - channel))
                _multiply_block(s, weights, positions, channel, last, first_tap, taps, w)
                channel = last
        first_tap += taps


cdef void _tiles(const mmk_call *call, const real *copy, bint modulated, ptrdiff_t begin, ptrdiff_t end,
                 void *scratch) noexcept nogil:
    """Computes tiles [begin, end), counted through all images."""
    cdef Sizes s = _sizes(call)
    cdef Workspace w = workspace(&s, scratch, sizeof(real))
    cdef const real *offset = <const real *>call.inputs[OFFSET].data
    cdef const real *mask = <const real *>call.inputs[MASK].data if modulated else NULL
    cdef const real *bias = <const real *>call.inputs[BIAS].data if modulated else NULL
    cdef ptrdiff_t tiles = (s.positions + s.tile - 1) // s.tile, tile, image, start, count
    for tile in range(begin, end):
        image = tile // tiles
        start = tile % tiles * s.tile
        count = min(s.tile, s.positions - start)
        _convolve(&s, copy, image, offset, mask, _packed_weights(call, &s, copy), start, count, &w)
        _write(&s, <real *>w.sums, bias, count,
               <real *>call.outputs[0].data + image * s.outputs * s.positions + start)


# ---- the two operators -----------------------------------------------------------------------------------------------

cdef bint _is_modulated(const mmk_call *call) noexcept nogil:
    return call.inputs[WEIGHT].type != MMK_ABSENT  # else the weight takes the index of the mask


cdef Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef Sizes s
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef const mmk_tensor *weight = &call.inputs[WEIGHT if _is_modulated(call) else MASK]
    cdef ptrdiff_t lanes, tiles
    s.channels = x.shape[1]
    s.height = x.shape[2]
    s.width = x.shape[3]
    s.pixels = x.shape[0] * s.height * s.width
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
    tiles = max(1, min(MIN_TILES, _product(x.shape[0], s.positions) // STEP) // max(x.shape[0], 1))  # of an image
    s.tile = min(TILE, max(1, (s.positions + tiles * STEP - 1) // (tiles * STEP)) * STEP)
    s.max_channels = max(LANES, MAX_DEPTH // min(MAX_TAPS, max(s.taps, 1)) // LANES * LANES)
    lanes = MMK_PANEL // <ptrdiff_t>element_size(x.type)
    s.panels = (s.outputs // s.groups + lanes - 1) // lanes
    s.sums = s.groups * s.panels * lanes
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
        _add_phases(call, &s, weight.size)
    return 0


cdef void _add_phases(mmk_call *call, const Sizes *s, int64_t weights) noexcept nogil:
    cdef size_t itemsize = element_size(call.inputs[INPUT].type)
    cdef ptrdiff_t depth = s.channels // s.groups * s.taps
    add_copy_phase(call)
    call.scratch_size += (padded(s.channels) + LANES) * itemsize + s.groups * s.panels * depth * MMK_PANEL
    mmk_add_phase(call, s.groups * s.panels, 1e-3 * PACK_COST * depth * <double>(MMK_PANEL // itemsize))
    mmk_add_phase(call, call.inputs[INPUT].shape[0] * ((s.positions + s.tile - 1) // s.tile),
                  1e-3 * s.tile * (<double>PRODUCT_COST * weights + <double>SAMPLE_COST * s.channels * s.taps))
    call.worker_scratch_size[CONVOLVE] = workspace(s, NULL, itemsize).size


cdef void _run(const mmk_call *call, bint modulated, int phase, int64_t begin, int64_t end,
               void *scratch) noexcept nogil:
    cdef const void *weights = call.inputs[WEIGHT if modulated else MASK].data
    cdef bint single = call.inputs[INPUT].type == MMK_FLOAT32
    if phase == COPY:
        run_copy_phase(call, begin, end)
    elif phase == PACK:
        if single:
            _pack(call, <const float *>weights, begin, end)
        else:
            _pack(call, <const double *>weights, begin, end)
    elif single:
        _tiles(call, <const float *>call.scratch, modulated, begin, end, scratch)
    else:
        _tiles(call, <const double *>call.scratch, modulated, begin, end, scratch)


cdef public int mmk_deform_conv2d_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call, False)


cdef public void mmk_deform_conv2d_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                       void *scratch) noexcept nogil:
    _run(call, False, phase, begin, end, scratch)


cdef public int mmk_modulated_deform_conv2d_prepare(mmk_call *call) noexcept nogil:
    return _prepare(call, True)


cdef public void mmk_modulated_deform_conv2d_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                                 void *scratch) noexcept nogil:
    _run(call, True, phase, begin, end, scratch)
