"""roi_align: which pixels along one axis make up the bins of a region.

The samples of a region form a grid, so their positions, which are outside, and how they are clamped follow for each
axis separately.  A sample on the map has two taps: neighbouring pixels with their weights.  The pixels in use are
numbered in the order of their first use; that number is the pixel's slot.
"""
from libc.math cimport ceil

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.regions cimport OUTPUT_HEIGHT, SAMPLING_RATIO, SHARED_ATTRIBUTES, SPATIAL_SCALE
from mmort._kernels.shared.workspace cimport take

cdef enum:  # attributes
    MODE = SHARED_ATTRIBUTES
    ALIGNED


cdef struct Axis:
    ptrdiff_t bins
    ptrdiff_t pixels
    ptrdiff_t *begin   # bin b has the taps [begin[b], begin[b + 1])
    char *outside      # whether bin b has samples outside the map
    ptrdiff_t *tap     # the slot of its pixel, later times a stride
    void *weight       # of each tap
    ptrdiff_t *slot    # of a pixel in use, plus 1; 0: not in use.  NULL: the slot is the pixel
    ptrdiff_t *used    # the pixels in use, by slot
    ptrdiff_t used_count


cdef inline void set_sizes(const mmk_call *call, Axis *axes) noexcept nogil:
    """Initialises both axes, y and x, without their memory."""
    cdef bint empty = call.inputs[0].shape[2] * call.inputs[0].shape[3] == 0
    cdef int axis
    for axis in range(2):
        axes[axis].bins = call.attributes[OUTPUT_HEIGHT + axis].i
        axes[axis].pixels = 0 if empty else call.inputs[0].shape[2 + axis]
        axes[axis].used_count = 0


cdef inline void divide(const mmk_call *call, const real *roi, int axis, real *start, real *bin_size,
                        real *grid) noexcept nogil:
    """Computes the start of the bins along axis 0 (y) or 1 (x), their size in pixels, and the samples per bin."""
    cdef real scale = <real>call.attributes[SPATIAL_SCALE].f
    cdef real shift = <real>0.5 if call.attributes[ALIGNED].i else 0
    cdef real size
    start[0] = roi[2 - axis] * scale - shift
    size = (roi[4 - axis] * scale - shift) - start[0]
    if not call.attributes[ALIGNED].i and size < 1:
        size = 1
    bin_size[0] = size / <real>call.attributes[OUTPUT_HEIGHT + axis].i
    grid[0] = <real>call.attributes[SAMPLING_RATIO].i
    if grid[0] <= 0:
        grid[0] = <real>ceil(bin_size[0])


cdef inline real _sample(real start, real bin_size, real grid, ptrdiff_t b, ptrdiff_t i) noexcept nogil:
    """Returns the coordinate of sample i of bin b, which rounding keeps monotonic in b and in i."""
    return (start + <real>b * bin_size) + ((<real>i + <real>0.5) * bin_size) / grid


cdef inline int _side(real coordinate, real bin_size, ptrdiff_t pixels) noexcept nogil:
    """Returns -1 before the map, 0 on it and 1 past it, in the direction of the samples."""
    cdef int side = (coordinate > <real>pixels) - (coordinate < -1)
    return -side if bin_size < 0 else side


cdef inline ptrdiff_t _first_on_side(real start, real bin_size, real grid, ptrdiff_t b, ptrdiff_t pixels,
                                     int side) noexcept nogil:
    """Finds the first sample of bin b on that side or beyond, by bisection: billions of samples may be outside."""
    cdef ptrdiff_t low = 0, high = <ptrdiff_t>grid, middle
    while low < high:
        middle = low + (high - low) // 2
        if _side(_sample(start, bin_size, grid, b, middle), bin_size, pixels) < side:
            low = middle + 1
        else:
            high = middle
    return low


