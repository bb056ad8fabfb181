"""carafe: maps enlarged by weights for the neighbourhood of each pixel (J. Wang et al., ICCV 2019).

A row of the input gives `scale_factor` rows of the output.  Its neighbours are stretched to the width of the output
first, so that all further loops run over neighbouring numbers.
"""
from libc.stdint cimport int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.shared.workspace cimport element_size

cdef enum:
    FEATURES  # inputs
    MASKS

cdef enum:
    KERNEL_SIZE  # attributes
    GROUP_SIZE
    SCALE_FACTOR

cdef enum:
    MAX_KERNEL_SIZE = 63  # the portable definition has nodes for each of its weights
    MAX_SCALE_FACTOR = 1 << 16
    LANES = 16  # numbers of a row that are summed side by side
    FEW_LANES = 4  # of those that are left, or of a narrow map

cdef enum:  # picoseconds per weight and channel; portable.py, 256 x 50 x 76
    WEIGH = 400


cdef struct _Sizes:
    int64_t channels, height, width
    int64_t kernel, groups, factor
    int64_t output_width
    int64_t plane          # numbers of a map of the output
    int64_t stretched      # numbers of a stretched row: with the neighbours beyond its ends


cdef _Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef _Sizes s
    cdef const mmk_tensor *x = &call.inputs[FEATURES]
    s.channels = x.shape[1]
    s.height = x.shape[2]
    s.width = x.shape[3]
    s.kernel = call.attributes[KERNEL_SIZE].i
    s.groups = call.attributes[GROUP_SIZE].i
    s.factor = call.attributes[SCALE_FACTOR].i
    s.output_width = s.width * s.factor
    s.plane = s.height * s.factor * s.output_width
    s.stretched = s.output_width + (s.kernel - 1) * s.factor
    return s


cdef void _stretch(const _Sizes *s, const real *row, real *stretched) noexcept nogil:
    """Repeats each number of a row (NULL: zeros) `factor` times, with zeros for the neighbours beyond its ends."""
    cdef int64_t column, first = s.kernel // 2, i
    for i in range(s.stretched):
        stretched[i] = 0
    if row == NULL:
        return
    for column in range(s.width):
        for i in range((first + column) * s.factor, (first + column + 1) * s.factor):
            stretched[i] = row[column]


cdef inline void _weigh_lanes(const real *weights, ptrdiff_t plane, const real *rows, ptrdiff_t stretched,
                              ptrdiff_t kernel, ptrdiff_t factor, ptrdiff_t lanes, real *output) noexcept nogil:
    """Computes `lanes` numbers (a constant) of a row: the sums over the neighbours, by row and column."""
    cdef real[LANES] total
    cdef const real *neighbours
    cdef ptrdiff_t row, column, tap, i
    for i in range(lanes):
        total[i] = 0
    for row in range(kernel):
        for column in range(kernel):
            neighbours = rows + row * stretched + column * factor
            tap = (row * kernel + column) * plane
            for i in range(lanes):
                total[i] += weights[tap + i] * neighbours[i]
    for i in range(lanes):
        output[i] = total[i]


cdef simd_void _weigh(const real *weights, ptrdiff_t plane, const real *rows, ptrdiff_t stretched, ptrdiff_t kernel,
                      ptrdiff_t factor, ptrdiff_t count, real *output) noexcept nogil:
    """Computes a row of the output."""
    cdef real total
    cdef ptrdiff_t row, column, begin = 0, tap, i
    while begin + LANES <= count:
        _weigh_lanes(weights + begin, plane, rows + begin, stretched, kernel, factor, LANES, output + begin)
        begin += LANES
    if count < FEW_LANES:
        for i in range(begin, count):
            total = 0
            for row in range(kernel):
                for column in range(kernel):
                    tap = (row * kernel + column) * plane + i
                    total += weights[tap] * rows[row * stretched + column * factor + i]
            output[i] = total
        return
    while begin < count:
        begin = min(begin, count - FEW_LANES)  # the last ones may be computed twice
        _weigh_lanes(weights + begin, plane, rows + begin, stretched, kernel, factor, FEW_LANES, output + begin)
        begin += FEW_LANES


