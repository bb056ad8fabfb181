"""multiclass_nms: the post-processing of a detector's boxes and class scores, for a batch.

For each image and class: scores above the threshold, the best `nms_pre` of them, suppression; then the best of all
classes.  Classes are read a block at a time, so that each cache line of the scores is read once.

A candidate is a box with one of its classes, numbered box * C + class.  Candidates of a group suppress each other: a
group is a class of an image, or the whole image if suppression is class-agnostic.  The file is one pipeline over one
workspace, from scores to rows; parts of it would share all structures, so it is not split.
"""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memset

from element_types cimport real
from mmk cimport *
from mmort._kernels.boxes.boxes cimport BOX_NUMBERS, pack_box
from mmort._kernels.shared.kernels cimport (mmk_item, mmk_order, mmk_soft_suppress, mmk_soft_suppress_size, mmk_sort,
                                            mmk_suppress, mmk_suppress_size)
from mmort._kernels.shared.workspace cimport element_size, take
from mmort._kernels.suppression.suppression cimport check_count, check_threshold

cdef enum:
    BOXES  # inputs
    SCORES

cdef enum:
    SCORE_THRESHOLD  # attributes
    IOU_THRESHOLD
    MAX_PER_IMAGE
    NMS_PRE
    CLASS_AGNOSTIC
    METHOD
    SIGMA
    MIN_SCORE
    OFFSET

cdef enum:
    GREEDY  # METHOD; then the methods of soft_nms, plus 1
    NAIVE
    LINEAR
    GAUSSIAN

cdef enum:
    SUPPRESS  # phases
    MERGE
    COLLECT

cdef enum:
    BLOCK = 16  # classes: a cache line of float32 scores
    SOFT_PLANES = BOX_NUMBERS + 1  # with the score

cdef enum:  # picoseconds; multiclass_nms, 10000 boxes, 80 classes
    SUPPRESS_COST = 50000  # per box and class; a tenth if few scores are above the threshold
    MERGE_COST = 30000  # per candidate
    PAD_COST = 20000  # per row; multiclass_nms, 1 box, 2e7 rows: most of it is new memory


cdef struct _Sizes:
    int64_t images, boxes, classes
    int64_t blocks    # of classes, of an image
    int64_t groups    # of an image
    int64_t max_pool  # candidates of a group
    int64_t max_kept  # of a group
    int64_t rows      # of an image in the output; 0: as many as the image with the most detections has


cdef struct _Workspace:
    int64_t *counts       # of kept candidates, by image and group
    int64_t *candidates   # the kept ones, by image, group and descending score
    void *scores          # of these
    int64_t *totals       # by image
    mmk_item *items       # by image
    mmk_item *spare
    void *sorted_scores
    int64_t *sorted       # candidates by image and descending score
    void *detections      # the results, if their number is known only afterwards
    int64_t *labels
    int64_t *indices
    size_t size


cdef _Sizes _sizes(const mmk_call *call) noexcept nogil:
    cdef _Sizes s
    cdef const mmk_tensor *scores = &call.inputs[SCORES]
    cdef int64_t nms_pre = call.attributes[NMS_PRE].i, max_per_image = call.attributes[MAX_PER_IMAGE].i
    s.images = scores.shape[0]
    s.boxes = scores.shape[1]
    s.classes = scores.shape[2]
    s.blocks = (s.classes + BLOCK - 1) // BLOCK
    s.max_pool = min(s.boxes, nms_pre) if nms_pre > 0 else s.boxes
    s.groups = s.classes
    if call.attributes[CLASS_AGNOSTIC].i:
        s.max_pool *= s.classes
        s.groups = 1
    s.max_kept = min(s.max_pool, max_per_image) if max_per_image > 0 else s.max_pool
    s.rows = max(max_per_image, 0)
    return s


cdef _Workspace _workspace(const mmk_call *call, const _Sizes *s) noexcept nogil:
    cdef _Workspace w
    cdef size_t address = <size_t>call.scratch, lists = s.images * s.groups, kept = lists * s.max_kept
    cdef size_t rows = s.images * s.groups * s.max_kept if call.late_outputs else 0
    cdef size_t width = element_size(call.inputs[SCORES].type)
    w.counts = <int64_t *>take(&address, lists * sizeof(int64_t))
    w.candidates = <int64_t *>take(&address, kept * sizeof(int64_t))
    w.scores = take(&address, kept * width)
    w.totals = <int64_t *>take(&address, s.images * sizeof(int64_t))
    w.items = <mmk_item *>take(&address, kept * sizeof(mmk_item))
    w.spare = <mmk_item *>take(&address, kept * sizeof(mmk_item))
    w.sorted_scores = take(&address, kept * width)
    w.sorted = <int64_t *>take(&address, kept * sizeof(int64_t))
    w.detections = take(&address, rows * 5 * width)
    w.labels = <int64_t *>take(&address, rows * sizeof(int64_t))
    w.indices = <int64_t *>take(&address, rows * sizeof(int64_t))
    w.size = address - <size_t>call.scratch
    return w


