"""Regions of roi_align_rotated: where one lies on the map, and where its samples are."""
from libc.math cimport ceil, cos, sin

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions.regions cimport OUTPUT_HEIGHT, SAMPLING_RATIO, SHARED_ATTRIBUTES, SPATIAL_SCALE

cdef enum:  # attributes
    ALIGNED = SHARED_ATTRIBUTES
    CLOCKWISE


cdef struct Geometry:
    double cosine
    double sine
    double[2] centre      # y, x; in pixels
    double[2] start       # of the first bin, from the centre along the region's own axes
    double[2] bin_size
    double[2] grid        # samples in a bin along either axis


cdef inline void locate_region(const mmk_call *call, const real *roi, Geometry *region) noexcept nogil:
    """Computes where the region lies on the map, in the written order of MMCV's arithmetic."""
    cdef real scale = <real>call.attributes[SPATIAL_SCALE].f
    cdef real shift = <real>0.5 if call.attributes[ALIGNED].i else 0
    cdef double angle = -<double>roi[5] if call.attributes[CLOCKWISE].i else <double>roi[5]
    cdef real size, bin_size
    cdef int axis
    region.cosine = <real>cos(angle)
    region.sine = <real>sin(angle)
    for axis in range(2):
        region.centre[axis] = <real>(roi[2 - axis] * scale - shift)
        size = roi[4 - axis] * scale
        if not call.attributes[ALIGNED].i and size < 1:
            size = 1
        bin_size = size / <real>call.attributes[OUTPUT_HEIGHT + axis].i
        region.start[axis] = -size / 2
        region.bin_size[axis] = bin_size
        region.grid[axis] = <double>call.attributes[SAMPLING_RATIO].i
        if region.grid[axis] <= 0:
            region.grid[axis] = ceil(<double>bin_size)


cdef inline real own_coordinate(const Geometry *region, int axis, ptrdiff_t bin, ptrdiff_t sample,
                                const real *_type) noexcept nogil:
    """Returns the distance of a sample from the centre along axis 0 (y) or 1 (x) of the region."""
    cdef real bin_size = <real>region.bin_size[axis]
    return ((<real>region.start[axis] + <real>bin * bin_size)
            + ((<real>sample + <real>0.5) * bin_size) / <real>region.grid[axis])


cdef inline ptrdiff_t samples_of_bin(const Geometry *region) noexcept nogil:
    return <ptrdiff_t>region.grid[0] * <ptrdiff_t>region.grid[1] if region.grid[0] > 0 and region.grid[1] > 0 else 0


cdef inline void turn(const Geometry *region, real own_y, real own_x, real *y, real *x) noexcept nogil:
    """Sets the position on the map of a sample with coordinates along the region's own axes."""
    cdef real cosine = <real>region.cosine, sine = <real>region.sine
    y[0] = (own_y * cosine - own_x * sine) + <real>region.centre[0]
    x[0] = (own_y * sine + own_x * cosine) + <real>region.centre[1]
