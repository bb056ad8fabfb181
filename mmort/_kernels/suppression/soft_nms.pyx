"""soft_nms: suppression that lowers the scores of overlapping boxes (Bodla et al. 2017), in MMCV's order of events.

Of the remaining boxes, the one with the highest score is emitted, the scores of the others decay by their overlap with
it, and boxes that fall below `min_score` are dropped.  Boxes move as in MMCV's kernel (the emitted box is swapped with
the first remaining one, and a dropped box is replaced by the last), which decides among equal scores.

Of many boxes, only those that overlap the emitted one are visited; a grid finds them (soft_nms_moving.pxd).  Results
are the same as if all pairs were compared.
"""
from libc.stdint cimport int32_t, int64_t

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS, intersection, iou_of, pack_box, plane_intersection
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.soft_nms_decay cimport GAUSSIAN, LINEAR, NAIVE, Rule, gaussian_factor
from mmort._kernels.suppression.soft_nms_grid cimport choose_cells
from mmort._kernels.suppression.soft_nms_moving cimport (BLOCK, LANES, SCORE, Moving, find_largest, moving,
                                                         suppress_by_grid)
from mmort._kernels.suppression.suppression cimport check_compared, check_count, may_continue

cdef enum:
    IOU_THRESHOLD  # attributes
    SIGMA
    MIN_SCORE
    METHOD
    OFFSET

cdef enum:
    PLANES = BOX_NUMBERS + 1  # with the scores

cdef enum:  # fitted to 300 scenes of benchmarks/scenes.py, each made in both ways
    SETTLING = 4  # boxes emitted first, by which a crowd goes away
    PROBES = 4  # boxes emitted then, whose overlaps tell whether a grid pays
    FLOAT_MIN_BOXES = 420  # from which on it pays
    DOUBLE_MIN_BOXES = 300
    FLOAT_BOXES_PER_HIT = 6  # so many more if a box overlaps one more
    DOUBLE_BOXES_PER_HIT = 4
    NAIVE_BOXES_PER_DECAY = 150  # and if the score of one more decays: the fewer boxes remain, the less a grid pays
    LINEAR_BOXES_PER_DECAY = 20  # both for float32, and half as many for float64

cdef enum:  # by the gaussian method, fitted to 600 such scenes, each made in both ways
    GAUSSIAN_MIN_BOXES = 260  # few are dropped
    GAUSSIAN_PROBES = 32  # further boxes whose overlaps are counted: large ones have many more than small ones
    FLOAT_BOXES_PER_GAUSSIAN_HIT = 4  # beyond the first of a vector, as exponentials are computed for whole vectors
    DOUBLE_BOXES_PER_TWO_GAUSSIAN_HITS = 3

cdef enum:  # picoseconds per pair of boxes
    DECAY_COST = 1000  # soft_nms, uniform, 1000 boxes, linear takes less


cdef struct _Workspace:
    void *planes
    int64_t *indices  # of the boxes in the order of the planes, emitted ones first; the second result
    void *detections  # the first
    void *suppression
    size_t size


cdef _Workspace _workspace(const mmk_call *call) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, n = call.inputs[0].shape[0]
    cdef size_t width = element_size(call.inputs[0].type)
    w.planes = take(&address, PLANES * n * width)
    w.indices = <int64_t *>take(&address, n * sizeof(int64_t))
    w.detections = take(&address, 5 * n * width)
    w.suppression = take(&address, mmk_soft_suppress_size(call.inputs[0].type, n))
    w.size = address - <size_t>call.scratch
    return w


cdef simd_void _decay(real *planes, ptrdiff_t stride, ptrdiff_t box, ptrdiff_t count, real threshold, real offset,
                      real min_score, bint linear, bint *any_below) noexcept nogil:
    """Lowers the scores after position `box`, by the naive or linear method, and finds if one is below `min_score`."""
    cdef const real *x1 = planes
    cdef const real *y1 = planes + stride
    cdef const real *x2 = planes + 2 * stride
    cdef const real *y2 = planes + 3 * stride
    cdef const real *area = planes + 4 * stride
    cdef real *score = planes + SCORE * stride
    # variables, because gcc cannot rule out that writing a score changes the box
    cdef real box_x1 = x1[box], box_y1 = y1[box], box_x2 = x2[box], box_y2 = y2[box], box_area = area[box]
    cdef real common, iou
    cdef int32_t is_below = 0
    cdef int64_t is_below_double = 0  # as wide as a score, so that vectors need no conversion
    cdef ptrdiff_t i
    for i in range(box + 1, count):
        common = intersection(box_x1, box_y1, box_x2, box_y2, x1[i], y1[i], x2[i], y2[i], offset)
        iou = iou_of(common, box_area, area[i])
        score[i] *= (1 - iou if linear else <real>0) if iou >= threshold else <real>1
        if sizeof(real) > sizeof(float):
            is_below_double |= score[i] < min_score
        else:
            is_below |= score[i] < min_score
    any_below[0] = is_below != 0 or is_below_double != 0


