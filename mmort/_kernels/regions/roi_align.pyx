"""roi_align: features of regions of interest, sampled on a regular grid in each bin (Mask R-CNN, He et al. 2017).

The positions of samples are computed axis by axis (roi_axis.pxd).  Then, a few channels at a time, a tile has pixels
with channels last, and all sums run along channels, each in MMCV's order of operations: the results equal MMCV's bit
for bit.  No bin uses a pixel that none of its samples needs, so no NaN leaks.

If regions are few, the tile has the pixels that one of them uses.  If together they use the map's pixels several times,
it has the map: the positions of all regions are computed first, and then all regions read the same tile.
"""
from libc.math cimport fabs, isfinite
from libc.stdint cimport int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.region_tiles cimport (MIN_SHARES, VECTOR, Region, Shared, copy_pixels, copy_tile,
                                                  count_groups, fill_bins, first_region, set_key, set_steps,
                                                  sort_regions, take_shared, write_bins)
from mmort._kernels.regions.regions cimport (INPUT, OUTPUT_HEIGHT, OUTPUT_WIDTH, ROIS, SAMPLING_RATIO, check_attributes,
                                             check_region, set_output)
from mmort._kernels.regions.roi_axis cimport (MODE, Axis, count_region_taps, divide, find_taps, scale_taps, set_sizes,
                                              take_axes)
from mmort._kernels.regions.roi_bins cimport average_bins, maximize_bins
from mmort._kernels.shared.workspace cimport element_size, take

cdef extern from "region_lanes.h" nogil:
    ctypedef struct MmkTaps:
        ptrdiff_t bins
        const ptrdiff_t *begin
        const ptrdiff_t *tap
        const float *weight
    ctypedef struct MmkSamples:
        MmkTaps rows
        MmkTaps columns
        float count
    ctypedef struct MmkBlock:
        char *memory
        ptrdiff_t size
    enum:
        MAX_LANES
    ptrdiff_t mean_lanes(ptrdiff_t channels, ptrdiff_t pixels) noexcept
    void average_bins_lanes(ptrdiff_t lanes, const float *tile, const MmkSamples *samples, float *products,
                            float *bins, const MmkBlock *next_bins) noexcept
    void fetch_part(const MmkBlock *block, ptrdiff_t i, ptrdiff_t n) noexcept

cdef enum:  # modes
    AVG
    MAX

cdef enum:  # phases, before the last, which computes the output
    MEASURE
    LOCATE  # only where regions share tiles

cdef enum:
    ROI = 5  # batch index, x1, y1, x2, y2
    BLOCK = 32  # channels of a unit of work: enough to amortise the preparation of a region
    EMPTY_MAX = -10000  # MMCV's maximum over no samples
    LONG_REGION = 1 << 20  # pairs of taps, from which on a few channels take milliseconds

cdef enum:  # picoseconds
    MEASURE_COST = 30000  # per region
    REGION_COST = 300000  # roi_align, 1 region of 1x1x8x8
    # and per channel: roi_align, 1000 regions of 1x256x200x304 and 2x256x100x152
    PIXEL_COST = 300
    SAMPLE_COST = 200
    BIN_COST = 200


cdef struct _Capacity:  # what the largest region needs
    ptrdiff_t[2] taps
    ptrdiff_t pixels


cdef struct _Scratch:  # followed by the axes of regions that share tiles
    _Capacity *capacity
    Shared shared
    size_t size


cdef struct _Workspace:
    Axis[2] axes    # rows, columns
    void *bins      # [bin][channel]
    void *products  # of weights
    void *tile      # [row slot][column slot][channel]
    size_t size


cdef bint _shares(const mmk_call *call) noexcept nogil:
    return call.phases > LOCATE + 1


cdef ptrdiff_t _lanes(const mmk_call *call) noexcept nogil:
    """Returns how many channels a shared tile has."""
    cdef const mmk_tensor *input = &call.inputs[INPUT]
    if call.attributes[MODE].i != AVG or input.type != MMK_FLOAT32:
        return VECTOR
    return max(<ptrdiff_t>VECTOR, mean_lanes(input.shape[1], input.shape[2] * input.shape[3]))


cdef _Scratch _scratch(const mmk_call *call, const void *memory) noexcept nogil:
    cdef _Scratch s
    cdef size_t address = <size_t>memory
    s.capacity = <_Capacity *>take(&address, sizeof(_Capacity))
    s.size = sizeof(_Capacity)
    if _shares(call):
        s.shared = take_shared(&address, call.inputs[ROIS].shape[0])
        s.size = address - <size_t>memory
    return s


