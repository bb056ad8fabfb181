"""filter_scores: class scores of a batch without all but the best of each image.

The lowest score that stays is found by its digits, the highest first: after each, only the scores with that digit are
left.  This takes time proportional to their number, whatever they are.
"""
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.shared.sort_keys cimport key_of_double, key_of_float
from mmort._kernels.shared.workspace cimport element_size

cdef enum:
    SCORE_THRESHOLD  # attributes
    NMS_PRE

cdef enum:
    DIGIT_BITS = 11
    BUCKETS = 2048  # 2 ** DIGIT_BITS

cdef enum:  # picoseconds per score; portable.py, 6400 boxes, 80 classes
    FILTER = 1500


cdef inline int64_t _digit(real score, int shift) noexcept nogil:
    """Returns DIGIT_BITS bits of the key of a score, which is lower the higher the score is."""
    cdef uint64_t key
    if real is float:
        key = key_of_float(score)
    else:
        key = key_of_double(score)
    return (key >> shift) & (BUCKETS - 1)


cdef real _lowest_of_best(real *scores, int64_t count, int64_t best) noexcept nogil:
    """Returns the lowest of the `best` highest scores, whose number is at least `best`; overwrites all of them."""
    cdef int64_t[BUCKETS] sizes
    cdef int64_t bucket, kept, i
    cdef int shift = (sizeof(real) * 8 // DIGIT_BITS) * DIGIT_BITS
    cdef real score
    while shift >= 0 and count > 1:
        memset(sizes, 0, BUCKETS * sizeof(int64_t))
        for i in range(count):
            sizes[_digit(scores[i], shift)] += 1
        bucket = 0
        while best > sizes[bucket]:
            best -= sizes[bucket]
            bucket += 1
        kept = 0
        for i in range(count):
            score = scores[i]
            scores[kept] = score
            kept += _digit(score, shift) == bucket
        count = kept
        shift -= DIGIT_BITS
    return scores[0]


cdef simd_void _count(const real *scores, int64_t count, real threshold, int64_t *above) noexcept nogil:
    """Counts the scores above the threshold."""
    cdef int64_t total = 0, i
    for i in range(count):
        total += scores[i] > threshold
    above[0] = total


cdef simd_void _copy(const real *scores, int64_t count, real threshold, real lowest, real *output) noexcept nogil:
    """Copies the scores above the threshold that are not below `lowest`, with 0 for all others."""
    cdef int64_t i
    for i in range(count):
        output[i] = scores[i] if (scores[i] > threshold) & (scores[i] >= lowest) else 0


cdef void _filter(const mmk_call *call, const real *scores, real *output, real *spare, int64_t begin,
                  int64_t end) noexcept nogil:
    """Filters the scores of images [begin, end)."""
    cdef int64_t count = call.inputs[0].shape[1] * call.inputs[0].shape[2], best = call.attributes[NMS_PRE].i
    cdef int64_t image, above, i
    cdef real threshold = <real>call.attributes[SCORE_THRESHOLD].f, lowest
    cdef const real *image_scores
    for image in range(begin, end):
        image_scores = scores + image * count
        lowest = threshold
        _count(image_scores, count, threshold, &above)
        if 0 < best < above:
            above = 0
            for i in range(count):  # one more than are above may be written
                spare[above] = image_scores[i]
                above += image_scores[i] > threshold
            if best < above:  # else another thread has written scores meanwhile
                lowest = _lowest_of_best(spare, above, best)
        _copy(image_scores, count, threshold, lowest, output + image * count)


cdef public int mmk_filter_scores_prepare(mmk_call *call) noexcept nogil:
    cdef mmk_tensor *scores = &call.inputs[0]
    if mmk_check_shape(call, 0, "scores", "[B, N, C]"):
        return -1
    if mmk_set_output(call, 0, scores.type, 3, scores.shape):
        return -1
    if scores.size:
        mmk_add_phase(call, scores.shape[0], 1e-3 * FILTER * scores.shape[1] * scores.shape[2])
        call.worker_scratch_size[0] = (scores.shape[1] * scores.shape[2] + 1) * element_size(scores.type)
    return 0


cdef public void mmk_filter_scores_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                       void *scratch) noexcept nogil:
    cdef const void *scores = call.inputs[0].data
    cdef void *output = call.outputs[0].data
    if call.inputs[0].type == MMK_FLOAT32:
        _filter(call, <const float *>scores, <float *>output, <float *>scratch, begin, end)
    else:
        _filter(call, <const double *>scores, <double *>output, <double *>scratch, begin, end)