cdef simd_void _decay_gaussian(real *planes, ptrdiff_t stride, ptrdiff_t box, ptrdiff_t count, real sigma, real offset,
                               real min_score, bint *any_below) noexcept nogil:
    """Lowers the scores after position `box`, by the gaussian method, and finds if one is below `min_score`."""
    cdef const real *x1 = planes
    cdef const real *y1 = planes + stride
    cdef const real *x2 = planes + 2 * stride
    cdef const real *y2 = planes + 3 * stride
    cdef const real *area = planes + 4 * stride
    cdef real *score = planes + SCORE * stride
    cdef real box_x1 = x1[box], box_y1 = y1[box], box_x2 = x2[box], box_y2 = y2[box], box_area = area[box]
    cdef real common
    cdef real[BLOCK] factors
    cdef int32_t is_below = 0, is_lowered
    cdef ptrdiff_t i, lane, begin = box + 1, size
    while begin < count:
        size = min(<ptrdiff_t>BLOCK, count - begin)
        for i in range(size):
            common = intersection(box_x1, box_y1, box_x2, box_y2, x1[begin + i], y1[begin + i], x2[begin + i],
                                  y2[begin + i], offset)
            factors[i] = iou_of(common, box_area, area[begin + i])
        for i in range(size, min(size + LANES, <ptrdiff_t>BLOCK)):
            factors[i] = 0
        i = 0
        while i < size:
            is_lowered = sigma == 0
            for lane in range(LANES):
                is_lowered |= factors[i + lane] != 0
            if is_lowered:
                for lane in range(LANES):
                    factors[i + lane] = gaussian_factor(factors[i + lane], sigma)
            else:  # exp(-0), as of most boxes
                for lane in range(LANES):
                    factors[i + lane] = 1
            i += LANES
        for i in range(size):
            score[begin + i] *= factors[i]
            is_below |= score[begin + i] < min_score
        begin += BLOCK
    any_below[0] = is_below


cdef inline void _move(real *planes, int64_t *indices, ptrdiff_t stride, ptrdiff_t source,
                       ptrdiff_t target) noexcept nogil:
    cdef ptrdiff_t k
    for k in range(PLANES):
        planes[k * stride + target] = planes[k * stride + source]
    indices[target] = indices[source]


cdef inline void _swap(real *planes, int64_t *indices, ptrdiff_t stride, ptrdiff_t a, ptrdiff_t b) noexcept nogil:
    cdef ptrdiff_t k
    cdef real number
    cdef int64_t index = indices[a]
    for k in range(PLANES):
        number = planes[k * stride + a]
        planes[k * stride + a] = planes[k * stride + b]
        planes[k * stride + b] = number
    indices[a] = indices[b]
    indices[b] = index


cdef ptrdiff_t _suppress_by_pairs(mmk_call *call, real *planes, int64_t *indices, ptrdiff_t stride, ptrdiff_t begin,
                                  ptrdiff_t end, int64_t *count, const Rule *rule) noexcept nogil:
    """Emits boxes to the positions [begin, end), or until none remains; returns the position where that ended."""
    cdef ptrdiff_t i = begin, j, largest = 0
    cdef int64_t comparisons = 0, uncounted = 0
    cdef real *score = planes + SCORE * stride
    cdef real offset = <real>rule.offset, min_score = <real>rule.min_score, value
    cdef bint any_below
    while i < min(end, count[0]):
        uncounted += count[0] - i
        if not may_continue(call, &comparisons, &uncounted, stride):
            return i
        if score[i] == score[i]:
            find_largest(score, i, count[0], &largest, &value)
        else:
            largest = i  # NaN
        if largest != i:
            _swap(planes, indices, stride, i, largest)
        if rule.method == GAUSSIAN:
            _decay_gaussian(planes, stride, i, count[0], <real>rule.sigma, offset, min_score, &any_below)
        else:
            _decay(planes, stride, i, count[0], <real>rule.iou_threshold, offset, min_score, rule.method == LINEAR,
                   &any_below)
        i += 1
        j = i if any_below else count[0]
        while j < count[0]:
            if score[j] < min_score:  # the last box that is not dropped takes its position
                count[0] -= 1
                while j < count[0] and score[count[0]] < min_score:
                    count[0] -= 1
                if j < count[0]:
                    _move(planes, indices, stride, count[0], j)
            j += 1
    return i


