"""grid_sample: samples of a feature map at the positions of a grid (torch.nn.functional.grid_sample).

A tile of positions is converted to pixel indices and weights (grid_locations.pxd), which are then used for every
channel (grid_reading.pxd): from the planes, or from a copy with channels adjacent, whichever costs less: a copy takes
time for each pixel, and then half of what planes take for each position.  A map that is channels-last in memory is read
as it is, like a copy, or like planes if it has few channels.  From planes, AVX2 and AVX-512 gather float32
pixels for a vector of positions at a time (grid_lanes.h), from a few planes that stay in the cache while all positions
are read; a load of adjacent channels is faster than that on processors whose gathers are as many loads.

Coordinates that are not finite read as zeros with zeros padding, and as the last row or column with border and
reflection padding; bicubic gives NaN.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.sampling.grid_locations cimport (BICUBIC, BILINEAR, NEAREST, REFLECTION, TILE, ZEROS, Geometry,
                                                     are_in_lanes, locate, set_lanes)
from mmort._kernels.sampling.grid_reading cimport (LANES, MmkPlanes, bicubic_from_channels, bicubic_from_plane,
                                                   bilinear_from_channels, bilinear_from_plane, find_bilinear,
                                                   find_nearest, gather_bilinear_lanes,
                                                   locate_bilinear_lanes, nearest_from_channels, nearest_from_plane,
                                                   pack, sample_bilinear_lanes, sample_nearest_lanes)
from mmort._kernels.shared.workspace cimport element_size

cdef enum:  # inputs
    INPUT
    GRID

cdef enum:  # attributes
    INTERPOLATION_MODE
    PADDING_MODE
    ALIGN_CORNERS

cdef enum:
    BUNDLE_PIXELS = 1 << 15  # of the copies in use at a time
    MAX_BUNDLE = 4  # groups of LANES channels
    BUNDLE_CHANNELS = MAX_BUNDLE * LANES
    MAX_COPY = 1 << 30  # numbers of a copy, so that their indices fit in 32 bits
    MIN_BUNDLES = 8  # so that there is work for all threads
    BLOCK_PIXELS = 1 << 18  # of planes that stay in the second-level cache while all positions are read
    TOGETHER = 4  # planes gathered from at a vector of positions; more would share lines of the first-level cache
    CACHE = 8 << 20  # bytes that may stay in the last cache from one call to the next
    CACHE_LINE = 64
    MARGIN = 8  # pixels that a row of a copy takes the time of besides its own
    MAX_PIXELS = 1 << 29  # of a plane, so that pixel indices fit in 32 bits, even a little outside

cdef enum:  # picoseconds per position: rows of grid_sample
    LOCATE = 800
    LOCATE_BICUBIC = 3000

cdef enum:  # picoseconds: fitted to 350 drawn calls, each made in both ways
    NEAREST_FROM_PLANE = 600  # per position and channel
    BILINEAR_FROM_PLANE = 1000  # per position and channel
    BICUBIC_FROM_PLANE = 3800  # per position and channel
    NEAREST_FROM_COPY = 150  # per position and channel
    BILINEAR_FROM_COPY = 450  # per position and channel
    BICUBIC_FROM_COPY = 1400  # per position and channel
    MISS = 3000  # per cache line
    PACK = 120  # per pixel and channel of float32
    PACK_FROM_MEMORY = 200  # per pixel and channel of float32

ctypedef struct _Cost:  # picoseconds
    double locate  # a position
    double planes  # all channels of an image
    double copies
    double channels_last


cdef Geometry _geometry(const mmk_call *call, bint copied) noexcept nogil:
    """Returns the geometry of the map, or of a copy of LANES channels, which has a column and a row of zeros more."""
    cdef Geometry g
    g.height = call.inputs[INPUT].shape[2]
    g.width = call.inputs[INPUT].shape[3]
    g.columns = call.inputs[GRID].shape[3]
    g.step = LANES if copied else call.inputs[INPUT].shape[1] if call.inputs[INPUT].channels_last else 1
    g.stride = (g.width + copied) * g.step
    g.vectors = 1
    g.right = g.step if g.width > 1 else 0
    g.below = g.stride if g.height > 1 else 0
    g.mode = call.attributes[INTERPOLATION_MODE].i
    g.padding_mode = call.attributes[PADDING_MODE].i
    g.align_corners = call.attributes[ALIGN_CORNERS].i != 0
    set_lanes(&g, call.inputs[INPUT].type == MMK_FLOAT32)
    return g


# ---- the three ways through a call -----------------------------------------------------------------------------------

cdef ptrdiff_t _block_planes(const Geometry *g, ptrdiff_t channels) noexcept nogil:
    """Returns how many planes are read at all positions before the next planes."""
    if not g.lanes:
        return channels
    return min(channels, max(TOGETHER, BLOCK_PIXELS // (g.height * g.width)))


cdef bint _gather_tile(const Geometry *g, const float *grid, ptrdiff_t count, MmkPlanes planes,
                       ptrdiff_t channels) noexcept nogil:
    """Samples a tile of some planes in vectors; returns False if it cannot."""
    cdef int32_t[TILE] first
    cdef float[4 * TILE] weights
    cdef bint at_once = g.mode == NEAREST or channels <= TOGETHER
    if not are_in_lanes(g, grid, count):
        return False
    if not at_once:
        locate_bilinear_lanes(g.lanes, &g.map, grid, count, first, weights, TILE)
    while channels > 0:
        planes.count = min(TOGETHER, channels)
        if g.mode == NEAREST:
            sample_nearest_lanes(g.lanes, &g.map, grid, count, &planes)
        elif at_once:
            sample_bilinear_lanes(g.lanes, &g.map, g.below, grid, count, &planes)
        else:
            gather_bilinear_lanes(g.lanes, &planes, g.below, first, weights, TILE, count)
        channels -= planes.count
        planes.x += planes.count * planes.size
        planes.y += planes.count * planes.line
    return True


cdef void _sample_planes(const mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin,
                         ptrdiff_t end) noexcept nogil:
    """Samples tiles [begin, end), counted through all blocks of planes of all images."""
    cdef Geometry g = _geometry(call, False)
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t size = pixels if g.step == 1 else 1  # from one plane to the next
    cdef ptrdiff_t positions = call.outputs[0].shape[2] * call.outputs[0].shape[3]
    cdef ptrdiff_t tiles = (positions + TILE - 1) // TILE, block_planes = _block_planes(&g, channels)
    cdef ptrdiff_t blocks = (channels + block_planes - 1) // block_planes
    cdef int32_t[4 * TILE] first
    cdef int32_t[4 * TILE] rows
    cdef real[4 * TILE] weights
    cdef real[4 * TILE] y_weights
    cdef ptrdiff_t work, tile, block, image, channel, start, count, planes, _plane
    cdef const real *tile_grid
    cdef const real *plane
    cdef real *result
    cdef bint live
    for work in range(begin, end):
        tile = work % tiles
        block = work // tiles % blocks
        image = work // tiles // blocks
        start = tile * TILE
        count = min(TILE, positions - start)
        channel = image * channels + block * block_planes
        tile_grid = grid + (image * positions + start) * g.columns
        plane = x + image * channels * pixels + block * block_planes * size
        result = y + channel * positions + start
        planes = min(block_planes, channels - block * block_planes)
        if real is float:
            if _gather_tile(&g, tile_grid, count, MmkPlanes(plane, size, 0, result, positions), planes):
                continue
        live = locate(&g, tile_grid, count, first, rows, weights, y_weights)
        for _plane in range(planes):
            if not live:
                memset(result, 0, count * sizeof(real))
            elif g.mode == NEAREST:
                nearest_from_plane(plane, first, count, result)
            elif g.mode == BILINEAR:
                bilinear_from_plane(plane, &g, first, weights, count, result)
            else:
                bicubic_from_plane(plane, &g, first, rows, weights, y_weights, count, result)
            plane += size
            result += positions


cdef inline ptrdiff_t _copy_size(const Geometry *g) noexcept nogil:
    """Returns the size of a copy of LANES channels."""
    return (g.height + 1) * g.stride


cdef void _sample_channels(const Geometry *g, const real *map, ptrdiff_t channels, ptrdiff_t shift, bint is_copy,
                           const real *grid, ptrdiff_t count, real *y, ptrdiff_t positions) noexcept nogil:
    """Samples up to BUNDLE_CHANNELS channels of copies, or of a channels-last map, at a tile of positions.

    Groups of LANES channels are `shift` numbers apart.
    """
    cdef int32_t[4 * TILE] first
    cdef int32_t[4 * TILE] rows
    cdef real[4 * TILE] weights
    cdef real[4 * TILE] y_weights
    cdef real[LANES + BUNDLE_CHANNELS] no_pixel
    cdef const real *sources[4 * TILE]
    cdef const real *zeros = map + g.height * g.stride if is_copy else no_pixel + LANES
    cdef ptrdiff_t channel, offset, skipped, last
    cdef real *result
    if not locate(g, grid, count, first, rows, weights, y_weights):
        for channel in range(channels):
            memset(y + channel * positions, 0, count * sizeof(real))
        return
    if not is_copy:
        memset(no_pixel, 0, sizeof(no_pixel))
    if g.mode == NEAREST:
        find_nearest(map, first, count, zeros, sources)
    elif g.mode == BILINEAR:
        find_bilinear(map, g, first, weights, count, zeros, sources)
    channel = 0
    while channel < channels:
        skipped = 0 if is_copy else max(0, channel + LANES - channels)  # channels of the group before
        offset = channel // LANES * shift - skipped
        last = min(LANES, channels - channel + skipped)
        result = y + channel * positions
        if g.mode == NEAREST:
            nearest_from_channels(sources, offset, count, skipped, last, result, positions)
        elif g.mode == BILINEAR:
            bilinear_from_channels(sources, offset, g, weights, count, skipped, last, result, positions)
        else:
            bicubic_from_channels(map + offset, g, NULL if is_copy else zeros, first, rows, weights, y_weights, count,
                                  skipped, last, result, positions)
        channel += LANES


cdef void _sample_copies(const mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin, ptrdiff_t end,
                         real *copies) noexcept nogil:
    """Samples bundles of channels [begin, end), counted through all images, at all positions."""
    cdef Geometry g = _geometry(call, True)
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t positions = call.outputs[0].shape[2] * call.outputs[0].shape[3]
    cdef ptrdiff_t bundle_channels = LANES * _groups_in_bundle(call)
    cdef ptrdiff_t bundles = (channels + bundle_channels - 1) // bundle_channels, copy_size = _copy_size(&g)
    cdef ptrdiff_t bundle, image, channel, last, group, tile, start
    for bundle in range(begin, end):
        image = bundle // bundles
        channel = image * channels + bundle % bundles * bundle_channels
        last = min(channel + bundle_channels, (image + 1) * channels)
        for group in range((last - channel + LANES - 1) // LANES):
            pack(x + (channel + group * LANES) * pixels, min(LANES, last - channel - group * LANES), &g,
                 copies + group * copy_size)
        for tile in range((positions + TILE - 1) // TILE):
            start = tile * TILE
            _sample_channels(&g, copies, last - channel, copy_size, True,
                             grid + (image * positions + start) * g.columns, min(TILE, positions - start),
                             y + channel * positions + start, positions)


cdef void _sample_channels_last(const mmk_call *call, const real *x, const real *grid, real *y, ptrdiff_t begin,
                                ptrdiff_t end) noexcept nogil:
    """Samples bundles of channels [begin, end), counted through all tiles of all images, of a channels-last map."""
    cdef Geometry g = _geometry(call, False)
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1], pixels = g.height * g.width
    cdef ptrdiff_t positions = call.outputs[0].shape[2] * call.outputs[0].shape[3]
    cdef ptrdiff_t tiles = (positions + TILE - 1) // TILE
    cdef ptrdiff_t bundles = (channels + BUNDLE_CHANNELS - 1) // BUNDLE_CHANNELS
    cdef ptrdiff_t work, image, start, channel
    for work in range(begin, end):
        channel = work % bundles * BUNDLE_CHANNELS
        start = work // bundles % tiles * TILE
        image = work // bundles // tiles
        _sample_channels(&g, x + image * pixels * channels + channel, min(BUNDLE_CHANNELS, channels - channel), LANES,
                         False, grid + (image * positions + start) * g.columns, min(TILE, positions - start),
                         y + (image * channels + channel) * positions + start, positions)


cdef ptrdiff_t _groups_in_bundle(const mmk_call *call) noexcept nogil:
    """Returns how many groups of LANES channels share the work of locating, limited by cache and threads."""
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef int64_t groups = (x.shape[1] + LANES - 1) // LANES
    cdef int64_t in_cache = BUNDLE_PIXELS // (x.shape[2] * x.shape[3])
    return max(1, min(MAX_BUNDLE, min(in_cache, x.shape[0] * groups // MIN_BUNDLES)))


cdef _Cost _cost(const mmk_call *call, const Geometry *g) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef double positions = <double>call.outputs[0].shape[2] * <double>call.outputs[0].shape[3]
    cdef double pixels = <double>g.height * <double>g.width, channels = <double>x.shape[1], padded, lines
    cdef bint wide = x.type == MMK_FLOAT64
    cdef double from_plane, from_copy, taps, packed
    cdef _Cost cost
    cost.locate = LOCATE_BICUBIC if g.mode == BICUBIC else LOCATE
    if g.mode == NEAREST:
        from_plane, from_copy, taps = NEAREST_FROM_PLANE, NEAREST_FROM_COPY, 1
    elif g.mode == BILINEAR:
        from_plane, from_copy, taps = BILINEAR_FROM_PLANE, BILINEAR_FROM_COPY, 2
    else:
        from_plane, from_copy, taps = BICUBIC_FROM_PLANE, BICUBIC_FROM_COPY, 4
    if wide:
        from_plane, from_copy = from_plane * 1.25, from_copy * 1.4
    lines = min(positions * taps, pixels * element_size(x.type) / CACHE_LINE + 1)  # of a plane
    cost.planes = channels * positions * from_plane
    if <double>x.shape[0] * channels * lines * CACHE_LINE > CACHE:
        cost.planes += channels * lines * MISS
    packed = (PACK_FROM_MEMORY if <double>x.size * element_size(x.type) > CACHE else PACK) * (2 if wide else 1)
    padded = <double>((x.shape[1] + LANES - 1) // LANES * LANES)
    cost.copies = padded * (positions * from_copy + packed * g.height * (g.width + MARGIN))
    cost.channels_last = padded * positions * from_copy
    if <double>x.size * element_size(x.type) > CACHE:
        lines = min(positions * taps * taps, pixels) * channels * element_size(x.type) / CACHE_LINE
        cost.channels_last += lines * MISS
    return cost


cdef inline bint _is_read_like_copy(const mmk_call *call) noexcept nogil:
    """Returns whether a map is channels-last, and a pixel has enough of them for vectors."""
    return call.inputs[INPUT].channels_last and call.inputs[INPUT].shape[1] >= LANES


cdef bint _copy_pays(const mmk_call *call, const _Cost *cost) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef int64_t groups = (x.shape[1] + LANES - 1) // LANES
    return (x.shape[1] >= LANES and x.shape[0] * groups >= 2 and cost.copies < cost.planes
            and (x.shape[2] + 1) * (x.shape[3] + 1) <= MAX_COPY // LANES)


cdef inline bint _copies(const mmk_call *call) noexcept nogil:
    return call.worker_scratch_size[0] != 0


# ---- the operator ----------------------------------------------------------------------------------------------------

cdef void _add_phase(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef int64_t positions = call.outputs[0].shape[2] * call.outputs[0].shape[3], channels, units
    cdef Geometry g = _geometry(call, False)
    cdef _Cost cost = _cost(call, &g)
    if _is_read_like_copy(call):
        units = (x.shape[1] + BUNDLE_CHANNELS - 1) // BUNDLE_CHANNELS * ((positions + TILE - 1) // TILE)
        mmk_add_phase(call, x.shape[0] * units,
                      1e-3 * (min(positions, TILE) * cost.locate + cost.channels_last / units))
    elif _copy_pays(call, &cost):
        g = _geometry(call, True)
        channels = LANES * _groups_in_bundle(call)
        call.worker_scratch_size[0] = (<size_t>(_copy_size(&g) * _groups_in_bundle(call)) * element_size(x.type))
        units = (x.shape[1] + channels - 1) // channels
        mmk_add_phase(call, x.shape[0] * units, 1e-3 * (positions * cost.locate + cost.copies / units))
    else:
        channels = _block_planes(&g, x.shape[1])
        units = (x.shape[1] + channels - 1) // channels * ((positions + TILE - 1) // TILE)
        mmk_add_phase(call, x.shape[0] * units, 1e-3 * (min(positions, TILE) * cost.locate + cost.planes / units))


cdef public int mmk_grid_sample_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *x = &call.inputs[INPUT]
    cdef const mmk_tensor *grid = &call.inputs[GRID]
    cdef int64_t mode = call.attributes[INTERPOLATION_MODE].i, padding_mode = call.attributes[PADDING_MODE].i
    cdef int64_t[4] shape
    cdef bint has_more_columns = grid.rank == 4 and grid.shape[3] > 2
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]")
            or mmk_check_shape(call, GRID, "grid", "[N, OH, OW, XY]" if has_more_columns else "[N, OH, OW, 2]")):
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
    if x.shape[2] >= MAX_PIXELS // (x.shape[3] + 1):
        return mmk_fail(call, "input must have fewer than 2**29 pixels, got [%lld, %lld]", <long long>x.shape[2],
                        <long long>x.shape[3])
    _add_phase(call)
    return 0


cdef public void mmk_grid_sample_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                     void *scratch) noexcept nogil:
    cdef const void *x = call.inputs[INPUT].data
    cdef const void *grid = call.inputs[GRID].data
    cdef void *y = call.outputs[0].data
    if call.inputs[INPUT].type == MMK_FLOAT64:
        if _is_read_like_copy(call):
            _sample_channels_last(call, <const double *>x, <const double *>grid, <double *>y, begin, end)
        elif _copies(call):
            _sample_copies(call, <const double *>x, <const double *>grid, <double *>y, begin, end, <double *>scratch)
        else:
            _sample_planes(call, <const double *>x, <const double *>grid, <double *>y, begin, end)
    elif _is_read_like_copy(call):
        _sample_channels_last(call, <const float *>x, <const float *>grid, <float *>y, begin, end)
    elif _copies(call):
        _sample_copies(call, <const float *>x, <const float *>grid, <float *>y, begin, end, <float *>scratch)
    else:
        _sample_planes(call, <const float *>x, <const float *>grid, <float *>y, begin, end)