cdef _Workspace _workspace(const mmk_call *call, const _Capacity *capacity, const void *scratch) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>scratch, width = element_size(call.inputs[INPUT].type)
    cdef ptrdiff_t lanes = _lanes(call) if _shares(call) else VECTOR
    cdef Axis *axis
    cdef int i
    set_sizes(call, w.axes)
    w.products = NULL
    if lanes > VECTOR:
        w.products = take(&address, (2 * capacity.taps[1] + MAX_LANES) * width)
    if not _shares(call):
        take_axes(&address, w.axes, capacity.taps, width)
        for i in range(2):
            axis = &w.axes[i]
            axis.slot = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
            axis.used = <ptrdiff_t *>take(&address, axis.pixels * sizeof(ptrdiff_t))
    w.bins = take(&address, w.axes[0].bins * w.axes[1].bins * lanes * width)
    w.tile = take(&address, capacity.pixels * lanes * width)
    w.size = address - <size_t>scratch
    return w


cdef ptrdiff_t *_take_stored(size_t *address, Axis *axes, const ptrdiff_t *taps, size_t width) noexcept nogil:
    """Gives both axes memory that outlives the phase; returns the memory of the numbers of taps."""
    cdef ptrdiff_t *stored = <ptrdiff_t *>take(address, 2 * sizeof(ptrdiff_t))
    take_axes(address, axes, taps, width)
    return stored


cdef void _measure(mmk_call *call, const real *rois) noexcept nogil:
    """Computes how much scratch memory the largest region needs; where regions share tiles, where each has its axes."""
    cdef _Scratch scratch = _scratch(call, call.scratch)
    cdef _Capacity *capacity = scratch.capacity
    cdef size_t address = <size_t>call.scratch + scratch.size
    cdef ptrdiff_t[2] taps
    cdef ptrdiff_t *stored
    cdef Axis[2] axes
    cdef real[2] start
    cdef real bin_size, grid
    cdef int64_t k
    cdef int axis
    memset(capacity, 0, sizeof(_Capacity))
    set_sizes(call, axes)
    for k in range(call.inputs[ROIS].shape[0]):
        count_region_taps(call, rois + ROI * k, axes, taps)
        if _shares(call):
            scratch.shared.regions[k].offset = address - <size_t>call.scratch
            stored = _take_stored(&address, axes, taps, sizeof(real))
            for axis in range(2):
                stored[axis] = taps[axis]
            for axis in range(2):
                divide(call, rois + ROI * k, axis, &start[axis], &bin_size, &grid)
            set_key(call, &scratch.shared, k, <double>rois[ROI * k], <double>start[0], <double>start[1])
        for axis in range(2):
            capacity.taps[axis] = max(capacity.taps[axis], taps[axis])
        capacity.pixels = max(capacity.pixels, min(axes[0].pixels, taps[0]) * min(axes[1].pixels, taps[1]))
    if _shares(call):
        capacity.pixels = axes[0].pixels * axes[1].pixels
        sort_regions(call, &scratch.shared)
    call.worker_scratch_size[call.phases - 1] = _workspace(call, capacity, NULL).size


# ---- VECTOR channels of a region -------------------------------------------------------------------------------------

cdef simd_void _gather(const real *planes, const ptrdiff_t *steps, const Axis *rows, const Axis *columns,
                       real *tile) noexcept nogil:
    """Sets tile[row slot][column slot][channel] to the pixels in use, of VECTOR channels at `steps` from `planes`."""
    cdef ptrdiff_t r, j, c
    cdef ptrdiff_t width = columns.used_count
    cdef const ptrdiff_t *used = columns.used
    cdef const real *row
    cdef bint adjacent = width >= VECTOR and used[width - 1] - used[0] == width - 1
    for r in range(rows.used_count):
        row = planes + rows.used[r] * columns.pixels
        if adjacent:
            copy_pixels(row + used[0], steps, width, tile)
        else:
            for j in range(width):
                for c in range(VECTOR):
                    tile[j * VECTOR + c] = row[steps[c] + used[j]]
        tile += width * VECTOR


# ---- regions ---------------------------------------------------------------------------------------------------------

cdef bint _find_axes(const mmk_call *call, const real *roi, Axis *axes) noexcept nogil:
    """Finds the taps of both axes; returns whether the region has samples at all, inside or outside."""
    cdef real[2] start
    cdef real[2] bin_size
    cdef real[2] grid
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start[axis], &bin_size[axis], &grid[axis])
    if grid[0] <= 0 or grid[1] <= 0:
        return False
    for axis in range(2):
        find_taps(&axes[axis], start[axis], bin_size[axis], grid[axis])
    return True


