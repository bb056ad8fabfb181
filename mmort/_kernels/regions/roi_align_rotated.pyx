"""roi_align_rotated: features of rotated regions, averaged over samples on a grid that is turned with each region.

Unlike those of an upright region, the samples of a rotated one share no rows and columns, so each has four taps of its
own.  There are four ways, of which _cheapest_way chooses one by what they cost.  Taps may be found first, those of all
regions: then they are gathered from the planes, a vector of bins at a time, or read from tiles (region_tiles.pxd).  Or
they are found for each bin, and read from a copy of the map with channels last, or straight from the planes.
"""
from libc.math cimport fabs, isfinite
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.region_tiles cimport (VECTOR, Region, Shared, copy_tile, count_groups, first_region,
                                                  set_key, sort_regions, take_shared, write_bins)
from mmort._kernels.regions.regions cimport (INPUT, OUTPUT_HEIGHT, OUTPUT_WIDTH, ROIS, check_attributes, check_region,
                                             set_output)
from mmort._kernels.regions.rotated_regions cimport Geometry, locate_region, own_coordinate, samples_of_bin, turn
from mmort._kernels.sampling.grid_reading cimport MmkPlanes
from mmort._kernels.sampling.sampling cimport (COPY, MIN_CHANNELS, add_copy_phase, add_taps, add_taps_of_planes, copies,
                                               find_taps, padded, run_copy_phase)
from mmort._kernels.shared.transposition cimport transpose
from mmort._kernels.shared.workspace cimport element_size, take

cdef extern from "grid_lanes.h" nogil:
    int grid_lanes() noexcept
    void sum_samples_lanes(int lanes, const MmkPlanes *planes, int32_t width, const int32_t *codes,
                           const float *weights, ptrdiff_t samples, float divisor) noexcept

cdef extern from "region_lanes.h" nogil:
    bint has_exact_reciprocal(double count) noexcept

cdef enum:
    ROI = 6  # batch index, centre x, centre y, width, height, angle
    MAX_TAPS = 512  # collected before they are summed
    STRIP_BINS = 64  # summed before they are written
    BINS = 4  # summed at a time, because each waits for its last addition
    MAX_SHARED_PIXELS = 1 << 28  # of a map, so that the index of a tap fits in 32 bits
    MAX_STORED = 4  # bytes of stored samples for each byte of output
    LONG_REGION = 1 << 18  # samples, from which on a few channels take milliseconds
    MAX_SAMPLES = 1 << 26  # of a region: an ordinary one has about one for each pixel it covers

cdef enum:  # phases where taps are found first
    ORDER
    LOCATE
    ALIGN

cdef enum:  # picoseconds per sample; roi_align_rotated, scenes of benchmarks/scenes.py
    FIND_TAPS = 12000
    ADD_FROM_TILE = 250  # and per channel
    GATHER = 1050  # and per channel
    ADD_FROM_COPY = 150  # and per channel
    ADD_FROM_PLANES = 2200  # and per channel

cdef enum:  # picoseconds per channel; roi_align_rotated, scenes of benchmarks/scenes.py
    GATHER_MISS = 6000  # and per cache line, where all that are read do not stay in the cache
    PLANES_MISS = 12000  # and per cache line, where all that are read do not stay in the cache
    COPY_TO_TILE = 360  # and per pixel of the rows in use
    COPY_IN_CACHE = 200  # and per pixel
    COPY_TO_MEMORY = 650  # and per pixel

cdef enum:  # picoseconds; roi_align_rotated, scenes of benchmarks/scenes.py
    PREPARE_TILES = 4000000

cdef enum:
    CACHE = 1 << 21  # bytes
    LINE = 16  # pixels of a cache line

cdef enum _Way:
    GATHERED
    TILED
    COPIED
    FROM_PLANES


cdef struct _Work:  # of all regions
    double samples
    double lines   # of the cache, that samples read of a plane
    double rows    # of the map, that each region uses
    double top     # of the rows in use
    double bottom  # behind them
    size_t stored  # bytes of the samples


