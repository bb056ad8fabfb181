"""roi_align_rotated: features of rotated regions, averaged over samples on a grid that is turned with each region.

Unlike those of an upright region, the samples of a rotated one lie in no common rows and columns, so each has four
taps of its own.  They are found once for each bin and used for all channels: of a copy with channels last, or straight
from the planes if there are too few samples to pay for it.
"""
from libc.math cimport ceil, cos, isfinite, sin
from libc.stdint cimport int64_t
from libc.string cimport memset

from mmk cimport *
from element_types cimport real
from mmort._kernels.sampling cimport FEWEST, add_taps, add_taps_of_planes, copy_channels_last, find_taps, padded

cdef enum:  # attributes
    OUTPUT_HEIGHT
    OUTPUT_WIDTH
    SPATIAL_SCALE
    SAMPLING_RATIO
    ALIGNED
    CLOCKWISE

cdef enum:
    ROI = 6  # batch index, centre x, centre y, width, height, angle
    TAPS = 512  # collected before they are used
    LARGEST_SAMPLING_RATIO = 1024
    SAMPLE_IN_PIXELS = 6  # reading a sample from the planes takes about as long as copying so many pixels
    MOST_SAMPLES = 1 << 26  # in a region: an ordinary one has about one for each pixel it covers

cdef enum:
    COPY = 0  # phases; without a copy the second is the only one


cdef struct Region:
    double cosine
    double sine
    double[2] centre      # y, x; in pixels
    double[2] start       # of the first bin, from the centre along the region's own axes
    double[2] bin_size
    double[2] grid        # samples in a bin along either axis


cdef inline void _place(const mmk_call *call, const real *roi, Region *region) noexcept nogil:
    """The region's place on the map, in the written order of MMCV's arithmetic."""
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


cdef simd_void _copy(const real *input, ptrdiff_t plane_size, ptrdiff_t channels, ptrdiff_t begin, ptrdiff_t end,
                     real *pixels) noexcept nogil:
    copy_channels_last(input, plane_size, channels, begin, end, pixels)


cdef simd_void _add(const real *pixels, const ptrdiff_t *offset, const real *weight, ptrdiff_t taps, ptrdiff_t stride,
                    real *sums) noexcept nogil:
    add_taps(pixels, offset, weight, taps, stride, sums)


cdef void _sum_bin(const mmk_call *call, const Region *region, const real *image, bint channels_last, ptrdiff_t row,
                   ptrdiff_t column, real *sums) noexcept nogil:
    """Adds up the samples of a bin; `image` has channels last, or is planes."""
    cdef ptrdiff_t channels = call.inputs[0].shape[1], height = call.inputs[0].shape[2], width = call.inputs[0].shape[3]
    cdef ptrdiff_t stride = padded(channels) if channels_last else 1
    cdef ptrdiff_t down = <ptrdiff_t>region.grid[0], across = <ptrdiff_t>region.grid[1], used = 0, i, j
    cdef real cosine = <real>region.cosine, sine = <real>region.sine
    cdef real centre_y = <real>region.centre[0], centre_x = <real>region.centre[1]
    cdef real bin_height = <real>region.bin_size[0], bin_width = <real>region.bin_size[1]
    cdef real y, x
    cdef ptrdiff_t[TAPS] offset
    cdef real[TAPS] weight
    for i in range(down):
        y = (<real>region.start[0] + <real>row * bin_height) + ((<real>i + <real>0.5) * bin_height) / <real>down
        for j in range(across):
            x = (<real>region.start[1] + <real>column * bin_width) + ((<real>j + <real>0.5) * bin_width) / <real>across
            used += find_taps((y * cosine - x * sine) + centre_y, (y * sine + x * cosine) + centre_x, height, width,
                              stride, offset + used, weight + used)
            if used == TAPS or (i == down - 1 and j == across - 1):
                if channels_last:
                    _add(image, offset, weight, used, stride, sums)
                else:
                    add_taps_of_planes(image, height * width, channels, offset, weight, used, sums)
                used = 0


cdef void _regions(const mmk_call *call, const real *input, const real *rois, real *output, int64_t begin,
                   int64_t end, real *sums) noexcept nogil:
    cdef ptrdiff_t channels = call.inputs[0].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    cdef ptrdiff_t rows = call.attributes[OUTPUT_HEIGHT].i, columns = call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t stride = padded(channels), k, row, column, c
    cdef bint channels_last = call.scratch_size != 0
    cdef const real *image
    cdef real divisor
    cdef Region region
    for k in range(begin, end):
        _place(call, rois + ROI * k, &region)
        if channels_last:
            image = <const real *>call.scratch + <ptrdiff_t>rois[ROI * k] * plane_size * stride
        else:
            image = input + <ptrdiff_t>rois[ROI * k] * plane_size * channels
        divisor = <real>(region.grid[0] * region.grid[1])
        if region.grid[0] <= 0 or region.grid[1] <= 0 or plane_size == 0:  # no samples, or none on the map
            memset(output + k * channels * rows * columns, 0, channels * rows * columns * sizeof(real))
            continue
        for row in range(rows):
            memset(sums, 0, columns * stride * sizeof(real))
            for column in range(columns):
                _sum_bin(call, &region, image, channels_last, row, column, sums + column * stride)
            for c in range(channels):
                for column in range(columns):
                    output[((k * channels + c) * rows + row) * columns + column] = sums[column * stride + c] / divisor


