"""Bilinear sampling of feature maps at arbitrary positions, for the operators whose regions are rotated.

A sample is a weighted sum of pixels; a pixel with its weight is called a tap.  The taps are found once and then used
for all channels.  A copy of the map has the channels of a pixel side by side, so that one vector load does the work of
several scattered ones; where a copy does not pay, taps are read from the planes.  Input 0 of the call is the map,
`[N, C, H, W]`, and the copy is the call's scratch memory, filled by the first phase.
"""
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.shared.transposition cimport transpose
from mmort._kernels.shared.workspace cimport element_size

cdef extern from "grid_lanes.h" nogil:
    int grid_lanes() noexcept
    void add_taps_lanes(int lanes, const float *pixels, const ptrdiff_t *offset, const float *weight, ptrdiff_t taps,
                        ptrdiff_t channels, float *sums) noexcept

cdef enum:
    LANES = 16  # channels summed together; the copy is padded to a multiple of it
    STRIP = 64  # pixels copied together
    MIN_CHANNELS = 4  # from which on a copy pays

cdef enum:  # phases; without a copy the second is the only one
    COPY
    SAMPLE

cdef enum:  # picoseconds, estimated: no benchmark row
    COPY_PER_CHANNEL = 1000  # and per pixel


cdef inline ptrdiff_t padded(ptrdiff_t channels) noexcept nogil:
    return (channels + LANES - 1) // LANES * LANES


# ---- the copy with channels last -----------------------------------------------------------------------------------

cdef inline bint copies(const mmk_call *call) noexcept nogil:
    """Returns whether the call has a copy of the map, with channels last and padded."""
    return call.scratch_size != 0


cdef inline void add_copy_phase(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *input = &call.inputs[0]
    cdef int64_t channels = input.shape[1], pixels = input.shape[0] * input.shape[2] * input.shape[3]
    call.scratch_size = <size_t>(pixels * padded(channels)) * element_size(input.type)
    mmk_add_phase(call, pixels, 1e-3 * COPY_PER_CHANNEL * channels)


cdef inline void _copy(const real *input, ptrdiff_t plane_size, ptrdiff_t channels, ptrdiff_t begin, ptrdiff_t end,
                       real *pixels) noexcept nogil:
    """Copies the pixels [begin, end) of all images; the channels added for padding are 0."""
    cdef ptrdiff_t stride = padded(channels), pixel, count, c, i, k
    cdef const real *planes
    cdef real *strip
    while begin < end:
        pixel = begin % plane_size
        count = min(<ptrdiff_t>STRIP, min(plane_size - pixel, end - begin))
        planes = input + (begin - pixel) * channels + pixel
        strip = pixels + begin * stride
        c = 0
        while c + LANES <= channels:  # a whole cache line at a time
            transpose(planes + c * plane_size, plane_size, LANES, count, strip + c, stride)
            c += LANES
        if c < channels:
            for i in range(count):
                for k in range(LANES):
                    strip[i * stride + c + k] = planes[(c + k) * plane_size + i] if c + k < channels else 0
        begin += count


cdef inline void run_copy_phase(mmk_call *call, int64_t begin, int64_t end) noexcept nogil:
    """Copies the pixels [begin, end) of all images."""
    cdef const mmk_tensor *input = &call.inputs[0]
    cdef ptrdiff_t channels = input.shape[1], plane_size = input.shape[2] * input.shape[3]
    mmk_ask_for_large_pages(call.scratch, call.scratch_size)
    if input.type == MMK_FLOAT32:
        _copy(<const float *>input.data, plane_size, channels, begin, end, <float *>call.scratch)
    else:
        _copy(<const double *>input.data, plane_size, channels, begin, end, <double *>call.scratch)


# ---- taps ------------------------------------------------------------------------------------------------------------

cdef inline ptrdiff_t find_taps(real y, real x, ptrdiff_t height, ptrdiff_t width, ptrdiff_t pixel_stride,
                                ptrdiff_t *offset, real *weight) noexcept nogil:
    """Finds the four taps of a sample and returns 4, or 0 if it is more than a pixel outside the map, or NaN.

    Pixel centres have integer coordinates; up to one pixel outside, the border's value is taken.
    """
    cdef ptrdiff_t top, bottom, left, right
    cdef real ly, lx, hy, hx
    if not (y >= -1 and y <= <real>height and x >= -1 and x <= <real>width):
        return 0
    y = 0 if y <= 0 else y
    x = 0 if x <= 0 else x
    top = <ptrdiff_t>y
    left = <ptrdiff_t>x
    bottom = top + 1
    right = left + 1
    if top >= height - 1:
        top = bottom = height - 1
        y = <real>top
    if left >= width - 1:
        left = right = width - 1
        x = <real>left
    ly = y - <real>top
    lx = x - <real>left
    hy = 1 - ly
    hx = 1 - lx
    offset[0] = (top * width + left) * pixel_stride
    offset[1] = (top * width + right) * pixel_stride
    offset[2] = (bottom * width + left) * pixel_stride
    offset[3] = (bottom * width + right) * pixel_stride
    weight[0] = hy * hx
    weight[1] = hy * lx
    weight[2] = ly * hx
    weight[3] = ly * lx
    return 4


cdef inline simd_void _add_taps(const real *pixels, const ptrdiff_t *offset, const real *weight, ptrdiff_t taps,
                                ptrdiff_t stride, real *sums) noexcept nogil:
    cdef real[LANES] lane
    cdef ptrdiff_t c = 0, t, i
    cdef const real *pixel
    while c < stride:
        for i in range(LANES):
            lane[i] = sums[c + i]
        for t in range(taps):
            pixel = pixels + offset[t] + c
            for i in range(LANES):
                lane[i] += weight[t] * pixel[i]
        for i in range(LANES):
            sums[c + i] = lane[i]
        c += LANES


cdef inline void add_taps(const real *pixels, const ptrdiff_t *offset, const real *weight, ptrdiff_t taps,
                          ptrdiff_t stride, real *sums) noexcept nogil:
    """Adds the taps to the sums of all channels, from the copy."""
    cdef int lanes = grid_lanes()
    if real is float:
        if lanes:
            add_taps_lanes(lanes, pixels, offset, weight, taps, stride, sums)
            return
    _add_taps(pixels, offset, weight, taps, stride, sums)


cdef inline void add_taps_of_planes(const real *planes, ptrdiff_t plane_size, ptrdiff_t channels,
                                    const ptrdiff_t *offset, const real *weight, ptrdiff_t taps,
                                    real *sums) noexcept nogil:
    """Adds the taps to the sums of all channels, from the planes."""
    cdef ptrdiff_t c, t
    cdef real total
    for c in range(channels):
        total = sums[c]
        for t in range(taps):
            total += weight[t] * planes[c * plane_size + offset[t]]
        sums[c] = total
