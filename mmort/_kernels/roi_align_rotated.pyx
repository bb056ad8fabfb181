"""roi_align_rotated: features of rotated regions, averaged over samples on a grid that is turned with each region.

Unlike those of an upright region, the samples of a rotated one share no rows and columns, so each has four taps of its
own.  They are found once for each bin and used for all channels: of a copy with channels last, or straight from the
planes if there are too few samples to pay for a copy.
"""
from libc.math cimport ceil, cos, isfinite, sin
from libc.stdint cimport int64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.regions cimport (INPUT, OUTPUT_HEIGHT, OUTPUT_WIDTH, ROIS, SAMPLING_RATIO, SHARED_ATTRIBUTES,
                                     SPATIAL_SCALE, check_attributes, check_region, set_output)
from mmort._kernels.sampling cimport (COPY, MIN_CHANNELS, add_copy_phase, add_taps, add_taps_of_planes, copies,
                                      find_taps, padded, run_copy_phase)
from mmort._kernels.workspace cimport element_size

cdef enum:  # attributes
    ALIGNED = SHARED_ATTRIBUTES
    CLOCKWISE

cdef enum:
    ROI = 6  # batch index, centre x, centre y, width, height, angle
    MAX_TAPS = 512  # collected before they are summed
    PIXELS_PER_SAMPLE = 6  # copied in about the time that it takes to read a sample from the planes
    MAX_SAMPLES = 1 << 26  # of a region: an ordinary one has about one for each pixel it covers

cdef enum:  # picoseconds per sample, estimated: no benchmark row
    FIND_TAPS = 5000
    ADD_FROM_COPY = 200  # and per channel
    ADD_FROM_PLANES = 4000  # and per channel


cdef struct Region:
    double cosine
    double sine
    double[2] centre      # y, x; in pixels
    double[2] start       # of the first bin, from the centre along the region's own axes
    double[2] bin_size
    double[2] grid        # samples in a bin along either axis


cdef inline void _locate(const mmk_call *call, const real *roi, Region *region) noexcept nogil:
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


cdef void _sum_bin(mmk_call *call, const Region *region, const real *image, ptrdiff_t row, ptrdiff_t column,
                   real *sums) noexcept nogil:
    """Sums the samples of a bin; `image` points into the copy if there is one, else at the image's planes."""
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t height = call.inputs[INPUT].shape[2], width = call.inputs[INPUT].shape[3]
    cdef ptrdiff_t stride = padded(channels) if copies(call) else 1
    cdef ptrdiff_t down = <ptrdiff_t>region.grid[0], across = <ptrdiff_t>region.grid[1], taps = 0, i, j
    cdef real cosine = <real>region.cosine, sine = <real>region.sine
    cdef real centre_y = <real>region.centre[0], centre_x = <real>region.centre[1]
    cdef real bin_height = <real>region.bin_size[0], bin_width = <real>region.bin_size[1]
    cdef real y, x
    cdef ptrdiff_t[MAX_TAPS] offset
    cdef real[MAX_TAPS] weight
    for i in range(down):
        y = (<real>region.start[0] + <real>row * bin_height) + ((<real>i + <real>0.5) * bin_height) / <real>down
        for j in range(across):
            x = (<real>region.start[1] + <real>column * bin_width) + ((<real>j + <real>0.5) * bin_width) / <real>across
            taps += find_taps((y * cosine - x * sine) + centre_y, (y * sine + x * cosine) + centre_x, height, width,
                              stride, offset + taps, weight + taps)
            if taps == MAX_TAPS or (i == down - 1 and j == across - 1):
                if copies(call):
                    add_taps(image, offset, weight, taps, stride, sums)
                else:
                    add_taps_of_planes(image, height * width, channels, offset, weight, taps, sums)
                if taps == MAX_TAPS and mmk_is_stopped(call):
                    return
                taps = 0