cdef simd_void _count_overlaps(const real *planes, ptrdiff_t stride, ptrdiff_t begin, ptrdiff_t end, ptrdiff_t box,
                               real offset, real threshold, int64_t *hits, int64_t *vectors,
                               int64_t *decays) noexcept nogil:
    """Counts the boxes of positions [begin, end) that overlap a box, vectors that have any, and those that decay."""
    cdef const real *area = planes + 4 * stride
    cdef int32_t overlapping = 0, decaying = 0, overlaps, is_hit
    cdef real common
    cdef ptrdiff_t i = begin, k
    while i < end:
        is_hit = 0
        for k in range(i, i + LANES):  # the last numbers may be those of the next plane
            common = plane_intersection(planes, stride, box, k, offset)
            overlaps = (common > 0) & (k < end)
            overlapping += overlaps
            is_hit |= overlaps
            decaying += (iou_of(common, area[box], area[k]) >= threshold) & (k < end)
        vectors[0] += is_hit
        i += LANES
    hits[0] += overlapping
    decays[0] += decaying


cdef bint _gaussian_grid_pays(const real *planes, ptrdiff_t stride, ptrdiff_t begin, ptrdiff_t end,
                              real offset) noexcept nogil:
    """Returns whether a grid is faster for the boxes of positions [begin, end), judged by some."""
    cdef int64_t boxes = GAUSSIAN_PROBES * (end - begin - GAUSSIAN_MIN_BOXES), hits = 0, vectors = 0, decays = 0
    cdef ptrdiff_t i
    if boxes <= 0:
        return False
    for i in range(GAUSSIAN_PROBES):
        _count_overlaps(planes, stride, begin, end, begin + (end - begin) * i // GAUSSIAN_PROBES, offset, <real>0,
                        &hits, &vectors, &decays)
    hits -= GAUSSIAN_PROBES  # each meets itself
    if sizeof(real) == sizeof(float):
        return boxes > FLOAT_BOXES_PER_GAUSSIAN_HIT * (hits - vectors)
    return 2 * boxes > DOUBLE_BOXES_PER_TWO_GAUSSIAN_HITS * hits


cdef bint _grid_pays(bint is_float, int64_t method, int64_t boxes, int64_t hits, int64_t decays) noexcept nogil:
    """Returns whether a grid is faster for so many boxes, by sums over the probes."""
    cdef int64_t per_decay = NAIVE_BOXES_PER_DECAY if method == NAIVE else LINEAR_BOXES_PER_DECAY
    if is_float:
        return PROBES * (boxes - FLOAT_MIN_BOXES) > FLOAT_BOXES_PER_HIT * hits + per_decay * decays
    return PROBES * (boxes - DOUBLE_MIN_BOXES) > DOUBLE_BOXES_PER_HIT * hits + per_decay // 2 * decays


cdef int64_t _suppress(mmk_call *call, int type, real *planes, int64_t *indices, int64_t count, const Rule *rule,
                       void *scratch) noexcept nogil:
    """Moves the scores and indices of the emitted boxes to the front; returns their number."""
    cdef Moving m
    cdef ptrdiff_t stride = count, emitted = 0, i
    cdef int64_t before, hits = 0, vectors = 0, decays = 0
    cdef bint is_float = sizeof(real) == sizeof(float), grid_pays
    cdef int64_t min_boxes = FLOAT_MIN_BOXES if is_float else DOUBLE_MIN_BOXES
    cdef bint only_overlap_decays = rule.sigma != 0 if rule.method == GAUSSIAN else not rule.iou_threshold <= 0
    if rule.method == GAUSSIAN:
        min_boxes = GAUSSIAN_MIN_BOXES
    if stride >= min_boxes and only_overlap_decays:
        # Crowds of boxes suppress each other in few rounds, and nearly all pairs overlap.
        for i in range(SETTLING + PROBES):
            before = count
            emitted = _suppress_by_pairs(call, planes, indices, stride, i, i + 1, &count, rule)
            if emitted <= i:
                return count
            if i >= SETTLING and rule.method != GAUSSIAN:
                decays += before - count  # dropped
                _count_overlaps(planes, stride, emitted, count, i, <real>rule.offset, <real>rule.iou_threshold, &hits,
                                &vectors, &decays)
        if rule.method == GAUSSIAN:
            grid_pays = _gaussian_grid_pays(planes, stride, emitted, count, <real>rule.offset)
        else:
            grid_pays = _grid_pays(is_float, rule.method, count - emitted, hits, decays)
        if grid_pays:
            m = moving(type, stride, scratch)
            m.grid.begin = emitted
            m.grid.end = count
            if choose_cells(&m.grid, planes, <real>rule.offset):
                suppress_by_grid(call, planes, indices, &count, rule, &m)
                return count
    if check_compared(call, count) == 0:
        _suppress_by_pairs(call, planes, indices, stride, emitted, count, &count, rule)
    return count