cdef void _sum_bin(mmk_call *call, const Geometry *region, const real *image, ptrdiff_t row, ptrdiff_t column,
                   real *sums) noexcept nogil:
    """Sums the samples of a bin; `image` points into the copy if there is one, else at the image's planes."""
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t height = call.inputs[INPUT].shape[2], width = call.inputs[INPUT].shape[3]
    cdef ptrdiff_t stride = padded(channels) if copies(call) else 1
    cdef ptrdiff_t down = <ptrdiff_t>region.grid[0], across = <ptrdiff_t>region.grid[1], taps = 0, i, j
    cdef real own_y, y, x
    cdef ptrdiff_t[MAX_TAPS] offset
    cdef real[MAX_TAPS] weight
    for i in range(down):
        own_y = own_coordinate(region, 0, row, i, sums)
        for j in range(across):
            turn(region, own_y, own_coordinate(region, 1, column, j, sums), &y, &x)
            taps += find_taps(y, x, height, width, stride, offset + taps, weight + taps)
            if taps == MAX_TAPS or (i == down - 1 and j == across - 1):
                if copies(call):
                    add_taps(image, offset, weight, taps, stride, sums)
                else:
                    add_taps_of_planes(image, height * width, channels, offset, weight, taps, sums)
                if taps == MAX_TAPS and mmk_is_stopped(call):
                    return
                taps = 0


cdef inline simd_void _divide(real *sums, ptrdiff_t count, real divisor) noexcept nogil:
    cdef ptrdiff_t i
    cdef real reciprocal = 1 / divisor
    if has_exact_reciprocal(divisor):
        for i in range(count):
            sums[i] = sums[i] * reciprocal
    else:
        for i in range(count):
            sums[i] = sums[i] / divisor


