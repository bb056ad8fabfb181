"""rotated_feature_align: each location's features, plus those at the points of its best box (R3Det, Yang 2021).

The taps of a location are found once and used for all channels, of a copy with channels last.
"""
from libc.math cimport cos, sin
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from mmk cimport *
from element_types cimport real
from mmort._kernels.sampling cimport FEWEST, add_taps, add_taps_of_planes, copy_channels_last, find_taps, padded

cdef enum:  # attributes
    SPATIAL_SCALE
    POINTS

cdef enum:
    BOX = 5
    MOST_POINTS = 5
    RUN = 32  # locations handled together

cdef enum:
    COPY = 0  # phases; without a copy the second is the only one


cdef simd_void _copy(const real *features, ptrdiff_t plane_size, ptrdiff_t channels, ptrdiff_t begin, ptrdiff_t end,
                     real *pixels) noexcept nogil:
    copy_channels_last(features, plane_size, channels, begin, end, pixels)


cdef simd_void _add(const real *pixels, const ptrdiff_t *offset, const real *weight, ptrdiff_t taps, ptrdiff_t stride,
                    real *sums) noexcept nogil:
    add_taps(pixels, offset, weight, taps, stride, sums)


cdef simd_void _write(const real *sums, ptrdiff_t stride, ptrdiff_t count, ptrdiff_t channels, ptrdiff_t plane_size,
                      real *output) noexcept nogil:
    """output[channel][location] = sums[location][channel]"""
    cdef ptrdiff_t c, i
    for c in range(channels):
        for i in range(count):
            output[c * plane_size + i] = sums[i * stride + c]


cdef ptrdiff_t _find_points(const mmk_call *call, const real *box, ptrdiff_t stride, ptrdiff_t *offset,
                            real *weight) noexcept nogil:
    """The taps of a box's centre and corners, in MMCV's order.  MMCV reads a box's first number as the row."""
    cdef ptrdiff_t height = call.inputs[0].shape[2], width = call.inputs[0].shape[3]
    cdef ptrdiff_t used
    cdef int64_t points = call.attributes[POINTS].i
    cdef real scale = <real>call.attributes[SPATIAL_SCALE].f
    cdef real y = box[0] * scale, x = box[1] * scale
    cdef real half_width, half_height, cosine, sine, ax, ay, bx, by
    used = find_taps(y, x, height, width, stride, offset, weight)
    if points > 1:
        half_width = box[2] * scale / 2
        half_height = box[3] * scale / 2
        cosine = <real>cos(box[4])
        sine = <real>sin(box[4])
        ax = cosine * half_width
        ay = sine * half_width
        bx = -sine * half_height
        by = cosine * half_height
        used += find_taps((y + ay) + by, (x + ax) + bx, height, width, stride, offset + used, weight + used)
        if points > 2:
            used += find_taps((y - ay) + by, (x - ax) + bx, height, width, stride, offset + used, weight + used)
        if points > 3:
            used += find_taps((y - ay) - by, (x - ax) - bx, height, width, stride, offset + used, weight + used)
        if points > 4:
            used += find_taps((y + ay) - by, (x + ax) - bx, height, width, stride, offset + used, weight + used)
    return used


cdef void _align(const mmk_call *call, const real *features, const real *boxes, real *output, int64_t begin,
                 int64_t end, real *sums) noexcept nogil:
    """Pieces are the locations of all images."""
    cdef const real *pixels = <const real *>call.scratch
    cdef ptrdiff_t channels = call.inputs[0].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    cdef ptrdiff_t stride = padded(channels), image, place, count, taps, i, c
    cdef ptrdiff_t[4 * MOST_POINTS] offset
    cdef real[4 * MOST_POINTS] weight
    while begin < end:
        image = begin // plane_size
        place = begin - image * plane_size
        count = min(<ptrdiff_t>RUN, min(plane_size - place, <ptrdiff_t>(end - begin)))
        if call.scratch_size:
            memcpy(sums, pixels + begin * stride, count * stride * sizeof(real))
            for i in range(count):
                taps = _find_points(call, boxes + BOX * (begin + i), stride, offset, weight)
                _add(pixels + image * plane_size * stride, offset, weight, taps, stride, sums + i * stride)
        else:
            for i in range(count):
                for c in range(channels):
                    sums[i * stride + c] = features[(image * channels + c) * plane_size + place + i]
                taps = _find_points(call, boxes + BOX * (begin + i), 1, offset, weight)
                add_taps_of_planes(features + image * channels * plane_size, plane_size, channels, offset, weight, taps,
                                   sums + i * stride)
        _write(sums, stride, count, channels, plane_size, output + image * channels * plane_size + place)
        begin += count