cdef struct _Pool:
    # The candidates of a group during suppression.
    int64_t *candidates
    void *scores
    mmk_item *items
    mmk_item *spare
    int64_t *boxes        # indices of their boxes
    int64_t *ordered      # candidates by descending score
    int32_t *flags
    void *suppression
    void *soft_suppression
    int32_t *listed       # boxes with scores above the threshold, for each class of a block
    size_t size


cdef _Pool _pool(const mmk_call *call, const _Sizes *s, const void *scratch) noexcept nogil:
    # all of a class join the pool before the best `nms_pre` are selected
    cdef _Pool pool
    cdef size_t address = <size_t>scratch, n = s.max_pool + s.boxes, width = element_size(call.inputs[SCORES].type)
    pool.candidates = <int64_t *>take(&address, n * sizeof(int64_t))
    pool.scores = take(&address, n * width)
    pool.items = <mmk_item *>take(&address, n * sizeof(mmk_item))
    pool.spare = <mmk_item *>take(&address, n * sizeof(mmk_item))
    pool.boxes = <int64_t *>take(&address, n * sizeof(int64_t))
    pool.ordered = <int64_t *>take(&address, n * sizeof(int64_t))
    pool.flags = <int32_t *>take(&address, n * sizeof(int32_t))
    pool.suppression = take(&address, n * max(mmk_suppress_size(call.inputs[SCORES].type), SOFT_PLANES * width))
    if call.attributes[METHOD].i >= NAIVE:
        pool.soft_suppression = take(&address, mmk_soft_suppress_size(call.inputs[SCORES].type, n))
    pool.listed = <int32_t *>take(&address, s.boxes * BLOCK * sizeof(int32_t))
    pool.size = address - <size_t>scratch
    return pool


cdef inline int64_t _box_index(const mmk_call *call, int64_t classes, int64_t candidate) noexcept nogil:
    """Returns the index of the candidate's box among the image's boxes, of which there may be one for each class."""
    return candidate if call.inputs[BOXES].rank == 4 else candidate // classes


cdef void _sort_pool(mmk_call *call, const _Pool *pool, int64_t count, real *scores) noexcept nogil:
    """Sorts the pool's candidates by box and class, which decides among equal scores."""
    cdef real *sorted_scores = <real *>pool.suppression
    cdef mmk_item *items
    cdef int64_t i
    for i in range(count):
        pool.items[i].key = pool.candidates[i]
        pool.items[i].index = i
    items = mmk_sort(call, pool.items, pool.spare, count)
    for i in range(count):
        pool.candidates[i] = items[i].key
        sorted_scores[i] = scores[items[i].index]
    memcpy(scores, sorted_scores, count * sizeof(real))