cdef inline ptrdiff_t _rows_together(const mmk_call *call) noexcept nogil:
    """Returns how many rows of bins are summed before they are written, in runs of adjacent bins."""
    return max(1, min(call.attributes[OUTPUT_HEIGHT].i, STRIP_BINS // call.attributes[OUTPUT_WIDTH].i))


cdef void _align(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                 real *sums) noexcept nogil:
    """Computes regions [begin, end); `sums` has room for the channels of some rows of bins."""
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]
    cdef ptrdiff_t rows = call.attributes[OUTPUT_HEIGHT].i, columns = call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t stride = padded(channels), together = _rows_together(call), k, bin, first, count
    cdef const real *image
    cdef Geometry region
    for k in range(begin, end):
        locate_region(call, rois + ROI * k, &region)
        if copies(call):
            image = <const real *>call.scratch + <ptrdiff_t>rois[ROI * k] * plane_size * stride
        else:
            image = input + <ptrdiff_t>rois[ROI * k] * plane_size * channels
        if region.grid[0] <= 0 or region.grid[1] <= 0 or plane_size == 0:  # no samples, or none on the map
            memset(output + k * channels * rows * columns, 0, channels * rows * columns * sizeof(real))
            continue
        first = 0
        while first < rows * columns:
            count = min(together * columns, rows * columns - first)
            memset(sums, 0, count * stride * sizeof(real))
            for bin in range(count):
                _sum_bin(call, &region, image, (first + bin) // columns, (first + bin) % columns, sums + bin * stride)
            _divide(sums, count * stride, <real>(region.grid[0] * region.grid[1]))
            transpose(sums, stride, count, channels, output + k * channels * rows * columns + first, rows * columns)
            first += count


# ---- regions whose taps are found first ------------------------------------------------------------------------------

cdef struct _Stored:  # the samples of a region; to be gathered those of all bins together, for tiles bin after bin
    int32_t *pixel  # 4 times the top left tap's pixel; plus 1 if others are right of it, plus 2 if others are below it
    void *weight    # of the four taps


cdef bint _stores(const mmk_call *call) noexcept nogil:
    return call.phases > ALIGN


cdef bint _gathers(const mmk_call *call) noexcept nogil:
    return call.worker_scratch_size[ALIGN] == 0  # there are no tiles


cdef inline _Stored _take_samples(size_t *address, ptrdiff_t samples, size_t width) noexcept nogil:
    cdef _Stored stored
    stored.pixel = <int32_t *>take(address, samples * sizeof(int32_t))
    stored.weight = take(address, 4 * samples * width)
    return stored


cdef void _order(mmk_call *call, const real *rois) noexcept nogil:
    """Orders the regions, and divides the scratch memory between them."""
    cdef size_t address = <size_t>call.scratch
    cdef Shared shared = take_shared(&address, call.inputs[ROIS].shape[0])
    cdef ptrdiff_t bins = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i, k
    cdef Geometry region
    for k in range(call.inputs[ROIS].shape[0]):
        locate_region(call, rois + ROI * k, &region)
        shared.regions[k].offset = address - <size_t>call.scratch
        _take_samples(&address, bins * samples_of_bin(&region), sizeof(real))
        set_key(call, &shared, k, <double>rois[ROI * k],
                region.centre[0] - fabs(region.start[0] * region.cosine) - fabs(region.start[1] * region.sine),
                region.centre[1])
    sort_regions(call, &shared)


cdef inline void _store_sample(ptrdiff_t height, ptrdiff_t width, real y, real x, Region *region, int32_t *pixel,
                               real *weight, ptrdiff_t step, int32_t outside) noexcept nogil:
    """Stores a sample, whose weights are `step` apart; one outside the map has `outside`, and weights of 0."""
    cdef ptrdiff_t[4] offset
    cdef real[4] weights
    cdef ptrdiff_t t
    cdef bint is_on_map = find_taps(y, x, height, width, 1, offset, weights) != 0
    for t in range(4):
        weight[t * step] = weights[t] if is_on_map else 0
    if is_on_map:
        pixel[0] = <int32_t>(4 * offset[0] + (offset[1] > offset[0]) + 2 * (offset[2] > offset[0]))
        region.top = min(region.top, offset[0] // width)
        region.bottom = max(region.bottom, offset[2] // width + 1)
    else:
        pixel[0] = outside


cdef void _store(const mmk_call *call, const real *rois, int64_t begin, int64_t end) noexcept nogil:
    """Finds the taps of regions [begin, end)."""
    cdef size_t address = <size_t>call.scratch
    cdef Shared shared = take_shared(&address, call.inputs[ROIS].shape[0])
    cdef ptrdiff_t rows = call.attributes[OUTPUT_HEIGHT].i, columns = call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t height = call.inputs[INPUT].shape[2], width = call.inputs[INPUT].shape[3], bins = rows * columns
    cdef ptrdiff_t k, bin, sample, across, samples
    cdef bint gathers = _gathers(call)
    cdef real *weight
    cdef real own_y, own_x, y, x
    cdef Region *region
    cdef _Stored stored
    cdef Geometry geometry
    for k in range(begin, end):
        locate_region(call, rois + ROI * k, &geometry)
        region = &shared.regions[k]
        region.top = height
        region.bottom = 0
        samples = samples_of_bin(&geometry)
        address = <size_t>call.scratch + region.offset
        stored = _take_samples(&address, bins * samples, sizeof(real))
        weight = <real *>stored.weight
        across = <ptrdiff_t>geometry.grid[1]
        for bin in range(bins):
            for sample in range(samples):
                own_y = own_coordinate(&geometry, 0, bin // columns, sample // across, rois)
                own_x = own_coordinate(&geometry, 1, bin % columns, sample % across, rois)
                turn(&geometry, own_y, own_x, &y, &x)
                if gathers:
                    _store_sample(height, width, y, x, region, stored.pixel + sample * bins + bin,
                                  weight + 4 * sample * bins + bin, bins, -3)
                else:
                    _store_sample(height, width, y, x, region, stored.pixel + bin * samples + sample,
                                  weight + 4 * (bin * samples + sample), 1, <int32_t>(4 * height * width))


cdef void _gather(mmk_call *call, const float *input, const float *rois, float *output, int64_t begin,
                  int64_t end) noexcept nogil:
    """Computes units [begin, end): VECTOR channels of one region after another, from the planes."""
    cdef size_t address = <size_t>call.scratch
    cdef Shared shared = take_shared(&address, call.inputs[ROIS].shape[0])
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t bins = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t width = call.inputs[INPUT].shape[3], pixels = call.inputs[INPUT].shape[2] * width
    cdef ptrdiff_t unit, k, channel, samples, image
    cdef int lanes = grid_lanes()
    cdef float divisor
    cdef MmkPlanes planes
    cdef _Stored stored
    cdef Geometry geometry
    planes.size = pixels
    planes.line = bins
    for unit in range(begin, end):
        k = shared.order[unit % regions].index
        image = <ptrdiff_t>(shared.order[unit % regions].key >> 32)
        locate_region(call, rois + ROI * k, &geometry)
        samples = samples_of_bin(&geometry)
        divisor = <float>(geometry.grid[0] * geometry.grid[1]) if samples else 1
        address = <size_t>call.scratch + shared.regions[k].offset
        stored = _take_samples(&address, bins * samples, sizeof(float))
        channel = unit // regions * VECTOR
        planes.x = input + (image * channels + channel) * pixels
        planes.y = output + (k * channels + channel) * bins
        planes.count = min(<ptrdiff_t>VECTOR, channels - channel)
        sum_samples_lanes(lanes, &planes, <int32_t>width, stored.pixel, <const float *>stored.weight, samples, divisor)
        if bins * samples > LONG_REGION and mmk_is_stopped(call):
            return


cdef inline void _add_sample(const real *tile, ptrdiff_t below, int32_t pixel, const real *w,
                             real *sums) noexcept nogil:
    """Adds a stored sample to the sums of a bin's channels; rows of the tile are `below` apart."""
    cdef const real *top = tile + <ptrdiff_t>(pixel >> 2) * VECTOR
    cdef const real *bottom = top + (pixel >> 1 & 1) * below
    cdef ptrdiff_t right = (pixel & 1) * VECTOR, lane
    for lane in range(VECTOR):
        sums[lane] = (((sums[lane] + w[0] * top[lane]) + w[1] * top[right + lane])
                      + w[2] * bottom[lane]) + w[3] * bottom[right + lane]


cdef simd_void _sum_bins(const real *tile, ptrdiff_t width, const int32_t *pixel, const real *weight,
                         ptrdiff_t samples, ptrdiff_t count, real *sums) noexcept nogil:
    """Adds the samples of BINS bins to their sums for the channels of a tile; if `count` is less, repeats the last."""
    cdef real[VECTOR] a
    cdef real[VECTOR] b
    cdef real[VECTOR] c
    cdef real[VECTOR] d
    cdef ptrdiff_t i, lane, below = width * VECTOR
    cdef ptrdiff_t second = min(1, count - 1) * samples, third = min(2, count - 1) * samples
    cdef ptrdiff_t fourth = (count - 1) * samples
    for lane in range(VECTOR):
        a[lane] = sums[lane]
        b[lane] = sums[VECTOR + lane]
        c[lane] = sums[2 * VECTOR + lane]
        d[lane] = sums[3 * VECTOR + lane]
    for i in range(samples):
        _add_sample(tile, below, pixel[i], weight + 4 * i, a)
        _add_sample(tile, below, pixel[second + i], weight + 4 * (second + i), b)
        _add_sample(tile, below, pixel[third + i], weight + 4 * (third + i), c)
        _add_sample(tile, below, pixel[fourth + i], weight + 4 * (fourth + i), d)
    for lane in range(VECTOR):
        sums[lane] = a[lane]
        sums[VECTOR + lane] = b[lane]
        sums[2 * VECTOR + lane] = c[lane]
        sums[3 * VECTOR + lane] = d[lane]


cdef void _align_shared(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                        real *tile) noexcept nogil:
    """Computes groups [begin, end) of regions, one after another: VECTOR channels."""
    cdef size_t address = <size_t>call.scratch
    cdef Shared shared = take_shared(&address, call.inputs[ROIS].shape[0])
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t size = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t width = call.inputs[INPUT].shape[3], pixels = call.inputs[INPUT].shape[2] * width
    cdef ptrdiff_t unit, k, bin, samples, channel, tile_end
    cdef real *bins = tile + (pixels + 1) * VECTOR
    cdef real divisor
    cdef _Stored stored
    cdef Geometry geometry
    begin = first_region(call, begin, VECTOR)
    end = first_region(call, end, VECTOR)
    tile_end = begin
    memset(tile + pixels * VECTOR, 0, VECTOR * sizeof(real))
    for unit in range(begin, end):
        if unit == tile_end:
            tile_end = copy_tile(call, &shared, input, unit, end, VECTOR, tile)
        k = shared.order[unit % regions].index
        channel = unit // regions * VECTOR
        locate_region(call, rois + ROI * k, &geometry)
        samples = samples_of_bin(&geometry)
        if size * samples > LONG_REGION and mmk_is_stopped(call):
            return
        address = <size_t>call.scratch + shared.regions[k].offset
        stored = _take_samples(&address, size * samples, sizeof(real))
        memset(bins, 0, (size + BINS) * VECTOR * sizeof(real))
        bin = 0
        while bin < size:
            _sum_bins(tile, width, stored.pixel + bin * samples, <const real *>stored.weight + 4 * bin * samples,
                      samples, min(<ptrdiff_t>BINS, size - bin), bins + bin * VECTOR)
            bin += BINS
        divisor = <real>(geometry.grid[0] * geometry.grid[1]) if samples else 1
        _divide(bins, size * VECTOR, divisor)
        write_bins(bins, size, VECTOR, channels - channel, output + (k * channels + channel) * size)


cdef inline void _add_extent(const mmk_call *call, const Geometry *region, double samples, _Work *work) noexcept nogil:
    """Adds the rows and cache lines of the upright rectangle around a region."""
    cdef double[2] first
    cdef double[2] last
    cdef double side, half_height = fabs(region.start[0]), half_width = fabs(region.start[1]), reach
    cdef int axis
    for axis in range(2):
        reach = (half_height * fabs(region.sine) + half_width * fabs(region.cosine) if axis
                 else half_height * fabs(region.cosine) + half_width * fabs(region.sine))
        side = <double>call.inputs[INPUT].shape[2 + axis]
        first[axis] = min(max(region.centre[axis] - reach, 0.0), side)
        last[axis] = max(min(region.centre[axis] + reach + 1, side), 0.0)
    if first[0] < last[0] and first[1] < last[1]:
        work.rows += last[0] - first[0]
        work.top = min(work.top, first[0])
        work.bottom = max(work.bottom, last[0])
        work.lines += min(2 * samples, (last[0] - first[0] + 1) * ((last[1] - first[1]) / LINE + 1))


cdef int _check_regions(mmk_call *call, const real *rois, _Work *work) noexcept nogil:
    """Rejects regions that cannot be sampled, and adds up the work of all regions."""
    cdef ptrdiff_t k
    cdef double bins = <double>call.attributes[OUTPUT_HEIGHT].i * <double>call.attributes[OUTPUT_WIDTH].i
    cdef double region_samples
    cdef const real *roi
    cdef Geometry region
    cdef int axis
    for k in range(call.inputs[ROIS].shape[0]):
        roi = rois + ROI * k
        if check_region(call, roi, ROI, k):
            return -1
        locate_region(call, roi, &region)
        region_samples = bins * max(region.grid[0], 0.0) * max(region.grid[1], 0.0)
        for axis in range(2):
            if not isfinite(region.centre[axis]) or not isfinite(region.start[axis]):
                region_samples = MAX_SAMPLES + 1.0
        if not region_samples <= MAX_SAMPLES:
            return mmk_fail(call, "rois[%lld] must not take more than %d samples, or overflow", <long long>k,
                            <int>MAX_SAMPLES)
        work.samples += region_samples
        _take_samples(&work.stored, <ptrdiff_t>region_samples, sizeof(real))
        if call.inputs[INPUT].shape[1] >= VECTOR:  # of fewer channels, tiles are no way, and misses cost little
            _add_extent(call, &region, region_samples, work)
    return 0


cdef _Way _cheapest_way(const mmk_call *call, const _Work *work) noexcept nogil:
    cdef const mmk_tensor *input = &call.inputs[INPUT]
    cdef double channels = <double>input.shape[1], width = <double>input.shape[3]
    cdef double pixels = <double>input.shape[0] * <double>input.shape[2] * width
    cdef double used = <double>input.shape[0] * max(work.bottom - work.top, 0.0) * width
    cdef double lines = channels * min(work.lines, used / LINE)
    cdef double missed = lines if lines * LINE * sizeof(float) > CACHE else 0
    cdef double lowest = work.samples * (FIND_TAPS + ADD_FROM_PLANES * channels) + PLANES_MISS * missed, cost
    cdef ptrdiff_t bins = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef _Way way = FROM_PLANES
    cost = (work.samples * (FIND_TAPS + ADD_FROM_COPY * <double>padded(input.shape[1])) + pixels * channels
            * (COPY_TO_MEMORY if input.size * element_size(input.type) > CACHE else COPY_IN_CACHE))
    if cost < lowest and input.shape[1] >= MIN_CHANNELS:
        lowest = cost
        way = COPIED
    if (input.shape[2] * input.shape[3] > MAX_SHARED_PIXELS
            or work.stored > MAX_STORED * <size_t>call.outputs[0].size * element_size(input.type)):
        return way
    cost = work.samples * (FIND_TAPS + GATHER * channels) + GATHER_MISS * missed
    if cost < lowest and input.type == MMK_FLOAT32 and 0 < grid_lanes() <= bins and input.shape[3] > 1:
        lowest = cost
        way = GATHERED
    cost = work.samples * (FIND_TAPS + ADD_FROM_TILE * channels) + used * channels * COPY_TO_TILE + PREPARE_TILES
    return TILED if cost < lowest and input.shape[1] >= VECTOR else way


cdef void _add_stored_phases(mmk_call *call, const _Work *work, bint gathers) noexcept nogil:
    """Adds the phases of regions whose taps are found first."""
    cdef const mmk_tensor *input = &call.inputs[INPUT]
    cdef int64_t channels = input.shape[1], regions = call.inputs[ROIS].shape[0]
    cdef ptrdiff_t bins = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef int64_t blocks = (channels + VECTOR - 1) // VECTOR, groups = regions
    cdef double samples = work.samples / <double>regions, cost = work.samples * (GATHER if gathers else ADD_FROM_TILE)
    if not gathers:
        groups = count_groups(regions, blocks, cost, COPY_TO_TILE * work.rows / regions * <double>input.shape[3])
    call.scratch_size = work.stored
    take_shared(&call.scratch_size, regions)
    mmk_add_phase(call, 1, 1e-3 * FIND_TAPS * regions)
    mmk_add_phase(call, regions, 1e-3 * samples * FIND_TAPS)
    mmk_add_phase(call, blocks * groups, 1e-3 * VECTOR * cost / groups)
    if not gathers:
        call.worker_scratch_size[ALIGN] = (
            (input.shape[2] * input.shape[3] + 1 + bins + BINS) * VECTOR * element_size(input.type))


cdef public int mmk_roi_align_rotated_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *input = &call.inputs[INPUT]
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef int64_t channels
    cdef double per_channel = ADD_FROM_PLANES
    cdef _Work work
    cdef _Way way
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]") or mmk_check_shape(call, ROIS, "rois", "[K, 6]")
            or check_attributes(call)):
        return -1
    memset(&work, 0, sizeof(_Work))
    work.top = <double>input.shape[2]
    if rois.type == MMK_FLOAT32:
        if _check_regions(call, <const float *>rois.data, &work):
            return -1
    elif _check_regions(call, <const double *>rois.data, &work):
        return -1
    if set_output(call, work.samples):
        return -1
    if call.outputs[0].size == 0:
        return 0
    way = _cheapest_way(call, &work) if input.size else FROM_PLANES
    if way == GATHERED or way == TILED:
        _add_stored_phases(call, &work, way == GATHERED)
        return 0
    channels = input.shape[1]
    if way == COPIED:
        add_copy_phase(call)
        per_channel = ADD_FROM_COPY
    mmk_add_phase(call, rois.shape[0],
                  1e-3 * work.samples / <double>rois.shape[0] * (FIND_TAPS + per_channel * channels))
    call.worker_scratch_size[call.phases - 1] = (
        <size_t>(_rows_together(call) * call.attributes[OUTPUT_WIDTH].i * padded(channels)) * element_size(input.type))
    return 0


cdef void _run(mmk_call *call, int phase, const real *input, const real *rois, int64_t begin, int64_t end,
               void *scratch) noexcept nogil:
    cdef real *output = <real *>call.outputs[0].data
    if not _stores(call):
        _align(call, input, rois, output, begin, end, <real *>scratch)
    elif phase == ORDER:
        _order(call, rois)
    elif phase == LOCATE:
        _store(call, rois, begin, end)
    elif _gathers(call):
        if real is float:  # as prepare requires
            _gather(call, input, rois, output, begin, end)
    else:
        _align_shared(call, input, rois, output, begin, end, <real *>scratch)


cdef public void mmk_roi_align_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                           void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    cdef const void *rois = call.inputs[ROIS].data
    if phase == COPY and copies(call) and not _stores(call):
        run_copy_phase(call, begin, end)
    elif call.inputs[INPUT].type == MMK_FLOAT32:
        _run(call, phase, <const float *>input, <const float *>rois, begin, end, scratch)
    else:
        _run(call, phase, <const double *>input, <const double *>rois, begin, end, scratch)
