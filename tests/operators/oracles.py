"""Naive numpy versions of the operators: the definitions, in the written order of rounding, and no concern for speed.

They are written from the operators' contracts, never from a kernel.  Each computes in the dtype of its arrays (float32
or float64) and returns a tuple of arrays, as the public function of the same name does.
"""

import math
from fractions import Fraction

import numpy as np


def larger(a, b):
    """C++'s std::max: the first argument also on ties and NaN."""
    return np.where(a < b, b, a)


def smaller(a, b):
    return np.where(b < a, b, a)


# ---- boxes -----------------------------------------------------------------------------------------------------


def descending(scores):
    """Indices by descending score; equal scores in input order, NaN last."""
    return sorted(range(len(scores)), key=lambda i: (1, 0) if np.isnan(scores[i]) else (0, -float(scores[i])))


def area(boxes, offset):
    return (boxes[..., 2] - boxes[..., 0] + offset) * (boxes[..., 3] - boxes[..., 1] + offset)


def overlap(chosen, others, offset):
    """Area that boxes have in common."""
    zero = others.dtype.type(0)
    width = larger(zero, smaller(chosen[..., 2], others[..., 2]) - larger(chosen[..., 0], others[..., 0]) + offset)
    height = larger(zero, smaller(chosen[..., 3], others[..., 3]) - larger(chosen[..., 1], others[..., 1]) + offset)
    return width * height


def iou(chosen, others, offset):
    """IoU of one box with others; NaN for 0/0."""
    with np.errstate(all="ignore"):
        offset = others.dtype.type(offset)
        shared = overlap(chosen, others, offset)
        return shared / (area(chosen, offset) + area(others, offset) - shared)


def nms(boxes, scores, iou_threshold, offset=0, score_threshold=0, max_num=-1, idxs=None):
    number = boxes.dtype.type
    left = np.array(descending(scores), np.int64)
    if score_threshold > 0:
        left = left[scores[left] > number(score_threshold)]
    kept = []
    while len(left):
        best, left = left[0], left[1:]
        kept.append(best)
        same = True if idxs is None else idxs[left] == idxs[best]
        left = left[~(same & (iou(boxes[best], boxes[left], offset) > number(iou_threshold)))]
    if max_num > 0:
        kept = kept[:max_num]
    indices = np.array(kept, np.int64)
    return np.concatenate([boxes[indices], scores[indices, None]], axis=1), indices


def soft_nms(boxes, scores, iou_threshold=0.3, sigma=0.5, min_score=1e-3, method="linear", offset=0):
    number = boxes.dtype.type
    scores, records = scores.copy(), list(range(len(boxes)))
    dets = []
    i = 0
    while i < len(records):
        best = i
        for j in range(i + 1, len(records)):
            if scores[records[best]] < scores[records[j]]:
                best = j
        records[i], records[best] = records[best], records[i]
        chosen = records[i]
        dets.append([*boxes[chosen], scores[chosen]])
        overlaps = dict(zip(records[i + 1 :], iou(boxes[chosen], boxes[records[i + 1 :]], offset), strict=True))
        q = i + 1
        while q < len(records):
            weight, v = number(1), overlaps[records[q]]
            with np.errstate(all="ignore"):
                if method == "gaussian":
                    weight = number(_exp(-(v * v) / number(sigma)))
                elif v >= number(iou_threshold):
                    weight = number(0) if method == "naive" else number(1) - v
                scores[records[q]] *= weight
            if scores[records[q]] < number(min_score):
                records[q] = records[-1]
                records.pop()
            else:
                q += 1
        i += 1
    return np.array(dets, boxes.dtype).reshape(-1, 5), np.array(records, np.int64)


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def batched_nms(boxes, scores, idxs, nms_cfg, class_agnostic=False):
    """One suppression for each class; the results of all by descending score."""
    options = {"type": "nms", "iou_threshold": np.inf} if nms_cfg is None else dict(nms_cfg)
    suppress = {"nms": nms, "soft_nms": soft_nms}[options.pop("type", "nms")]
    max_num = options.pop("max_num", -1)
    classes = np.zeros_like(idxs) if class_agnostic else idxs
    decayed = {}  # index: row of dets
    for one in sorted(set(classes.tolist())):
        members = np.flatnonzero(classes == one)
        dets, kept = suppress(boxes[members], scores[members], **options)
        decayed |= dict(zip(members[kept].tolist(), dets, strict=True))
    kept = np.array(sorted(decayed), np.int64)
    dets = np.array([decayed[i] for i in kept.tolist()], boxes.dtype).reshape(-1, 5)
    order = descending(dets[:, 4])
    if suppress is soft_nms:  # which always returns its best box; here only the best of all classes is
        least = options.get("min_score", 1e-3)
        order = order[:1] + [i for i in order[1:] if not dets[i, 4] < boxes.dtype.type(least)]
    if max_num > 0:
        order = order[:max_num]
    return dets[order], kept[order]