cdef real _samples(const mmk_call *call, const real *roi) noexcept nogil:
    """Returns the number of samples in a bin, 0 or less if there are none."""
    cdef real[2] grid
    cdef real start, bin_size
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start, &bin_size, &grid[axis])
    return grid[0] * grid[1] if grid[0] > 0 and grid[1] > 0 else 0


cdef inline real _of_no_samples(const mmk_call *call, real _type) noexcept nogil:
    return 0 if call.attributes[MODE].i == AVG else EMPTY_MAX


cdef void _reduce(const mmk_call *call, const Axis *axes, const real *tile, real samples, ptrdiff_t channels,
                  real *bins, real *output) noexcept nogil:
    """Computes up to VECTOR channels of a region from a tile."""
    cdef ptrdiff_t size = axes[0].bins * axes[1].bins
    if call.attributes[MODE].i == AVG:
        average_bins(tile, &axes[0], &axes[1], samples, bins)
    else:
        maximize_bins(tile, &axes[0], &axes[1], VECTOR, bins)
    write_bins(bins, size, VECTOR, channels, output)


cdef bint _is_long(const Axis *axes) noexcept nogil:
    return axes[0].begin[axes[0].bins] * axes[1].begin[axes[1].bins] > LONG_REGION


cdef void _align_region(mmk_call *call, const real *roi, const real *planes, ptrdiff_t channels, _Workspace *w,
                        real *output) noexcept nogil:
    """Computes up to BLOCK channels of a region."""
    cdef Axis *rows = &w.axes[0]
    cdef Axis *columns = &w.axes[1]
    cdef ptrdiff_t size = rows.bins * columns.bins, plane_size = rows.pixels * columns.pixels, c = 0
    cdef ptrdiff_t[VECTOR] steps
    cdef real samples = _samples(call, roi)
    cdef bint is_long
    if not _find_axes(call, roi, w.axes):
        fill_bins(output, channels * size, _of_no_samples(call, samples))
        return
    scale_taps(columns, VECTOR)
    scale_taps(rows, columns.used_count * VECTOR)
    is_long = _is_long(w.axes)
    while c < channels and not (is_long and mmk_is_stopped(call)):
        set_steps(call, channels - c, VECTOR, steps)
        _gather(planes + c * plane_size, steps, rows, columns, <real *>w.tile)
        _reduce(call, w.axes, <real *>w.tile, samples, channels - c, <real *>w.bins, output + c * size)
        c += VECTOR


cdef void _align(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                 void *scratch) noexcept nogil:
    """Computes units [begin, end): BLOCK channels of one region after another, so that their planes stay in cache."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]
    cdef ptrdiff_t size = call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t unit, k, channel
    cdef _Workspace w = _workspace(call, <const _Capacity *>call.scratch, scratch)
    cdef int axis
    for axis in range(2):
        memset(w.axes[axis].slot, 0, w.axes[axis].pixels * sizeof(ptrdiff_t))
    for unit in range(begin, end):
        k = unit % regions
        channel = unit // regions * BLOCK
        _align_region(call, rois + ROI * k, input + (<ptrdiff_t>rois[ROI * k] * channels + channel) * plane_size,
                      min(<ptrdiff_t>BLOCK, channels - channel), &w, output + (k * channels + channel) * size)


# ---- regions that share tiles ----------------------------------------------------------------------------------------

cdef void _stored_axes(const mmk_call *call, const Region *region, Axis *axes) noexcept nogil:
    """Initialises both axes with the region's memory."""
    cdef size_t address = <size_t>call.scratch + region.offset
    set_sizes(call, axes)
    _take_stored(&address, axes, <const ptrdiff_t *>address, element_size(call.inputs[INPUT].type))


cdef void _locate(mmk_call *call, const real *rois, int64_t begin, int64_t end) noexcept nogil:
    """Finds the axes of regions [begin, end)."""
    cdef Shared shared = _scratch(call, call.scratch).shared
    cdef Region *region
    cdef Axis[2] axes
    cdef ptrdiff_t lanes = _lanes(call), k, t
    for k in range(begin, end):
        region = &shared.regions[k]
        _stored_axes(call, region, axes)
        region.top = axes[0].pixels
        region.bottom = 0
        if _find_axes(call, rois + ROI * k, axes):
            for t in range(axes[0].begin[axes[0].bins]):
                region.top = min(region.top, axes[0].tap[t])
                region.bottom = max(region.bottom, axes[0].tap[t] + 1)
            scale_taps(&axes[1], lanes)
            scale_taps(&axes[0], axes[1].pixels * lanes)