cdef public size_t mmk_soft_suppress_size(int type, size_t count) noexcept nogil:
    return moving(type, count, NULL).size


cdef public int64_t mmk_soft_suppress(mmk_call *call, int type, void *planes, int64_t *indices, int64_t count,
                                      double threshold, double sigma, double min_score, int64_t method, double offset,
                                      void *scratch) noexcept nogil:
    cdef Rule rule
    rule.iou_threshold = threshold
    rule.sigma = sigma
    rule.min_score = min_score
    rule.offset = offset
    rule.method = method
    if type == MMK_FLOAT32:
        count = _suppress(call, type, <float *>planes, indices, count, &rule, scratch)
    else:
        count = _suppress(call, type, <double *>planes, indices, count, &rule, scratch)
    return -1 if mmk_is_stopped(call) else count


cdef void _soft_nms(mmk_call *call, const real *boxes, const real *scores) noexcept nogil:
    cdef _Workspace w = _workspace(call)
    cdef real offset = <real>call.attributes[OFFSET].i
    cdef ptrdiff_t stride = call.inputs[0].shape[0], i, k
    cdef int64_t[2] shape
    cdef real *planes = <real *>w.planes
    cdef real *detections = <real *>w.detections
    for i in range(stride):
        pack_box(boxes + 4 * i, offset, planes, stride, i)
        planes[SCORE * stride + i] = scores[i]
        w.indices[i] = i
    shape[0] = mmk_soft_suppress(call, call.inputs[0].type, planes, w.indices, stride, call.attributes[IOU_THRESHOLD].f,
                                 call.attributes[SIGMA].f, call.attributes[MIN_SCORE].f, call.attributes[METHOD].i,
                                 offset, w.suppression)
    shape[1] = 5
    if shape[0] < 0:
        return
    for i in range(shape[0]):
        for k in range(4):
            detections[5 * i + k] = boxes[4 * w.indices[i] + k]
        detections[5 * i + 4] = planes[SCORE * stride + i]
    mmk_set_output(call, 0, call.inputs[0].type, 2, shape)
    mmk_set_output(call, 1, MMK_INT64, 1, shape)
    call.outputs[0].data = detections
    call.outputs[1].data = w.indices


cdef public int mmk_soft_nms_prepare(mmk_call *call) noexcept nogil:
    cdef int64_t method = call.attributes[METHOD].i, count
    if mmk_check_shape(call, 0, "boxes", "[N, 4]") or mmk_check_shape(call, 1, "scores", "[N]"):
        return -1
    if method < NAIVE or method > GAUSSIAN:
        return mmk_fail(call, "method must be 0 (naive), 1 (linear) or 2 (gaussian), got %lld", <long long>method)
    count = call.inputs[0].shape[0]
    if check_count(call, count):
        return -1
    call.late_outputs = True
    call.scratch_size = _workspace(call).size
    mmk_add_phase(call, 1, 1e-3 * DECAY_COST * count * count)
    return 0


cdef public void mmk_soft_nms_run(mmk_call *call, int phase, int64_t begin, int64_t end, void *scratch) noexcept nogil:
    if call.inputs[0].type == MMK_FLOAT32:
        _soft_nms(call, <const float *>call.inputs[0].data, <const float *>call.inputs[1].data)
    else:
        _soft_nms(call, <const double *>call.inputs[0].data, <const double *>call.inputs[1].data)