def nms_match(dets, iou_threshold):
    number = dets.dtype.type
    left = np.array(descending(dets[:, 4]), np.int64)
    groups = []
    while len(left):
        best, left = left[0], left[1:]
        suppressed = iou(dets[best], dets[left], 0) >= number(iou_threshold)
        groups.append(np.concatenate([[best], left[suppressed]]))
        left = left[~suppressed]
    return tuple(groups)


def nms_match_pairs(boxes, scores, iou_threshold, score_threshold):
    number = boxes.dtype.type
    rows = []
    for image, one in np.ndindex(scores.shape[:2]):
        values = scores[image, one]
        left = np.array(descending(values), np.int64)
        while len(left):
            best, left = left[0], left[1:]
            chosen, others = boxes[image, best], boxes[image, left]
            with np.errstate(all="ignore"):
                shared = overlap(chosen, others, number(0))
                union = area(chosen, number(0)) + area(others, number(0)) - shared
                ious = (shared.astype(np.float64) / (union.astype(np.float64) + 1e-10)).astype(boxes.dtype)
            suppressed = ious >= iou_threshold.flat[0]
            if values[best] > score_threshold.flat[0]:
                rows += [(image, one, best, other) for other in left[suppressed]]
            left = left[~suppressed]
    return (np.array(rows, np.int64).reshape(-1, 4),)


def multiclass_nms(
    boxes, scores, score_threshold=0.05, iou_threshold=0.5, max_per_image=100, nms_pre=-1, class_agnostic=False,
    method="nms", sigma=0.5, min_score=1e-3, offset=0,
):  # fmt: skip
    number = boxes.dtype.type
    images, _, classes = scores.shape
    found = []
    for image in range(images):
        pools = []
        for one in range(classes):
            values = scores[image, :, one]
            members = np.flatnonzero(values > number(score_threshold))
            if 0 < nms_pre < len(members):
                members = np.sort(members[descending(values[members])[:nms_pre]])
            pools.append([(int(box), one) for box in members])
        if class_agnostic:
            pools = [sorted(candidate for pool in pools for candidate in pool)]
        rows = []  # (score, box, class, row)
        for pool in pools:
            of = [boxes[image, n] if boxes.ndim == 3 else boxes[image, n, one] for n, one in pool]
            of = np.array(of, boxes.dtype).reshape(-1, 4)
            values = np.array([scores[image, n, one] for n, one in pool], boxes.dtype)
            if method == "nms":
                dets, kept = nms(of, values, iou_threshold, offset)
            else:
                dets, kept = soft_nms(of, values, iou_threshold, sigma, min_score, method[len("soft_nms_") :], offset)
                left = dets[:, 4] >= number(min_score)
                dets, kept = dets[left], kept[left]
            rows += [(float(det[4]), *pool[i], det) for det, i in zip(dets, kept, strict=True)]
        rows.sort(key=lambda row: (-row[0], row[1], row[2]))
        found.append(rows[:max_per_image] if max_per_image > 0 else rows)
    length = max_per_image if max_per_image > 0 else max(map(len, found), default=0)
    dets = np.zeros((images, length, 5), boxes.dtype)
    labels, indices = np.full((2, images, length), -1, np.int64)
    for image, rows in enumerate(found):
        for i, (_, box, one, det) in enumerate(rows):
            dets[image, i], labels[image, i], indices[image, i] = det, one, box
    return dets, labels, indices