cdef MmkTaps _taps(const Axis *axis) noexcept nogil:
    cdef MmkTaps taps
    taps.bins = axis.bins
    taps.begin = axis.begin
    taps.tap = axis.tap
    taps.weight = <const float *>axis.weight
    return taps


cdef ptrdiff_t _find_bins(const mmk_call *call, const Shared *shared, ptrdiff_t unit, ptrdiff_t lanes,
                          ptrdiff_t *region, ptrdiff_t *bins) noexcept nogil:
    """Finds the region of a unit and the bins it computes; returns of how many channels."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t channel = unit // regions * lanes
    region[0] = shared.order[unit % regions].index
    bins[0] = (region[0] * channels + channel) * call.attributes[OUTPUT_HEIGHT].i * call.attributes[OUTPUT_WIDTH].i
    return min(lanes, channels - channel)


cdef void _align_shared(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                        void *memory) noexcept nogil:
    """Computes groups [begin, end) of regions, one after another: a tile's channels."""
    cdef _Scratch scratch = _scratch(call, call.scratch)
    cdef _Workspace w = _workspace(call, scratch.capacity, memory)
    cdef ptrdiff_t size = w.axes[0].bins * w.axes[1].bins, lanes = _lanes(call), unit, tile_end, channels
    cdef ptrdiff_t k, bins, next_k, next_bins
    cdef MmkBlock next_block
    cdef MmkSamples samples
    cdef real count
    begin = first_region(call, begin, lanes)
    end = first_region(call, end, lanes)
    tile_end = begin
    mmk_ask_for_large_pages(w.tile, <size_t>memory + w.size - <size_t>w.tile)
    for unit in range(begin, end):
        if unit == tile_end:
            tile_end = copy_tile(call, &scratch.shared, input, unit, end, lanes, <real *>w.tile)
        next_block.size = _find_bins(call, &scratch.shared, min(unit + 1, end - 1), lanes, &next_k, &next_bins) * size
        next_block.size *= <ptrdiff_t>sizeof(real)
        next_block.memory = <char *>(output + next_bins)
        channels = _find_bins(call, &scratch.shared, unit, lanes, &k, &bins)
        count = _samples(call, rois + ROI * k)
        if count <= 0:
            fill_bins(output + bins, channels * size, _of_no_samples(call, count))
            continue
        _stored_axes(call, &scratch.shared.regions[k], w.axes)
        if _is_long(w.axes) and mmk_is_stopped(call):
            return
        if lanes == VECTOR:
            fetch_part(&next_block, 0, 1)
            _reduce(call, w.axes, <real *>w.tile, count, channels, <real *>w.bins, output + bins)
        else:
            samples.rows = _taps(&w.axes[0])
            samples.columns = _taps(&w.axes[1])
            samples.count = <float>count
            average_bins_lanes(lanes, <float *>w.tile, &samples, <float *>w.products, <float *>w.bins, &next_block)
            write_bins(<real *>w.bins, size, lanes, channels, output + bins)


# ---- the operator ----------------------------------------------------------------------------------------------------

cdef struct _Work:  # of all regions, estimated for one channel
    double picoseconds  # but for gathering pixels
    double samples
    double pixels       # that each region uses
    double rows         # that each region uses


cdef void _add_work(const mmk_call *call, const double *bin_size, _Work *work) noexcept nogil:
    cdef double bins, pixels = 1, samples = 1, on_axis, sampled
    cdef int axis
    for axis in range(2):
        bins = <double>call.attributes[OUTPUT_HEIGHT + axis].i
        on_axis = min(fabs(bin_size[axis]) * bins + 2, <double>call.inputs[INPUT].shape[2 + axis])
        if axis == 0:
            work.rows += on_axis
        sampled = on_axis + bins
        if call.attributes[SAMPLING_RATIO].i > 0:
            sampled = bins * call.attributes[SAMPLING_RATIO].i
        pixels *= min(on_axis, 2 * sampled)
        samples *= sampled
    work.pixels += pixels
    work.samples += samples
    work.picoseconds += (SAMPLE_COST * samples + BIN_COST * <double>call.attributes[OUTPUT_HEIGHT].i
                         * <double>call.attributes[OUTPUT_WIDTH].i)