cdef inline bint _all_on_map(const Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    """Returns whether the first and the last sample, and so all, are on the map."""
    return (_side(_sample(start, bin_size, grid, 0, 0), bin_size, axis.pixels) == 0 and
            _side(_sample(start, bin_size, grid, axis.bins - 1, <ptrdiff_t>grid - 1), bin_size, axis.pixels) == 0)


cdef inline ptrdiff_t count_taps(const Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    cdef ptrdiff_t taps = 0, b
    if axis.pixels == 0:
        return 0
    if _all_on_map(axis, start, bin_size, grid):
        return 2 * axis.bins * <ptrdiff_t>grid
    for b in range(axis.bins):
        taps += 2 * (_first_on_side(start, bin_size, grid, b, axis.pixels, 1)
                     - _first_on_side(start, bin_size, grid, b, axis.pixels, 0))
    return taps


cdef inline void count_region_taps(const mmk_call *call, const real *roi, const Axis *axes,
                                   ptrdiff_t *taps) noexcept nogil:
    cdef real start, bin_size, grid
    cdef int axis
    for axis in range(2):
        divide(call, roi, axis, &start, &bin_size, &grid)
        taps[axis] = count_taps(&axes[axis], start, bin_size, grid) if grid > 0 else 0


cdef inline ptrdiff_t _slot(Axis *axis, ptrdiff_t pixel) noexcept nogil:
    """Returns the slot of a pixel, assigning one at its first use."""
    if axis.slot == NULL:
        return pixel
    if axis.slot[pixel] == 0:
        axis.used[axis.used_count] = pixel
        axis.used_count += 1
        axis.slot[pixel] = axis.used_count
    return axis.slot[pixel] - 1


cdef inline void find_taps(Axis *axis, real start, real bin_size, real grid) noexcept nogil:
    """Finds the taps of all bins, and the slots of the pixels they use."""
    cdef ptrdiff_t samples = <ptrdiff_t>grid, taps = 0, b, i, first, last, low, high
    cdef real coordinate, fraction
    cdef real *weight = <real *>axis.weight
    cdef bint all_on_map = _all_on_map(axis, start, bin_size, grid)
    for i in range(axis.used_count):
        axis.slot[axis.used[i]] = 0
    axis.used_count = 0
    for b in range(axis.bins):
        axis.begin[b] = taps
        first = 0
        last = samples
        if axis.pixels == 0:
            last = 0
        elif not all_on_map:
            first = _first_on_side(start, bin_size, grid, b, axis.pixels, 0)
            last = _first_on_side(start, bin_size, grid, b, axis.pixels, 1)
        axis.outside[b] = last - first < samples
        for i in range(first, last):
            coordinate = _sample(start, bin_size, grid, b, i)
            if coordinate <= 0:
                coordinate = 0
            low = <ptrdiff_t>coordinate
            high = low + 1
            if low >= axis.pixels - 1:
                low = high = axis.pixels - 1
                coordinate = <real>low
            fraction = coordinate - <real>low
            axis.tap[taps] = _slot(axis, low)
            axis.tap[taps + 1] = _slot(axis, high)
            weight[taps] = 1 - fraction
            weight[taps + 1] = fraction
            taps += 2
    axis.begin[axis.bins] = taps


cdef inline void scale_taps(Axis *axis, ptrdiff_t stride) noexcept nogil:
    """Multiplies the slots of all taps by `stride`."""
    cdef ptrdiff_t t
    for t in range(axis.begin[axis.bins]):
        axis.tap[t] *= stride


cdef inline void take_axes(size_t *address, Axis *axes, const ptrdiff_t *taps, size_t width) noexcept nogil:
    """Gives both axes memory for that many taps, whose weights have `width` bytes; pixels are their own slots."""
    cdef Axis *axis
    cdef int i
    for i in range(2):
        axis = &axes[i]
        axis.begin = <ptrdiff_t *>take(address, (axis.bins + 1) * sizeof(ptrdiff_t))
        axis.outside = <char *>take(address, axis.bins)
        axis.slot = NULL
        axis.tap = <ptrdiff_t *>take(address, taps[i] * sizeof(ptrdiff_t))
        axis.weight = take(address, taps[i] * width)