def multi_scale_deformable_attention(value, spatial_shapes, level_start_index, sampling_locations, attention_weights):
    number = value.dtype.type
    images, queries, heads, levels, points, _ = sampling_locations.shape
    output = np.zeros((images, queries, heads, value.shape[3]), value.dtype)
    for b, q, m, level, p in np.ndindex(images, queries, heads, levels, points):
        height, width = spatial_shapes[level]
        pixels = value[b, level_start_index[level] :][: height * width, m].reshape(height, width, value.shape[3])
        x, y = sampling_locations[b, q, m, level, p]
        x, y = x * number(width) - number(0.5), y * number(height) - number(0.5)
        if not (-1 < x < width and -1 < y < height):
            continue
        left, top = math.floor(x), math.floor(y)
        for row, column in np.ndindex(2, 2):
            weight = (1 - abs(number(top + row) - y)) * (1 - abs(number(left + column) - x))
            if 0 <= top + row < height and 0 <= left + column < width:
                output[b, q, m] += attention_weights[b, q, m, level, p] * weight * pixels[top + row, left + column]
    return (output.reshape(images, queries, heads * value.shape[3]),)


def box_iou(boxes1, boxes2, mode="iou", aligned=False, offset=0):
    with np.errstate(all="ignore"):
        offset = boxes1.dtype.type(offset)
        if not aligned:
            boxes1, boxes2 = boxes1[:, None], boxes2[None]
        shared = overlap(boxes1, boxes2, offset)
        whole = area(boxes1, offset) + area(boxes2, offset) - shared if mode == "iou" else area(boxes1, offset)
        return (shared / whole,)


# ---- rotated boxes ---------------------------------------------------------------------------------------------


def box_iou_rotated(bboxes1, bboxes2, mode="iou", aligned=False, clockwise=True):
    first, second = ([_Rotated(box, clockwise) for box in boxes] for boxes in (bboxes1, bboxes2))
    if aligned:
        rows = [_rotated_overlap(*pair, mode) for pair in zip(first, second, strict=True)]
        return (np.array(rows, bboxes1.dtype).reshape(len(first)),)
    rows = [[_rotated_overlap(a, b, mode) for b in second] for a in first]
    return (np.array(rows, bboxes1.dtype).reshape(len(first), len(second)),)


class _Rotated:
    """A box in exact arithmetic, but for the sine and cosine of its angle."""

    def __init__(self, box, clockwise):
        x, y, w, h, angle = (float(number) for number in box)
        self.finite = bool(np.isfinite([float(number) for number in box]).all())
        if self.finite:
            self.x, self.y, self.reach = x, y, math.hypot(w, h) / 2
            self.area = max(Fraction(w) * Fraction(h), 0)
            angle = angle if clockwise else -angle
            c, s = Fraction(math.cos(angle)) / 2, Fraction(math.sin(angle)) / 2
            x, y, w, h = (Fraction(number) for number in (x, y, abs(w), abs(h)))
            self.corners = [
                (x + i * c * w - j * s * h, y + i * s * w + j * c * h) for i, j in ((1, 1), (-1, 1), (-1, -1), (1, -1))
            ]


def _rotated_overlap(a, b, mode):
    if not (a.finite and b.finite):
        return math.nan
    if not (a.area and b.area) or math.hypot(a.x - b.x, a.y - b.y) > 1.001 * (a.reach + b.reach):
        return 0
    shared = _area_of_hull(_common_points(a.corners, b.corners))
    return float(shared / (a.area + b.area - shared if mode == "iou" else a.area))


def _cross(o, a, b):
    return (a[0] - o[0]) * (b[1] - o[1]) - (a[1] - o[1]) * (b[0] - o[0])


def _common_points(p, q):
    """The corners of either quadrilateral that lie in the other, and the places where their edges cross."""
    points = []
    for one, other in ((p, q), (q, p)):
        points += [point for point in one if all(_cross(other[i - 1], other[i], point) >= 0 for i in range(4))]
    for i in range(4):
        for j in range(4):
            a, b, c, d = p[i - 1], p[i], q[j - 1], q[j]
            at_a, at_b, at_c, at_d = _cross(c, d, a), _cross(c, d, b), _cross(a, b, c), _cross(a, b, d)
            if at_a != at_b and at_a * at_b <= 0 and at_c * at_d <= 0:
                part = at_a / (at_a - at_b)
                points.append((a[0] + part * (b[0] - a[0]), a[1] + part * (b[1] - a[1])))
    return points