cdef int _check_regions(mmk_call *call, const real *rois, _Work *work) noexcept nogil:
    """Rejects regions that cannot be sampled, and adds up their work."""
    cdef const real *roi
    cdef real start, bin_size, grid
    cdef double[2] bin_sizes
    cdef int64_t k
    cdef int axis
    for k in range(call.inputs[ROIS].shape[0]):
        roi = rois + ROI * k
        if check_region(call, roi, ROI, k):
            return -1
        for axis in range(2):
            divide(call, roi, axis, &start, &bin_size, &grid)
            if not (isfinite(start) and isfinite(bin_size) and grid <= <real>2147483648.0):
                return mmk_fail(call, "rois[%lld] must not take more than 2147483648 samples along a bin, or overflow",
                                <long long>k)
            bin_sizes[axis] = <double>bin_size
        _add_work(call, bin_sizes, work)
    return 0


cdef size_t _axes_size(const mmk_call *call, const real *rois) noexcept nogil:
    """Returns how many bytes the axes of all regions take."""
    cdef size_t address = 0
    cdef ptrdiff_t[2] taps
    cdef Axis[2] axes
    cdef ptrdiff_t k
    set_sizes(call, axes)
    for k in range(call.inputs[ROIS].shape[0]):
        count_region_taps(call, rois + ROI * k, axes, taps)
        _take_stored(&address, axes, taps, sizeof(real))
    return address


cdef void _add_phases(mmk_call *call, const _Work *work) noexcept nogil:
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef int64_t regions = rois.shape[0], channels = call.inputs[INPUT].shape[1], lanes = _lanes(call), blocks, groups
    cdef double pixels = <double>call.inputs[INPUT].size / channels
    cdef size_t axes = 0
    if channels >= VECTOR and work.pixels > MIN_SHARES * pixels:
        if rois.type == MMK_FLOAT32:
            axes = _axes_size(call, <const float *>rois.data)
        else:
            axes = _axes_size(call, <const double *>rois.data)
    mmk_add_phase(call, 1, 1e-3 * MEASURE_COST * regions)
    if axes == 0 or axes > call.outputs[0].size * element_size(rois.type):
        call.scratch_size = sizeof(_Capacity)
        mmk_add_phase(call, (channels + BLOCK - 1) // BLOCK * regions,
                      1e-3 * (REGION_COST + (work.picoseconds + PIXEL_COST * work.pixels) / regions
                              * min(<int64_t>BLOCK, channels)))
        return
    mmk_add_phase(call, regions, 1e-3 * REGION_COST)
    blocks = (channels + lanes - 1) // lanes
    groups = count_groups(regions, blocks, work.picoseconds,
                          PIXEL_COST * work.rows / regions * <double>call.inputs[INPUT].shape[3])
    mmk_add_phase(call, blocks * groups, 1e-3 * lanes * (work.picoseconds + PIXEL_COST * pixels) / groups)
    call.scratch_size = _scratch(call, NULL).size + axes


cdef public int mmk_roi_align_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef _Work work
    cdef int failed
    memset(&work, 0, sizeof(work))
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]") or mmk_check_shape(call, ROIS, "rois", "[K, 5]")
            or check_attributes(call)):
        return -1
    if call.attributes[MODE].i != AVG and call.attributes[MODE].i != MAX:
        return mmk_fail(call, "mode must be 0 (avg) or 1 (max), got %lld", <long long>call.attributes[MODE].i)
    if rois.type == MMK_FLOAT32:
        failed = _check_regions(call, <const float *>rois.data, &work)
    else:
        failed = _check_regions(call, <const double *>rois.data, &work)
    if failed or set_output(call, work.samples):
        return -1
    if call.outputs[0].size:
        _add_phases(call, &work)
    return 0


cdef void _run(mmk_call *call, int phase, const real *input, const real *rois, int64_t begin, int64_t end,
               void *scratch) noexcept nogil:
    cdef real *output = <real *>call.outputs[0].data
    if phase == MEASURE:
        _measure(call, rois)
    elif not _shares(call):
        _align(call, input, rois, output, begin, end, scratch)
    elif phase == LOCATE:
        _locate(call, rois, begin, end)
    else:
        _align_shared(call, input, rois, output, begin, end, scratch)


cdef public void mmk_roi_align_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    cdef const void *rois = call.inputs[ROIS].data
    if call.inputs[INPUT].type == MMK_FLOAT32:
        _run(call, phase, <const float *>input, <const float *>rois, begin, end, scratch)
    else:
        _run(call, phase, <const double *>input, <const double *>rois, begin, end, scratch)
