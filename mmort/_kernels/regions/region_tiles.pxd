"""Tiles of roi_align and roi_align_rotated: pixels with a few channels side by side, so that sums run along channels.

A tile has VECTOR channels, or more `lanes` where region_lanes.h computes roi_align's means.  Regions that overlap share
a tile, which has the rows of an image that any of them uses.  They are ordered by image and position, and divided into
groups; a unit of work is the tile's channels of a group, so a range of units copies few tiles.  A tile is small enough
for a cache; a copy of all channels would not be.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.regions cimport INPUT, ROIS
from mmort._kernels.shared.kernels cimport mmk_item, mmk_sort
from mmort._kernels.shared.transposition cimport transpose
from mmort._kernels.shared.workspace cimport take

cdef extern from "region_lanes.h" nogil:
    enum:
        MAX_LANES
    void copy_pixels_lanes(ptrdiff_t lanes, const float *planes, const ptrdiff_t *steps, ptrdiff_t count,
                           float *tile) noexcept

cdef enum:
    VECTOR = 8  # channels of a tile, and pixels copied at once
    BAND = 32  # rows, in which regions are ordered by column, to find the pixels of the last ones in a cache
    MAX_COPIES = 4  # work of regions, in copies of what a region uses, from which on they are another group
    MIN_SHARES = 1  # how often regions use a pixel, on average, from which on they share tiles


cdef struct Region:
    size_t offset     # of what is stored about it, in the scratch memory
    ptrdiff_t top     # of the rows in use
    ptrdiff_t bottom  # behind them


cdef struct Shared:
    Region *regions
    mmk_item *order
    mmk_item *spare


cdef inline Shared take_shared(size_t *address, size_t regions) noexcept nogil:
    cdef Shared shared
    shared.regions = <Region *>take(address, regions * sizeof(Region))
    shared.order = <mmk_item *>take(address, regions * sizeof(mmk_item))
    shared.spare = <mmk_item *>take(address, regions * sizeof(mmk_item))
    return shared


cdef inline void set_key(const mmk_call *call, const Shared *shared, ptrdiff_t k, double image, double row,
                         double column) noexcept nogil:
    """Sets the key of region k: its image, a band of rows near its first, and one of 256 bands of columns."""
    cdef double height = <double>call.inputs[INPUT].shape[2], width = <double>call.inputs[INPUT].shape[3]
    row = min(max(row, 0.0), height) / BAND
    column = min(max(column, 0.0), width) / (width + 1) * 256
    shared.order[k].key = (<uint64_t><int64_t>image << 32) + (<uint64_t>row << 8) + <uint64_t>column
    shared.order[k].index = k


cdef inline void sort_regions(mmk_call *call, const Shared *shared) noexcept nogil:
    cdef int64_t regions = call.inputs[ROIS].shape[0]
    cdef const mmk_item *ordered = mmk_sort(call, shared.order, shared.spare, regions)
    if ordered != shared.order:
        memcpy(shared.order, ordered, regions * sizeof(mmk_item))


# ---- groups of regions -----------------------------------------------------------------------------------------------

cdef inline int64_t count_groups(int64_t regions, int64_t blocks, double work, double rows) noexcept nogil:
    """Returns into how many groups the regions are divided, for each of `blocks` tiles.

    `work` is the cost of all regions without copies, `rows` that of copying the rows of one, which each group adds.
    """
    cdef double groups = work / (MAX_COPIES * max(rows, 1.0)) + 1
    return min(regions, max(<int64_t>min(groups, <double>regions), 2 if blocks == 1 else 1))


cdef inline ptrdiff_t first_region(const mmk_call *call, int64_t unit, ptrdiff_t lanes) noexcept nogil:
    """Returns the number of a unit's first region, counted through all blocks of `lanes` channels."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0]
    cdef ptrdiff_t groups = call.work[call.phases - 1] // ((call.inputs[INPUT].shape[1] + lanes - 1) // lanes)
    return unit // groups * regions + unit % groups * regions // groups


# ---- tiles -----------------------------------------------------------------------------------------------------------

cdef inline void set_steps(const mmk_call *call, ptrdiff_t channels, ptrdiff_t lanes,
                           ptrdiff_t *steps) noexcept nogil:
    """Sets the distances of `lanes` planes, of which `channels` remain, from the first."""
    cdef ptrdiff_t k
    for k in range(lanes):  # a missing channel repeats the last one
        steps[k] = min(k, channels - 1) * call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]


cdef inline void copy_pixels(const real *pixels, const ptrdiff_t *steps, ptrdiff_t count, real *tile) noexcept nogil:
    """Sets tile[pixel][channel] to at least VECTOR adjacent pixels, of VECTOR channels at `steps` from `pixels`."""
    cdef ptrdiff_t j = 0, c, i
    cdef const real *block
    while j < count:
        j = min(j, count - VECTOR)  # the last block may overlap the one before
        block = pixels + j
        for c in range(VECTOR):
            for i in range(VECTOR):
                tile[(j + i) * VECTOR + c] = block[steps[c] + i]
        j += VECTOR


cdef inline simd_void _copy(const real *planes, const ptrdiff_t *steps, ptrdiff_t first, ptrdiff_t last,
                            real *tile) noexcept nogil:
    """Sets tile[pixel][channel] for pixels [first, last) of VECTOR channels at `steps` from `planes`."""
    cdef ptrdiff_t j, c
    if last - first >= VECTOR:
        copy_pixels(planes + first, steps, last - first, tile + first * VECTOR)
    else:
        for j in range(first, last):
            for c in range(VECTOR):
                tile[j * VECTOR + c] = planes[steps[c] + j]


cdef inline ptrdiff_t copy_tile(const mmk_call *call, const Shared *shared, const real *input, ptrdiff_t unit,
                                ptrdiff_t end, ptrdiff_t lanes, real *tile) noexcept nogil:
    """Copies what units from `unit` on read; returns the first that needs another tile, or `end`."""
    cdef ptrdiff_t regions = call.inputs[ROIS].shape[0], channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t height = call.inputs[INPUT].shape[2], width = call.inputs[INPUT].shape[3]
    cdef ptrdiff_t channel = unit // regions * lanes, top = height, bottom = 0
    cdef uint64_t image = shared.order[unit % regions].key >> 32
    cdef ptrdiff_t[MAX_LANES] steps
    cdef const real *planes
    cdef const Region *region
    end = min(end, (unit // regions + 1) * regions)
    while unit < end and shared.order[unit % regions].key >> 32 == image:
        region = &shared.regions[shared.order[unit % regions].index]
        top = min(top, region.top)
        bottom = max(bottom, region.bottom)
        unit += 1
    if top < bottom:
        planes = input + (<ptrdiff_t>image * channels + channel) * height * width
        set_steps(call, channels - channel, lanes, steps)
        if lanes == VECTOR:
            _copy(planes, steps, top * width, bottom * width, tile)
        elif real is float:
            copy_pixels_lanes(lanes, planes + top * width, steps, (bottom - top) * width, tile + top * width * lanes)
    return unit


# ---- bins ------------------------------------------------------------------------------------------------------------

cdef inline void write_bins(const real *bins, ptrdiff_t count, ptrdiff_t lanes, ptrdiff_t channels,
                            real *output) noexcept nogil:
    """Copies bins[bin][lane] to output[channel][bin], of the first `channels` lanes."""
    transpose(bins, lanes, count, min(lanes, channels), output, count)


cdef inline void fill_bins(real *output, ptrdiff_t size, real value) noexcept nogil:
    cdef ptrdiff_t i
    for i in range(size):
        output[i] = value