cdef void _suppress(mmk_call *call, const _Sizes *s, const _Workspace *w, const _Pool *pool, int64_t image,
                    int64_t group, int64_t count, const real *boxes, real *scores) noexcept nogil:
    """Suppresses among the pool's first `count` candidates, and stores those kept as the group's."""
    cdef int type = call.inputs[SCORES].type
    cdef int64_t list = image * s.groups + group, kept = 0, i, left
    cdef int64_t *kept_candidates = w.candidates + list * s.max_kept
    cdef real *kept_scores = <real *>w.scores + list * s.max_kept
    cdef real *planes = <real *>pool.suppression
    cdef real *soft_scores = planes + BOX_NUMBERS * count
    cdef real offset = <real>call.attributes[OFFSET].i, min_score = <real>call.attributes[MIN_SCORE].f
    cdef mmk_item *items
    w.counts[list] = 0
    if count == 0:  # without boxes there is no scratch memory
        return
    if call.attributes[CLASS_AGNOSTIC].i or call.attributes[NMS_PRE].i > 0:
        _sort_pool(call, pool, count, scores)
    if call.attributes[METHOD].i == GREEDY:
        items = mmk_order(call, scores, type, pool.items, pool.spare, count)
        for i in range(count):
            pool.ordered[i] = pool.candidates[items[i].index]
            pool.boxes[i] = _box_index(call, s.classes, pool.ordered[i])
        if mmk_suppress(call, type, boxes, pool.boxes, count, call.attributes[IOU_THRESHOLD].f,
                        call.attributes[OFFSET].i, s.max_kept, pool.flags, pool.suppression):
            return
        for i in range(count):
            if not pool.flags[i]:
                kept_candidates[kept] = pool.ordered[i]
                kept_scores[kept] = scores[items[i].index]
                kept += 1
    else:
        for i in range(count):
            pack_box(boxes + 4 * _box_index(call, s.classes, pool.candidates[i]), offset, planes, count, i)
            soft_scores[i] = scores[i]
            pool.ordered[i] = pool.candidates[i]
        left = mmk_soft_suppress(call, type, planes, pool.ordered, count, call.attributes[IOU_THRESHOLD].f,
                                 call.attributes[SIGMA].f, call.attributes[MIN_SCORE].f,
                                 call.attributes[METHOD].i - NAIVE, call.attributes[OFFSET].i, pool.soft_suppression)
        if left < 0:
            return
        for i in range(left):
            if i == 0 or soft_scores[i] >= min_score:  # soft_nms keeps the best box even if its score is lower
                pool.candidates[kept] = pool.ordered[i]
                scores[kept] = soft_scores[i]
                kept += 1
        _sort_pool(call, pool, kept, scores)
        items = mmk_order(call, scores, type, pool.items, pool.spare, kept)
        kept = min(kept, s.max_kept)
        for i in range(kept):
            kept_candidates[i] = pool.candidates[items[i].index]
            kept_scores[i] = scores[items[i].index]
    w.counts[list] = kept


cdef int64_t _select(mmk_call *call, const _Sizes *s, const _Pool *pool, const real *scores, int64_t label,
                     const int32_t *listed, int64_t count, int64_t filled) noexcept nogil:
    """Appends the best `nms_pre` candidates of a class to the pool; returns the new size of the pool."""
    cdef int64_t nms_pre = call.attributes[NMS_PRE].i, i
    cdef real *pool_scores = <real *>pool.scores
    cdef mmk_item *items
    for i in range(count):
        pool_scores[filled + i] = scores[listed[i] * s.classes + label]
        pool.candidates[filled + i] = listed[i] * s.classes + label
    if nms_pre <= 0 or count <= nms_pre:
        return filled + count
    items = mmk_order(call, pool_scores + filled, call.inputs[SCORES].type, pool.items, pool.spare, count)
    for i in range(nms_pre):
        pool.candidates[filled + i] = listed[items[i].index] * s.classes + label
    for i in range(nms_pre):
        pool_scores[filled + i] = scores[pool.candidates[filled + i]]
    return filled + nms_pre


cdef void _suppress_block(mmk_call *call, const _Sizes *s, const _Workspace *w, const _Pool *pool, int64_t image,
                          int64_t first, int64_t last, int64_t *filled, const real *all_boxes,
                          const real *all_scores) noexcept nogil:
    """Suppresses within each of the classes [first, last) of an image, or after the last class in all of them."""
    cdef const real *scores = all_scores + image * s.boxes * s.classes
    cdef const real *boxes = all_boxes + image * s.boxes * (s.classes if call.inputs[BOXES].rank == 4 else 1) * 4
    cdef real threshold = <real>call.attributes[SCORE_THRESHOLD].f
    cdef int64_t[BLOCK] counts
    cdef int64_t box, label, width = last - first
    for label in range(width):
        counts[label] = 0
    for box in range(s.boxes):
        for label in range(width):
            if scores[box * s.classes + first + label] > threshold:
                pool.listed[label * s.boxes + counts[label]] = <int32_t>box
                counts[label] += 1
    for label in range(width):
        filled[0] = _select(call, s, pool, scores, first + label, pool.listed + label * s.boxes, counts[label],
                            filled[0])
        if not call.attributes[CLASS_AGNOSTIC].i:
            _suppress(call, s, w, pool, image, first + label, filled[0], boxes, <real *>pool.scores)
            filled[0] = 0
    if call.attributes[CLASS_AGNOSTIC].i and last == s.classes:
        _suppress(call, s, w, pool, image, 0, filled[0], boxes, <real *>pool.scores)


