"""rotated_feature_align: adds to the features of each location those at points of its best box (R3Det, Yang 2021).

The taps of a location are found once and used for all channels, of a copy with channels last.
"""
from libc.math cimport cos, sin
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from element_types cimport real
from mmk cimport *
from mmort._kernels.sampling.sampling cimport (COPY, MIN_CHANNELS, add_copy_phase, add_taps, add_taps_of_planes, copies,
                                               find_taps, padded, run_copy_phase)
from mmort._kernels.shared.transposition cimport transpose
from mmort._kernels.shared.workspace cimport element_size

cdef enum:  # inputs
    FEATURES
    BOXES

cdef enum:  # attributes
    SPATIAL_SCALE
    POINTS

cdef enum:
    BOX = 5  # numbers per box
    MAX_POINTS = 5
    STRIP = 32  # locations handled together

cdef enum:  # picoseconds, estimated: no benchmark row
    PER_LOCATION = 100000
    ADD_TAPS = 400  # per point and channel


cdef ptrdiff_t _find_points(const mmk_call *call, const real *box, ptrdiff_t stride, ptrdiff_t *offset,
                            real *weight) noexcept nogil:
    """Finds the taps of a box's centre and corners, in MMCV's order, and returns their number.

    MMCV takes a box's first number for the row.
    """
    cdef ptrdiff_t height = call.inputs[FEATURES].shape[2], width = call.inputs[FEATURES].shape[3]
    cdef ptrdiff_t taps
    cdef int64_t points = call.attributes[POINTS].i
    cdef real scale = <real>call.attributes[SPATIAL_SCALE].f
    cdef real y = box[0] * scale, x = box[1] * scale
    cdef real half_width, half_height, cosine, sine, ax, ay, bx, by
    taps = find_taps(y, x, height, width, stride, offset, weight)
    if points > 1:
        half_width = box[2] * scale / 2
        half_height = box[3] * scale / 2
        cosine = <real>cos(box[4])
        sine = <real>sin(box[4])
        ax = cosine * half_width
        ay = sine * half_width
        bx = -sine * half_height
        by = cosine * half_height
        taps += find_taps((y + ay) + by, (x + ax) + bx, height, width, stride, offset + taps, weight + taps)
        if points > 2:
            taps += find_taps((y - ay) + by, (x - ax) + bx, height, width, stride, offset + taps, weight + taps)
        if points > 3:
            taps += find_taps((y - ay) - by, (x - ax) - bx, height, width, stride, offset + taps, weight + taps)
        if points > 4:
            taps += find_taps((y + ay) - by, (x + ax) - bx, height, width, stride, offset + taps, weight + taps)
    return taps


cdef void _align(const mmk_call *call, const real *features, const real *boxes, real *output, int64_t begin,
                 int64_t end, real *sums) noexcept nogil:
    """Computes locations [begin, end) of all images; `sums` has room for the channels of STRIP locations."""
    cdef const real *pixels = <const real *>call.scratch
    cdef ptrdiff_t channels = call.inputs[FEATURES].shape[1]
    cdef ptrdiff_t plane_size = call.inputs[FEATURES].shape[2] * call.inputs[FEATURES].shape[3]
    cdef ptrdiff_t stride = padded(channels), image, location, count, taps, i
    cdef ptrdiff_t[4 * MAX_POINTS] offset
    cdef real[4 * MAX_POINTS] weight
    while begin < end:
        image = begin // plane_size
        location = begin - image * plane_size
        count = min(<ptrdiff_t>STRIP, min(plane_size - location, <ptrdiff_t>(end - begin)))
        if copies(call):
            memcpy(sums, pixels + begin * stride, count * stride * sizeof(real))
            for i in range(count):
                taps = _find_points(call, boxes + BOX * (begin + i), stride, offset, weight)
                add_taps(pixels + image * plane_size * stride, offset, weight, taps, stride, sums + i * stride)
        else:
            transpose(features + image * channels * plane_size + location, plane_size, channels, count, sums, stride)
            for i in range(count):
                taps = _find_points(call, boxes + BOX * (begin + i), 1, offset, weight)
                add_taps_of_planes(features + image * channels * plane_size, plane_size, channels, offset, weight, taps,
                                   sums + i * stride)
        transpose(sums, stride, count, channels, output + image * channels * plane_size + location, plane_size)
        begin += count


cdef int _check_boxes(mmk_call *call, const real *boxes) noexcept nogil:
    cdef const mmk_tensor *tensor = &call.inputs[BOXES]
    cdef ptrdiff_t i, k, columns = tensor.shape[2], rows = tensor.shape[1]
    cdef ptrdiff_t used = 2 if call.attributes[POINTS].i == 1 else BOX
    for i in range(tensor.size // BOX):
        for k in range(used):
            if boxes[BOX * i + k] != boxes[BOX * i + k]:
                return mmk_fail(call, "best_rbboxes must not contain NaN, got NaN in box [%lld, %lld, %lld]",
                                <long long>(i // columns // rows), <long long>(i // columns % rows),
                                <long long>(i % columns))
    return 0


cdef public int mmk_rotated_feature_align_prepare(mmk_call *call) noexcept nogil:
    cdef const mmk_tensor *features = &call.inputs[FEATURES]
    cdef const mmk_tensor *boxes = &call.inputs[BOXES]
    cdef int64_t channels, points = call.attributes[POINTS].i
    if (mmk_check_shape(call, FEATURES, "features", "[N, C, H, W]")
            or mmk_check_shape(call, BOXES, "best_rbboxes", "[N, H, W, 5]")):
        return -1
    if points < 1 or points > MAX_POINTS:
        return mmk_fail(call, "points must be from 1 to %d, got %lld", <int>MAX_POINTS, <long long>points)
    if boxes.type == MMK_FLOAT32:
        if _check_boxes(call, <const float *>boxes.data):
            return -1
    elif _check_boxes(call, <const double *>boxes.data):
        return -1
    if mmk_set_output(call, 0, features.type, 4, features.shape):
        return -1
    if features.size == 0:
        return 0
    channels = features.shape[1]
    if channels >= MIN_CHANNELS:
        add_copy_phase(call)
    mmk_add_phase(call, boxes.size // BOX, 1e-3 * (PER_LOCATION + <double>points * ADD_TAPS * channels))
    call.worker_scratch_size[call.phases - 1] = <size_t>(STRIP * padded(channels)) * element_size(features.type)
    return 0


cdef public void mmk_rotated_feature_align_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                               void *scratch) noexcept nogil:
    cdef const void *features = call.inputs[FEATURES].data
    cdef const void *boxes = call.inputs[BOXES].data
    cdef void *output = call.outputs[0].data
    if phase == COPY and copies(call):
        run_copy_phase(call, begin, end)
    elif call.inputs[FEATURES].type == MMK_FLOAT32:
        _align(call, <const float *>features, <const float *>boxes, <float *>output, begin, end, <float *>scratch)
    else:
        _align(call, <const double *>features, <const double *>boxes, <double *>output, begin, end, <double *>scratch)