def _area_of_hull(points):
    points = sorted(set(points))
    halves = []
    for line in (points, points[::-1]):
        half = []
        for point in line:
            while len(half) > 1 and _cross(half[-2], half[-1], point) <= 0:
                half.pop()
            half.append(point)
        halves += half[:-1]
    return sum(_cross(halves[0], halves[i], halves[i + 1]) for i in range(1, len(halves) - 1)) / Fraction(2)


def _suppress_rotated(boxes, scores, drops, clockwise=True):
    """Indices of the kept boxes; `drops` says whether an overlap does."""
    number = boxes.dtype.type
    rotated = [_Rotated(box, clockwise) for box in boxes]
    kept = []
    for i in descending(scores):
        if not any(drops(number(_rotated_overlap(rotated[k], rotated[i], "iou"))) for k in kept):
            kept.append(i)
    return kept


def nms_rotated(dets, scores, iou_threshold, labels=None, clockwise=True):
    labels = np.zeros(len(dets), np.int64) if labels is None else np.array(labels)
    kept = []
    for one in set(labels.tolist()):
        members = np.flatnonzero(labels == one)
        kept += members[
            _suppress_rotated(
                dets[members], scores[members], lambda iou: iou >= dets.dtype.type(iou_threshold), clockwise
            )
        ].tolist()
    keep = np.array([i for i in descending(scores) if i in kept], np.int64)
    return np.concatenate([dets[keep], scores[keep, None]], axis=1), keep


def nms_rotated_indices(boxes, scores, iou_threshold, score_threshold):
    number = boxes.dtype.type
    rows = []
    for image in range(len(scores)):
        for one in range(scores.shape[1]):
            kept = _suppress_rotated(boxes[image], scores[image, one], lambda iou: iou > number(iou_threshold))
            rows += [(image, one, i) for i in kept if scores[image, one, i] > number(score_threshold)]
    return (np.array(rows, np.int64).reshape(-1, 3),)


def multiclass_nms_rotated(
    boxes, scores, max_output_boxes_per_class=1000, iou_threshold=0.1, score_threshold=0.05, pre_top_k=-1, keep_top_k=-1
):
    images, count, classes = scores.shape
    detections = []
    for image in range(images):
        best = np.array([max((s for s in row if s == s), default=-np.inf) for row in scores[image]], scores.dtype)
        chosen = sorted(descending(best)[:pre_top_k]) if pre_top_k > 0 else range(count)
        rows = []
        for one in range(classes):
            found = scores[image, list(chosen), one]
            (indices,) = nms_rotated_indices(
                boxes[[image]][:, list(chosen)], found[None, None], iou_threshold, score_threshold
            )
            kept = [chosen[i] for i in indices[:, 2]]
            if max_output_boxes_per_class > 0:
                kept = kept[:max_output_boxes_per_class]
            rows += [([*boxes[image, i], scores[image, i, one]], one) for i in kept]
        rows.sort(key=lambda row: -row[0][5])
        detections.append(rows[:keep_top_k] if keep_top_k > 0 else rows)
    longest = max(map(len, detections), default=0)
    dets, labels = np.zeros((images, longest, 6), boxes.dtype), np.full((images, longest), -1, np.int64)
    for image, rows in enumerate(detections):
        for place, (row, one) in enumerate(rows):
            dets[image, place], labels[image, place] = row, one
    return dets, labels


# ---- sampling --------------------------------------------------------------------------------------------------


