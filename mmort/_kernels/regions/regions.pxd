"""Arguments of roi_align and roi_align_rotated: their checks, and the shape of the output.

A region is a row of `rois`: the index of its image, then its coordinates in the image, which `spatial_scale` turns
into pixels of the feature map.
"""
from libc.math cimport isfinite
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *

cdef enum:  # inputs
    INPUT
    ROIS

cdef enum:  # the first attributes, which both have
    OUTPUT_HEIGHT
    OUTPUT_WIDTH
    SPATIAL_SCALE
    SAMPLING_RATIO
    SHARED_ATTRIBUTES

cdef enum:
    MAX_SAMPLING_RATIO = 1024


cdef inline int check_attributes(mmk_call *call) noexcept nogil:
    cdef const mmk_attribute *attributes = call.attributes
    if attributes[OUTPUT_HEIGHT].i < 1 or attributes[OUTPUT_WIDTH].i < 1:
        return mmk_fail(call, "output_height and output_width must be at least 1, got %lld and %lld",
                        <long long>attributes[OUTPUT_HEIGHT].i, <long long>attributes[OUTPUT_WIDTH].i)
    if not isfinite(attributes[SPATIAL_SCALE].f):
        return mmk_fail(call, "spatial_scale must be finite, got %g", attributes[SPATIAL_SCALE].f)
    if attributes[SAMPLING_RATIO].i > MAX_SAMPLING_RATIO:
        return mmk_fail(call, "sampling_ratio must be at most %d, got %lld", <int>MAX_SAMPLING_RATIO,
                        <long long>attributes[SAMPLING_RATIO].i)
    return 0


cdef inline int check_region(mmk_call *call, const real *roi, int size, int64_t index) noexcept nogil:
    """Rejects a batch index out of range and coordinates that are not finite; a region is `size` numbers."""
    cdef int i
    if not (roi[0] > -1 and roi[0] < <real>call.inputs[INPUT].shape[0]):
        return mmk_fail(call, "the batch index of rois[%lld] must be in [0, %lld), got %g", <long long>index,
                        <long long>call.inputs[INPUT].shape[0], <double>roi[0])
    for i in range(1, size):
        if not isfinite(roi[i]):
            return mmk_fail(call, "the coordinates of rois[%lld] must be finite, got %g", <long long>index,
                            <double>roi[i])
    return 0


cdef inline int set_output(mmk_call *call, double samples) noexcept nogil:
    """Sets the output to [K, C, output_height, output_width]; rejects too many samples, counted for a channel."""
    cdef int64_t[4] shape
    shape[0] = call.inputs[ROIS].shape[0]
    shape[1] = call.inputs[INPUT].shape[1]
    shape[2] = call.attributes[OUTPUT_HEIGHT].i
    shape[3] = call.attributes[OUTPUT_WIDTH].i
    return (mmk_set_output(call, 0, call.inputs[INPUT].type, 4, shape)
            or mmk_check_steps(call, samples * shape[1], "samples"))