cdef void _suppress_blocks(mmk_call *call, const _Sizes *s, const _Workspace *w, const _Pool *pool,
                           int64_t begin, int64_t end, const real *boxes, const real *scores) noexcept nogil:
    """Processes blocks of classes [begin, end), counted through all images; images [begin, end) if class-agnostic."""
    cdef int64_t unit, block, first_block, last_block, image, filled
    for unit in range(begin, end):
        if call.attributes[CLASS_AGNOSTIC].i:
            image = unit
            first_block = 0
            last_block = s.blocks
            w.counts[image] = 0  # remains 0 if there are no classes
        else:
            image = unit // s.blocks
            first_block = unit % s.blocks
            last_block = first_block + 1
        filled = 0
        for block in range(first_block, last_block):
            _suppress_block(call, s, w, pool, image, block * BLOCK, min((block + 1) * BLOCK, s.classes), &filled,
                            boxes, scores)


cdef void _merge(mmk_call *call, const _Sizes *s, const _Workspace *w, int64_t image, const real *all_scores,
                 real *all_sorted_scores) noexcept nogil:
    """Sorts the kept candidates of an image's groups by descending score and, among equal ones, by box and class.

    Of the groups' best boxes only the image's best may have a score below `min_score`, as MMDetection suppresses all
    groups together.
    """
    cdef int64_t start = image * s.groups * s.max_kept, count = 0, group, i
    cdef int64_t *sorted = w.sorted + start
    cdef const real *scores = all_scores + start
    cdef real *sorted_scores = all_sorted_scores + start
    cdef real min_score = <real>call.attributes[MIN_SCORE].f
    cdef mmk_item *items
    for group in range(s.groups):
        for i in range(group * s.max_kept, group * s.max_kept + w.counts[image * s.groups + group]):
            w.items[start + count].key = w.candidates[start + i]
            w.items[start + count].index = i
            count += 1
    items = mmk_sort(call, w.items + start, w.spare + start, count)
    for i in range(count):
        sorted[i] = items[i].key
        sorted_scores[i] = scores[items[i].index]
    items = mmk_order(call, sorted_scores, call.inputs[SCORES].type, w.items + start, w.spare + start, count)
    # `candidates` and `scores` are no longer needed, and take the result
    for i in range(count):
        w.candidates[start + i] = sorted[items[i].index]
        (<real *>w.scores)[start + i] = sorted_scores[items[i].index]
    if call.attributes[METHOD].i != GREEDY:
        while count > 1 and not (<real *>w.scores)[start + count - 1] >= min_score:
            count -= 1
    w.totals[image] = min(count, s.rows) if s.rows else count


cdef void _pad(mmk_call *call, real *detections, int64_t begin, int64_t end) noexcept nogil:
    """Writes zeros and -1 into rows [begin, end) of the outputs."""
    cdef int64_t *labels = <int64_t *>call.outputs[1].data
    cdef int64_t *indices = <int64_t *>call.outputs[2].data
    memset(detections + 5 * begin, 0, 5 * (end - begin) * sizeof(real))
    memset(labels + begin, 0xFF, (end - begin) * sizeof(int64_t))
    memset(indices + begin, 0xFF, (end - begin) * sizeof(int64_t))


cdef void _collect(mmk_call *call, const _Sizes *s, const _Workspace *w, const real *boxes, const real *scores,
                   int64_t rows, real *detections, int64_t begin, int64_t end) noexcept nogil:
    """Writes rows [begin, end) of all images, which have `rows` each: detections, then padding."""
    cdef int64_t *labels = <int64_t *>call.outputs[1].data
    cdef int64_t *indices = <int64_t *>call.outputs[2].data
    cdef int64_t per_image = s.boxes * (s.classes if call.inputs[BOXES].rank == 4 else 1)
    cdef int64_t row = begin, image, first, last, k, candidate
    cdef const real *box
    while row < end:
        image = row // rows
        first = row - image * rows
        last = min(rows, first + end - row)
        for first in range(first, min(last, w.totals[image])):
            candidate = w.candidates[image * s.groups * s.max_kept + first]
            box = boxes + 4 * (image * per_image + _box_index(call, s.classes, candidate))
            for k in range(4):
                detections[5 * row + k] = box[k]
            detections[5 * row + 4] = scores[image * s.groups * s.max_kept + first]
            labels[row] = candidate % s.classes
            indices[row] = candidate // s.classes
            row += 1
        _pad(call, detections, row, image * rows + last)
        row = image * rows + last