cdef int _check_boxes(mmk_call *call, const real *boxes) noexcept nogil:
    cdef const mmk_tensor *tensor = &call.inputs[1]
    cdef ptrdiff_t i, k, columns = tensor.shape[2], rows = tensor.shape[1]
    cdef ptrdiff_t used = 2 if call.attributes[POINTS].i == 1 else BOX
    for i in range(tensor.size // BOX):
        for k in range(used):
            if boxes[BOX * i + k] != boxes[BOX * i + k]:
                return mmk_fail(call, "best_rbboxes must not hold NaN, got it in box [%lld, %lld, %lld]",
                                <long long>(i // columns // rows), <long long>(i // columns % rows),
                                <long long>(i % columns))
    return 0


cdef public int mmk_rotated_feature_align_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *features = &call.inputs[0]
    cdef mmk_tensor *boxes = &call.inputs[1]
    cdef int64_t locations, points = call.attributes[POINTS].i
    cdef size_t element = sizeof(float) if features.type == MMK_FLOAT32 else sizeof(double)
    if mmk_check_shape(call, 0, "features", "[N, C, H, W]") or mmk_check_shape(call, 1, "best_rbboxes", "[N, H, W, 5]"):
        return -1
    if points < 1 or points > MOST_POINTS:
        return mmk_fail(call, "points must be from 1 to %d, got %lld", <int>MOST_POINTS, <long long>points)
    if boxes.type == MMK_FLOAT32:
        if _check_boxes(call, <const float *>boxes.data):
            return -1
    elif _check_boxes(call, <const double *>boxes.data):
        return -1
    if mmk_set_output(call, 0, features.type, 4, features.shape):
        return -1
    if features.size == 0:
        return 0
    locations = boxes.size // BOX
    if features.shape[1] >= FEWEST:
        call.scratch_size = <size_t>(locations * padded(features.shape[1])) * element
        mmk_add_phase(call, locations, 1.0 * features.shape[1])
    mmk_add_phase(call, locations, 100.0 + <double>points * 0.4 * features.shape[1])
    call.worker_scratch_size[call.phases - 1] = <size_t>(RUN * padded(features.shape[1])) * element
    return 0


cdef public void mmk_rotated_feature_align_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                               void *scratch) noexcept nogil:
    cdef const void *features = call.inputs[0].data
    cdef const void *boxes = call.inputs[1].data
    cdef void *output = call.outputs[0].data
    cdef ptrdiff_t channels = call.inputs[0].shape[1], plane_size = call.inputs[0].shape[2] * call.inputs[0].shape[3]
    if phase == COPY and call.scratch_size:
        mmk_ask_for_large_pages(call.scratch, call.scratch_size)
        if call.inputs[0].type == MMK_FLOAT32:
            _copy(<const float *>features, plane_size, channels, begin, end, <float *>call.scratch)
        else:
            _copy(<const double *>features, plane_size, channels, begin, end, <double *>call.scratch)
    elif call.inputs[0].type == MMK_FLOAT32:
        _align(call, <const float *>features, <const float *>boxes, <float *>output, begin, end, <float *>scratch)
    else:
        _align(call, <const double *>features, <const double *>boxes, <double *>output, begin, end, <double *>scratch)