cdef int _check_rois(mmk_call *call, const real *rois, double *samples) noexcept nogil:
    cdef ptrdiff_t k
    cdef double bins = <double>call.attributes[OUTPUT_HEIGHT].i * <double>call.attributes[OUTPUT_WIDTH].i, here
    cdef const real *roi
    cdef Region region
    cdef int axis, i
    for k in range(call.inputs[1].shape[0]):
        roi = rois + ROI * k
        if not (roi[0] > -1 and roi[0] < <real>call.inputs[0].shape[0]):
            return mmk_fail(call, "the batch index of rois[%lld] must be in [0, %lld), got %g", <long long>k,
                            <long long>call.inputs[0].shape[0], <double>roi[0])
        for i in range(1, ROI):
            if not isfinite(roi[i]):
                return mmk_fail(call, "the coordinates of rois[%lld] must be finite, got %g", <long long>k,
                                <double>roi[i])
        _place(call, roi, &region)
        here = bins * max(region.grid[0], 0.0) * max(region.grid[1], 0.0)
        for axis in range(2):
            if not isfinite(region.centre[axis]) or not isfinite(region.start[axis]):
                here = MOST_SAMPLES + 1.0
        if not here <= MOST_SAMPLES:
            return mmk_fail(call, "rois[%lld] must not take more than %d samples, or overflow", <long long>k,
                            <int>MOST_SAMPLES)
        samples[0] += here
    return 0


cdef public int mmk_roi_align_rotated_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *input = &call.inputs[0]
    cdef mmk_tensor *rois = &call.inputs[1]
    cdef int64_t height = call.attributes[OUTPUT_HEIGHT].i, width = call.attributes[OUTPUT_WIDTH].i
    cdef int64_t images = input.shape[0], channels, pixels
    cdef size_t element = sizeof(float) if input.type == MMK_FLOAT32 else sizeof(double)
    cdef int64_t[4] shape
    cdef double samples = 0
    if mmk_check_shape(call, 0, "input", "[N, C, H, W]") or mmk_check_shape(call, 1, "rois", "[K, 6]"):
        return -1
    if height < 1 or width < 1:
        return mmk_fail(call, "output_height and output_width must be at least 1, got %lld and %lld", <long long>height,
                        <long long>width)
    if not isfinite(call.attributes[SPATIAL_SCALE].f):
        return mmk_fail(call, "spatial_scale must be finite, got %g", call.attributes[SPATIAL_SCALE].f)
    if call.attributes[SAMPLING_RATIO].i > LARGEST_SAMPLING_RATIO:
        return mmk_fail(call, "sampling_ratio must be at most %d, got %lld", <int>LARGEST_SAMPLING_RATIO,
                        <long long>call.attributes[SAMPLING_RATIO].i)
    if rois.type == MMK_FLOAT32:
        if _check_rois(call, <const float *>rois.data, &samples):
            return -1
    elif _check_rois(call, <const double *>rois.data, &samples):
        return -1
    channels = input.shape[1]
    pixels = input.shape[2] * input.shape[3]
    shape[0] = rois.shape[0]
    shape[1] = channels
    shape[2] = height
    shape[3] = width
    if mmk_set_output(call, 0, input.type, 4, shape):
        return -1
    if call.outputs[0].size == 0:
        return 0
    if samples * SAMPLE_IN_PIXELS > <double>(images * pixels) and pixels and channels >= FEWEST:
        call.scratch_size = <size_t>(images * pixels * padded(channels)) * element
        mmk_add_phase(call, images * pixels, 1.0 * channels)
        mmk_add_phase(call, rois.shape[0], samples / <double>rois.shape[0] * (5 + 0.2 * channels))
    else:
        mmk_add_phase(call, rois.shape[0], samples / <double>rois.shape[0] * (5 + 4.0 * channels))
    call.worker_scratch_size[call.phases - 1] = <size_t>(width * padded(channels)) * element
    return 0


cdef public void mmk_roi_align_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                           void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[0].data
    cdef const void *rois = call.inputs[1].data
    cdef void *output = call.outputs[0].data
    cdef ptrdiff_t channels = call.inputs[0].shape[1], plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    if phase == COPY and call.scratch_size:
        mmk_ask_for_large_pages(call.scratch, call.scratch_size)
        if call.inputs[0].type == MMK_FLOAT32:
            _copy(<const float *>input, plane_size, channels, begin, end, <float *>call.scratch)
        else:
            _copy(<const double *>input, plane_size, channels, begin, end, <double *>call.scratch)
    elif call.inputs[0].type == MMK_FLOAT32:
        _regions(call, <const float *>input, <const float *>rois, <float *>output, begin, end, <float *>scratch)
    else:
        _regions(call, <const double *>input, <const double *>rois, <double *>output, begin, end, <double *>scratch)