cdef void _align(mmk_call *call, const real *input, const real *rois, real *output, int64_t begin, int64_t end,
                 real *sums) noexcept nogil:
    """Computes regions [begin, end); `sums` has room for the channels of a row of bins."""
    cdef ptrdiff_t channels = call.inputs[INPUT].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[INPUT].shape[2] * call.inputs[INPUT].shape[3]
    cdef ptrdiff_t rows = call.attributes[OUTPUT_HEIGHT].i, columns = call.attributes[OUTPUT_WIDTH].i
    cdef ptrdiff_t stride = padded(channels), k, row, column, c
    cdef const real *image
    cdef real divisor
    cdef Region region
    for k in range(begin, end):
        _locate(call, rois + ROI * k, &region)
        if copies(call):
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
                _sum_bin(call, &region, image, row, column, sums + column * stride)
            for c in range(channels):
                for column in range(columns):
                    output[((k * channels + c) * rows + row) * columns + column] = sums[column * stride + c] / divisor


cdef int _check_regions(mmk_call *call, const real *rois, double *samples) noexcept nogil:
    """Rejects regions that cannot be sampled, and counts the samples of all regions."""
    cdef ptrdiff_t k
    cdef double bins = <double>call.attributes[OUTPUT_HEIGHT].i * <double>call.attributes[OUTPUT_WIDTH].i
    cdef double region_samples
    cdef const real *roi
    cdef Region region
    cdef int axis
    for k in range(call.inputs[ROIS].shape[0]):
        roi = rois + ROI * k
        if check_region(call, roi, ROI, k):
            return -1
        _locate(call, roi, &region)
        region_samples = bins * max(region.grid[0], 0.0) * max(region.grid[1], 0.0)
        for axis in range(2):
            if not isfinite(region.centre[axis]) or not isfinite(region.start[axis]):
                region_samples = MAX_SAMPLES + 1.0
        if not region_samples <= MAX_SAMPLES:
            return mmk_fail(call, "rois[%lld] must not take more than %d samples, or overflow", <long long>k,
                            <int>MAX_SAMPLES)
        samples[0] += region_samples
    return 0


cdef public int mmk_roi_align_rotated_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *input = &call.inputs[INPUT]
    cdef const mmk_tensor *rois = &call.inputs[ROIS]
    cdef int64_t channels, pixels
    cdef double samples = 0, per_channel = ADD_FROM_PLANES
    if (mmk_check_shape(call, INPUT, "input", "[N, C, H, W]") or mmk_check_shape(call, ROIS, "rois", "[K, 6]")
            or check_attributes(call)):
        return -1
    if rois.type == MMK_FLOAT32:
        if _check_regions(call, <const float *>rois.data, &samples):
            return -1
    elif _check_regions(call, <const double *>rois.data, &samples):
        return -1
    if set_output(call, samples):
        return -1
    if call.outputs[0].size == 0:
        return 0
    channels = input.shape[1]
    pixels = input.shape[0] * input.shape[2] * input.shape[3]
    if samples * PIXELS_PER_SAMPLE > <double>pixels and pixels and channels >= MIN_CHANNELS:
        add_copy_phase(call)
        per_channel = ADD_FROM_COPY
    mmk_add_phase(call, rois.shape[0], 1e-3 * samples / <double>rois.shape[0] * (FIND_TAPS + per_channel * channels))
    call.worker_scratch_size[call.phases - 1] = (
        <size_t>(call.attributes[OUTPUT_WIDTH].i * padded(channels)) * element_size(input.type))
    return 0


cdef public void mmk_roi_align_rotated_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                           void *scratch) noexcept nogil:
    cdef const void *input = call.inputs[INPUT].data
    cdef const void *rois = call.inputs[ROIS].data
    cdef void *output = call.outputs[0].data
    if phase == COPY and copies(call):
        run_copy_phase(call, begin, end)
    elif call.inputs[INPUT].type == MMK_FLOAT32:
        _align(call, <const float *>input, <const float *>rois, <float *>output, begin, end, <float *>scratch)
    else:
        _align(call, <const double *>input, <const double *>rois, <double *>output, begin, end, <double *>scratch)