def roi_align(input, rois, output_size, spatial_scale=1.0, sampling_ratio=0, pool_mode="avg", aligned=True):
    number = input.dtype.type
    pooled_height, pooled_width = output_size
    channels = input.shape[1]
    output = np.zeros((len(rois), channels, pooled_height, pooled_width), input.dtype)
    with np.errstate(all="ignore"):
        for k, roi in enumerate(rois):
            image = input[int(roi[0])]
            x1, y1, x2, y2 = (corner * number(spatial_scale) - number(0.5 if aligned else 0) for corner in roi[1:])
            roi_width, roi_height = x2 - x1, y2 - y1
            if not aligned:
                roi_width, roi_height = larger(roi_width, number(1)), larger(roi_height, number(1))
            bin_width, bin_height = number(roi_width / number(pooled_width)), number(roi_height / number(pooled_height))
            across = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_width)
            down = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_height)
            for ph in range(pooled_height):
                for pw in range(pooled_width):
                    values = []
                    for iy in range(down):
                        y = (y1 + number(ph) * bin_height) + (number(iy + 0.5) * bin_height) / number(down)
                        for ix in range(across):
                            x = (x1 + number(pw) * bin_width) + (number(ix + 0.5) * bin_width) / number(across)
                            values.append(_clamped_sample(image, y, x))
                    if pool_mode == "max":
                        output[k, :, ph, pw] = np.max(values, axis=0) if values else -10000
                    else:
                        output[k, :, ph, pw] = np.add.reduce(values) / number(len(values)) if values else 0
    return (output,)


def roi_align_rotated(input, rois, output_size, spatial_scale=1.0, sampling_ratio=0, aligned=True, clockwise=False):
    number = input.dtype.type
    pooled_height, pooled_width = output_size
    channels, height, width = input.shape[1:]
    output = np.zeros((len(rois), channels, pooled_height, pooled_width), input.dtype)
    if not output.size or not height * width:
        return (output,)
    for k, roi in enumerate(rois):
        image = input[int(roi[0])]
        centre_x, centre_y = (centre * number(spatial_scale) - number(0.5 if aligned else 0) for centre in roi[1:3])
        roi_width, roi_height = roi[3:5] * number(spatial_scale)
        angle = -float(roi[5]) if clockwise else float(roi[5])
        cosine, sine = number(math.cos(angle)), number(math.sin(angle))
        if not aligned:
            roi_width, roi_height = larger(roi_width, number(1)), larger(roi_height, number(1))
        bin_width, bin_height = number(roi_width / number(pooled_width)), number(roi_height / number(pooled_height))
        across = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_width)
        down = sampling_ratio if sampling_ratio > 0 else math.ceil(bin_height)
        for ph in range(pooled_height):
            for pw in range(pooled_width):
                values = []
                for iy in range(down):
                    y = (-roi_height / number(2) + number(ph) * bin_height) + (number(iy + 0.5) * bin_height) / number(
                        down
                    )
                    for ix in range(across):
                        x = (-roi_width / number(2) + number(pw) * bin_width) + (number(ix + 0.5) * bin_width) / number(
                            across
                        )
                        values.append(
                            _clamped_sample(
                                image, (y * cosine - x * sine) + centre_y, (y * sine + x * cosine) + centre_x
                            )
                        )
                output[k, :, ph, pw] = np.add.reduce(values) / number(len(values)) if values else 0
    return (output,)


def rotated_feature_align(features, best_rbboxes, spatial_scale=1 / 8, points=1):
    number, output = features.dtype.type, features.copy()
    for n, h, w in np.ndindex(best_rbboxes.shape[:3]):
        box = best_rbboxes[n, h, w]
        with np.errstate(all="ignore"):
            y, x, width, height = box[:4] * number(spatial_scale)
            c, s = (number(f(float(box[4]))) if np.isfinite(box[4]) else number(np.nan) for f in (math.cos, math.sin))
            ax, ay, bx, by = (
                c * (width / number(2)),
                s * (width / number(2)),
                -s * (height / number(2)),
                c * (height / number(2)),
            )
            corners = [((y + ay) + by, (x + ax) + bx), ((y - ay) + by, (x - ax) + bx)]
            corners += [((y - ay) - by, (x - ax) - bx), ((y + ay) - by, (x + ax) - bx)]
        for place in [(y, x), *corners][:points]:
            output[n, :, h, w] += _clamped_sample(features[n], *place)
    return (output,)