cdef int64_t _point_outputs(mmk_call *call, const _Sizes *s, const _Workspace *w) noexcept nogil:
    """Sets outputs whose size is known only now to the results in the workspace; returns the rows of an image."""
    cdef int64_t rows = 0, image
    cdef int64_t[3] shape
    for image in range(s.images):
        rows = max(rows, w.totals[image])
    shape[0] = s.images
    shape[1] = rows
    shape[2] = 5
    mmk_set_output(call, 0, call.inputs[SCORES].type, 3, shape)
    mmk_set_output(call, 1, MMK_INT64, 2, shape)
    mmk_set_output(call, 2, MMK_INT64, 2, shape)
    call.outputs[0].data = w.detections
    call.outputs[1].data = w.labels
    call.outputs[2].data = w.indices
    return rows


cdef public int mmk_multiclass_nms_prepare(mmk_call *call) noexcept nogil:
    cdef _Sizes s
    cdef int64_t[3] shape
    if mmk_check_shape(call, SCORES, "scores", "[B, N, C]"):
        return -1
    if mmk_check_shape(call, BOXES, "boxes", "[B, N, C, 4]" if call.inputs[BOXES].rank == 4 else "[B, N, 4]"):
        return -1
    if check_threshold(call, "iou_threshold", call.attributes[IOU_THRESHOLD].f):
        return -1
    if call.attributes[METHOD].i < GREEDY or call.attributes[METHOD].i > GAUSSIAN:
        return mmk_fail(call, "method must be 0 (nms) or soft_nms's 1 (naive), 2 (linear) or 3 (gaussian), got %lld",
                        <long long>call.attributes[METHOD].i)
    s = _sizes(call)
    if check_count(call, max(s.max_pool, s.boxes)):
        return -1
    shape[0] = s.images
    shape[1] = s.rows
    shape[2] = 5
    if (mmk_set_output(call, 0, call.inputs[SCORES].type, 3, shape) or mmk_set_output(call, 1, MMK_INT64, 2, shape)
            or mmk_set_output(call, 2, MMK_INT64, 2, shape)):
        return -1
    call.late_outputs = s.rows == 0
    if call.inputs[SCORES].size == 0:
        if call.outputs[1].size:
            mmk_add_phase(call, call.outputs[1].size, 1e-3 * PAD_COST)
        return 0
    call.scratch_size = _workspace(call, &s).size
    mmk_add_phase(call, s.images * (1 if call.attributes[CLASS_AGNOSTIC].i else s.blocks),
                  1e-3 * SUPPRESS_COST * s.boxes * (s.classes if call.attributes[CLASS_AGNOSTIC].i else BLOCK))
    call.worker_scratch_size[SUPPRESS] = _pool(call, &s, NULL).size
    mmk_add_phase(call, s.images, 1e-3 * MERGE_COST * s.groups * s.max_kept)
    mmk_add_phase(call, 1 if call.late_outputs else call.outputs[1].size, 1e-3 * PAD_COST)
    return 0


cdef public void mmk_multiclass_nms_run(mmk_call *call, int phase, int64_t begin, int64_t end,
                                        void *scratch) noexcept nogil:
    cdef _Sizes s = _sizes(call)
    cdef _Workspace w
    cdef const void *boxes = call.inputs[BOXES].data
    cdef const void *scores = call.inputs[SCORES].data
    cdef bint single = call.inputs[SCORES].type == MMK_FLOAT32
    cdef _Pool pool
    cdef int64_t image, rows
    if call.inputs[SCORES].size == 0:
        if single:
            _pad(call, <float *>call.outputs[0].data, begin, end)
        else:
            _pad(call, <double *>call.outputs[0].data, begin, end)
        return
    w = _workspace(call, &s)
    if phase == SUPPRESS:
        pool = _pool(call, &s, scratch)
        if single:
            _suppress_blocks(call, &s, &w, &pool, begin, end, <const float *>boxes, <const float *>scores)
        else:
            _suppress_blocks(call, &s, &w, &pool, begin, end, <const double *>boxes, <const double *>scores)
    elif phase == MERGE:
        for image in range(begin, end):
            if single:
                _merge(call, &s, &w, image, <const float *>w.scores, <float *>w.sorted_scores)
            else:
                _merge(call, &s, &w, image, <const double *>w.scores, <double *>w.sorted_scores)
    else:
        rows = s.rows
        if call.late_outputs:
            rows = _point_outputs(call, &s, &w)
            end = s.images * rows
        if single:
            _collect(call, &s, &w, <const float *>boxes, <const float *>w.scores, rows, <float *>call.outputs[0].data,
                     begin, end)
        else:
            _collect(call, &s, &w, <const double *>boxes, <const double *>w.scores, rows,
                     <double *>call.outputs[0].data, begin, end)