cdef void _rows(const mmk_call *call, const real *features, const real *masks, real *output, real *rows, int64_t begin,
                int64_t end) noexcept nogil:
    """Enlarges rows [begin, end) of the input, counted through all images."""
    cdef _Sizes s = _sizes(call)
    cdef int64_t taps = s.kernel * s.kernel, unit, image, y, channel, group, row, source, i
    cdef const real *plane
    for unit in range(begin, end):
        image = unit // s.height
        y = unit % s.height
        for channel in range(s.channels):
            plane = features + (image * s.channels + channel) * s.height * s.width
            for row in range(s.kernel):
                source = y + row - s.kernel // 2
                _stretch(&s, plane + source * s.width if 0 <= source < s.height else NULL, rows + row * s.stretched)
            group = image * s.groups + channel // (s.channels // s.groups)
            for i in range(y * s.factor, (y + 1) * s.factor):
                _weigh(masks + group * taps * s.plane + i * s.output_width, s.plane, rows, s.stretched, s.kernel,
                       s.factor, s.output_width, output + (image * s.channels + channel) * s.plane + i * s.output_width)


cdef public int mmk_carafe_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *x = &call.inputs[FEATURES]
    cdef mmk_tensor *masks = &call.inputs[MASKS]
    cdef int64_t kernel = call.attributes[KERNEL_SIZE].i, groups = call.attributes[GROUP_SIZE].i
    cdef int64_t factor = call.attributes[SCALE_FACTOR].i
    cdef int64_t[4] shape
    cdef _Sizes s
    if (mmk_check_shape(call, FEATURES, "features", "[N, C, H, W]")
            or mmk_check_shape(call, MASKS, "masks", "[N, M, OH, OW]")):
        return -1
    if kernel < 1 or kernel % 2 == 0 or kernel > MAX_KERNEL_SIZE:
        return mmk_fail(call, "kernel_size must be odd and from 1 to %d, got %lld", <int>MAX_KERNEL_SIZE,
                        <long long>kernel)
    if groups < 1 or x.shape[1] % groups:
        return mmk_fail(call, "group_size must divide C = %lld, got %lld", <long long>x.shape[1], <long long>groups)
    if factor < 1 or factor > MAX_SCALE_FACTOR:
        return mmk_fail(call, "scale_factor must be from 1 to %d, got %lld", <int>MAX_SCALE_FACTOR,
                        <long long>factor)
    if (masks.shape[1] // kernel // kernel != groups or masks.shape[1] % (kernel * kernel)
            or masks.shape[2] // factor != x.shape[2] or masks.shape[3] // factor != x.shape[3]
            or masks.shape[2] % factor or masks.shape[3] % factor):
        return mmk_fail(call, "masks must be [N, group_size*kernel_size**2, H*scale_factor, W*scale_factor], got "
                        "[%lld, %lld, %lld, %lld] for features [%lld, %lld, %lld, %lld]", <long long>masks.shape[0],
                        <long long>masks.shape[1], <long long>masks.shape[2], <long long>masks.shape[3],
                        <long long>x.shape[0], <long long>x.shape[1], <long long>x.shape[2], <long long>x.shape[3])
    shape[0] = x.shape[0]
    shape[1] = x.shape[1]
    shape[2] = masks.shape[2]
    shape[3] = masks.shape[3]
    if mmk_set_output(call, 0, x.type, 4, shape):
        return -1
    if call.outputs[0].size:
        s = _sizes(call)
        mmk_add_phase(call, x.shape[0] * s.height,
                      1e-3 * WEIGH * kernel * kernel * factor * s.output_width * s.channels)
        call.worker_scratch_size[0] = s.stretched * kernel * element_size(x.type)
    return 0


cdef public void mmk_carafe_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    cdef const void *features = call.inputs[FEATURES].data
    cdef const void *masks = call.inputs[MASKS].data
    cdef void *output = call.outputs[0].data
    if call.inputs[FEATURES].type == MMK_FLOAT32:
        _rows(call, <const float *>features, <const float *>masks, <float *>output, <float *>scratch, begin, end)
    else:
        _rows(call, <const double *>features, <const double *>masks, <double *>output, <double *>scratch, begin, end)