def _clamped_sample(image, y, x):
    """Bilinear sample of every channel; up to one pixel outside the border's value is taken, beyond that it is 0."""
    number, (channels, height, width) = image.dtype.type, image.shape
    if not height * width or not (-1 <= y <= height and -1 <= x <= width):
        return np.zeros(channels, image.dtype)
    y, x = max(y, number(0)), max(x, number(0))
    top, left = int(y), int(x)
    if top >= height - 1:
        top, y = height - 1, number(height - 1)
    if left >= width - 1:
        left, x = width - 1, number(width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    ly, lx = y - number(top), x - number(left)
    hy, hx = number(1) - ly, number(1) - lx
    return (
        (hy * hx) * image[:, top, left]
        + (hy * lx) * image[:, top, right]
        + (ly * hx) * image[:, bottom, left]
        + (ly * lx) * image[:, bottom, right]
    )


def grid_sample(input, grid, mode="bilinear", padding_mode="zeros", align_corners=False):
    number = input.dtype.type
    batches, channels, height, width = input.shape
    shape = (batches, channels, *grid.shape[1:3])
    if 0 in shape:
        return (np.zeros(shape, input.dtype),)

    def unnormalise(v, n):
        return (
            (v + number(1)) / number(2) * number(n - 1)
            if align_corners
            else ((v + number(1)) * number(n) - number(1)) / number(2)
        )

    def reflect(u, n):
        low, high = (number(0), number(n - 1)) if align_corners else (number(-0.5), number(n - 0.5))
        if low == high:
            return np.zeros_like(u)
        span, distance = high - low, np.abs(u - low)
        rest, turns = np.fmod(distance, span), np.floor(distance / span)
        turns = np.where(turns < 2**31, turns, 0)  # beyond, and for NaN, the conversion to an integer gives an even one
        return np.where(turns % 2 == 0, rest + low, span - rest + low)

    def pad(u, n):
        if padding_mode == "reflection":
            u = reflect(u, n)
        return u if padding_mode == "zeros" else smaller(number(n - 1), larger(u, number(0)))

    def pixel(y, x):
        """[N, OH, OW, C], 0 outside."""
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        rows, columns = (np.where(inside, v, 0).astype(np.int64) for v in (y, x))
        found = input[np.arange(batches)[:, None, None], :, rows, columns]
        return np.where(inside[..., None], found, number(0)), inside[..., None]

    with np.errstate(all="ignore"):
        x, y = unnormalise(grid[..., 0], width), unnormalise(grid[..., 1], height)
        if mode == "nearest":
            values, _ = pixel(np.rint(pad(y, height)), np.rint(pad(x, width)))
        elif mode == "bilinear":
            x, y = pad(x, width), pad(y, height)
            west, north = np.floor(x), np.floor(y)
            east, south = west + number(1), north + number(1)
            values = number(0)
            for row, column, weight in (
                (north, west, (east - x) * (south - y)),
                (north, east, (x - west) * (south - y)),
                (south, west, (east - x) * (y - north)),
                (south, east, (x - west) * (y - north)),
            ):
                found, inside = pixel(row, column)
                values = values + np.where(inside, found * weight[..., None], number(0))
        else:
            west, north = np.floor(x), np.floor(y)
            across, down = _cubic(x - west), _cubic(y - north)
            values = number(0)
            for i in range(4):
                row = number(0)
                for j in range(4):
                    found, _ = pixel(
                        np.trunc(pad(north + number(i - 1), height)), np.trunc(pad(west + number(j - 1), width))
                    )
                    row = row + found * across[j][..., None]
                values = values + row * down[i][..., None]
    return (np.ascontiguousarray(np.moveaxis(values, 3, 1)),)


def _cubic(t):
    """Weights of the four pixels around a place t behind the second of them (cubic convolution, A = -0.75)."""
    number = t.dtype.type
    a, one = number(-0.75), number(1)

    def near(z):
        return ((a + number(2)) * z - (a + number(3))) * z * z + one

    def far(z):
        return ((a * z - number(5) * a) * z + number(8) * a) * z - number(4) * a

    return far(t + one), near(t), near(one - t), far((one - t) + one)


def point_sample(input, points, align_corners=False, **options):
    grid = points if points.ndim == 4 else points[:, :, None]
    (output,) = grid_sample(input, grid * 2 - grid.dtype.type(1), align_corners=align_corners, **options)
    return (output if points.ndim == 4 else output[..., 0],)


def deform_conv2d(input, offset, weight, stride=1, padding=0, dilation=1, groups=1, deform_groups=1):
    ones = np.ones((offset.shape[0], offset.shape[1] // 2, *offset.shape[2:]), input.dtype)
    return modulated_deform_conv2d(input, offset, ones, weight, None, stride, padding, dilation, groups, deform_groups)


def modulated_deform_conv2d(
    input, offset, mask, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, deform_groups=1
):
    stride, padding, dilation = (np.broadcast_to(one, 2) for one in (stride, padding, dilation))
    images, channels, _, _ = input.shape
    outputs, _, kernel_height, kernel_width = weight.shape
    taps, size = kernel_height * kernel_width, offset.shape[2:]
    output = np.zeros((images, outputs, *size), input.dtype)

    def starts(axis, step):
        """Where a tap reads without an offset."""
        return (np.arange(size[axis]) * stride[axis] - padding[axis] + step * dilation[axis]).astype(input.dtype)

    with np.errstate(all="ignore"):
        for image in range(images):
            for channel in range(channels):
                for tap in range(taps):
                    at = channel // (channels // deform_groups) * taps + tap
                    y = starts(0, tap // kernel_width)[:, None] + offset[image, 2 * at]
                    x = starts(1, tap % kernel_width) + offset[image, 2 * at + 1]
                    sample = mask[image, at] * _zero_padded_sample(input[image, channel], y, x)
                    group, member = divmod(channel, channels // groups)
                    for o in range(group * (outputs // groups), (group + 1) * (outputs // groups)):
                        output[image, o] += weight[o, member].flat[tap] * sample
        if bias is not None:
            output += bias[:, None, None]
    return (output,)


def _zero_padded_sample(plane, y, x):
    """Bilinear samples; pixels outside of the plane are 0 and not multiplied with."""
    number, (height, width) = plane.dtype.type, plane.shape
    outside = (y <= -1) | (y >= height) | (x <= -1) | (x >= width)
    if not plane.size:
        return np.zeros(y.shape, plane.dtype)
    top, left = np.floor(y), np.floor(x)
    ly, lx = y - top, x - left
    hy, hx = number(1) - ly, number(1) - lx

    def pixel(row, column):
        inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
        row, column = (np.where(inside, v, 0).astype(np.int64) for v in (row, column))
        return np.where(inside, plane[row, column], number(0))

    one = number(1)
    value = hy * hx * pixel(top, left) + hy * lx * pixel(top, left + one)
    value = value + ly * hx * pixel(top + one, left) + ly * lx * pixel(top + one, left + one)
    return np.where(outside, number(0), value)


# ---- normalization ---------------------------------------------------------------------------------------------


def group_norm(x, num_groups, scale, bias, eps=1e-5):
    """In float64, whatever the dtype."""
    if not x.size:
        return (x.copy(),)
    each = (-1,) + (1,) * (x.ndim - 2)
    groups = x.astype(np.float64).reshape(len(x), num_groups, -1)
    with np.errstate(all="ignore"):
        differences = groups - groups.mean(axis=2, keepdims=True)
        variance = (differences**2).mean(axis=2, keepdims=True)
        normal = (differences / np.sqrt(variance + x.dtype.type(eps))).reshape(x.shape)
        return ((normal * scale.reshape(each) + bias.reshape(each)).astype(x.dtype),)


# ---- scans -----------------------------------------------------------------------------------------------------


def corner_pool(input, mode):
    output = input.copy()
    lines = np.moveaxis(output, {"top": 2, "bottom": 2, "left": 3, "right": 3}[mode], 0)
    if mode in ("top", "left"):
        lines = lines[::-1]
    for i in range(1, len(lines)):
        before, here = lines[i - 1], lines[i]
        lines[i] = np.where((before < here) | (here != here), here, before)
    return (output,)


def cummax(input, dim):
    return _scan(input, dim, np.greater_equal)


def cummin(input, dim):
    return _scan(input, dim, np.less_equal)


def _scan(input, dim, replaces):
    values, indices = input.copy(), np.zeros(input.shape, np.int64)
    lines, places = np.moveaxis(values, dim, 0), np.moveaxis(indices, dim, 0)
    for i in range(1, len(lines)):
        best, here = lines[i - 1], lines[i]
        new = replaces(here, best) | (here != here)  # a NaN best compares false, so it stays until the next NaN
        lines[i] = np.where(new, here, best)
        places[i] = np.where(new, i, places[i - 1])
    return values, indices
