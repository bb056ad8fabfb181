"""Non-maximum suppression: greedy, soft, class by class, and with the groups it forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call

Suppressed = tuple[NDArray[Any], NDArray[np.int64]]

METHODS = ("naive", "linear", "gaussian")


def nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
    idxs: ArrayLike | None = None,
) -> Suppressed:
    """Keep the best boxes and drop those that overlap a kept one by more than a threshold.

    Parameters
    ----------
    boxes : array_like, [N, 4]
        Corners (x1, y1, x2, y2), in any unit; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [N]
    iou_threshold : float
        A box is dropped if its intersection over union with a kept box of higher score is above this (not: equal).
    offset : int, default 0
        Added to widths and heights; 1 if corners are pixel indices and both belong to the box.
    score_threshold : float, default 0
        If above 0, boxes whose score is not above it take no part.
    max_num : int, default -1
        If above 0, at most so many boxes are kept.
    idxs : array_like of integers, [N], optional
        The class of each box: only boxes of one class suppress each other.

    Returns
    -------
    dets : ndarray, [K, 5]
        The kept boxes with their scores in the last column, by descending score; of the inputs' common floating dtype.
    indices : ndarray of int64, [K]
        Their places in `boxes`.

    Raises
    ------
    ValueError
        If a shape is another, or `iou_threshold` is NaN.
    TypeError
        If an array does not hold real numbers (`idxs`: integers), or a number is none.

    Notes
    -----
    Among equal scores the lower index comes first; NaN scores come last.  Boxes without area and boxes with NaN are
    kept and drop nothing.  All is computed in the arrays' own dtype (float16 in float32) in MMCV's order of operations,
    so that float32 results equal MMCV's bit for bit.  No boxes give no detections.

    Source: ``mmcv.ops.nms``, which has no `idxs`; in ONNX Runtime ``mmcv::NonMaxSuppression``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]
    >>> dets, indices = mmort.nms(boxes, [0.8, 0.9, 0.7], iou_threshold=0.5)
    >>> indices
    array([1, 2])
    >>> dets
    array([[ 1. ,  1. , 11. , 11. ,  0.9],
           [20. , 20. , 30. , 30. ,  0.7]])
    """
    classes = None if idxs is None else _arrays.integers("nms", "idxs", idxs)
    return _nms("nms", boxes, scores, classes, iou_threshold, offset, score_threshold, max_num)


def _nms(
    operator: str,
    boxes: ArrayLike,
    scores: ArrayLike,
    idxs: NDArray[np.int64] | None,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
) -> Suppressed:
    (boxes, scores), dtype = _arrays.floating(operator, boxes=boxes, scores=scores)
    attributes = (
        _arrays.number(operator, "iou_threshold", iou_threshold),
        _arrays.integer(operator, "offset", offset),
        _arrays.number(operator, "score_threshold", score_threshold),
        _arrays.integer(operator, "max_num", max_num),
    )
    indices, dets = call("nms", (boxes, scores, idxs), attributes)
    return dets.astype(dtype, copy=False), indices


def soft_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: Literal["naive", "linear", "gaussian"] = "linear",
    offset: int = 0,
) -> Suppressed:
    """Lower the scores of boxes that overlap a better one, and keep those whose score stays high enough.

    Parameters
    ----------
    boxes : array_like, [N, 4]
        Corners (x1, y1, x2, y2), in any unit; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [N]
    iou_threshold : float, default 0.3
        Boxes overlap if their intersection over union is at least this ("gaussian" does not look at it).
    sigma : float, default 0.5
        Width of the decay of "gaussian".
    min_score : float, default 0.001
        A box leaves once its score is below this.
    method : {"naive", "linear", "gaussian"}, default "linear"
        The factor for a score: 0 or 1 - IoU if the boxes overlap, else 1; or exp(-IoU**2 / sigma) always.
    offset : int, default 0
        Added to widths and heights; 1 if corners are pixel indices and both belong to the box.

    Returns
    -------
    dets : ndarray, [M, 5]
        The boxes with their lowered scores in the last column, by descending score; of the inputs' common floating
        dtype.
    indices : ndarray of int64, [M]
        Their places in `boxes`.

    Raises
    ------
    ValueError
        If a shape is another, or `method` another word.
    TypeError
        If an array does not hold real numbers, or a number is none.

    Notes
    -----
    As in MMCV the box with the highest score is always returned, even if that is below `min_score`, and the order among
    equal scores is the one that MMCV's exchanges of places lead to.  The exponential is evaluated in double precision
    and rounded, so that results do not depend on the C library.

    Source: N. Bodla et al., "Soft-NMS: Improving Object Detection With One Line of Code", ICCV 2017;
    ``mmcv.ops.soft_nms``; in ONNX Runtime ``mmcv::SoftNonMaxSuppression``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 8], [20, 20, 30, 30]]
    >>> dets, indices = mmort.soft_nms(boxes, [0.9, 0.8, 0.7])
    >>> indices
    array([0, 2, 1])
    >>> dets[:, 4]
    array([0.9 , 0.7 , 0.16])
    """
    (boxes, scores), dtype = _arrays.floating("soft_nms", boxes=boxes, scores=scores)
    attributes = (
        _arrays.number("soft_nms", "iou_threshold", iou_threshold),
        _arrays.number("soft_nms", "sigma", sigma),
        _arrays.number("soft_nms", "min_score", min_score),
        _arrays.choice("soft_nms", "method", method, METHODS),
        _arrays.integer("soft_nms", "offset", offset),
    )
    dets, indices = call("soft_nms", (boxes, scores), attributes)
    return dets.astype(dtype, copy=False), indices


def batched_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    idxs: ArrayLike,
    nms_cfg: Mapping[str, Any] | None,
    class_agnostic: bool = False,
) -> Suppressed:
    """Suppress boxes within each class only.

    Parameters
    ----------
    boxes : array_like, [N, 4]
        Corners (x1, y1, x2, y2), in any unit; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [N]
    idxs : array_like of integers, [N]
        The class of each box; any integers.
    nms_cfg : mapping or None
        ``type``: "nms" (the default) or "soft_nms"; the rest are that function's arguments, and ``max_num`` counts over
        all classes.  ``class_agnostic`` here is the same as the argument; ``split_thr`` is accepted and not needed.
        None suppresses nothing and only sorts.
    class_agnostic : bool, default False
        Let boxes of different classes suppress each other.

    Returns
    -------
    dets : ndarray, [K, 5]
        The kept boxes with their scores in the last column, by descending score over all classes.
    keep : ndarray of int64, [K]
        Their places in `boxes`.

    Raises
    ------
    ValueError
        If a shape is another, or ``type`` another word.
    TypeError
        If an array does not hold the numbers it should, or `nms_cfg` has an unknown key.

    Notes
    -----
    Classes are compared as integers; boxes are never shifted, so neither large coordinates nor float16 nor many classes
    cost precision.  Ties and NaN as in `nms`.  With "soft_nms" a box below ``min_score`` is returned only if it is the
    best of all.

    Source: ``mmcv.ops.batched_nms``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9]]
    >>> dets, keep = mmort.batched_nms(boxes, [0.9, 0.8, 0.7], [0, 1, 0], dict(type="nms", iou_threshold=0.5))
    >>> keep
    array([0, 1])
    """
    (boxes, scores), dtype = _arrays.floating("batched_nms", boxes=boxes, scores=scores)
    classes = _arrays.integers("batched_nms", "idxs", idxs)
    if boxes.ndim != 2 or boxes.shape[1] != 4:  # the parts could fit where the whole does not
        raise ValueError(f"batched_nms: boxes must be [N, 4], got {list(boxes.shape)}")
    for name, array in (("scores", scores), ("idxs", classes)):
        if array.shape != boxes.shape[:1]:
            raise ValueError(f"batched_nms: {name} must be [N] with N = {len(boxes)}, got {list(array.shape)}")
    settings = dict(nms_cfg) if nms_cfg is not None else {"type": "nms", "iou_threshold": float("inf")}
    settings.pop("split_thr", None)
    kind = settings.pop("type", "nms")
    agnostic = bool(settings.pop("class_agnostic", class_agnostic))
    kinds: dict[str, Callable[..., Suppressed]] = {"nms": _class_nms, "soft_nms": _class_soft_nms}
    if kind not in kinds:
        raise ValueError(f"batched_nms: nms_cfg['type'] must be 'nms' or 'soft_nms', got {kind!r}")
    dets, keep = kinds[kind](boxes, scores, np.zeros_like(classes) if agnostic else classes, **settings)
    return dets.astype(dtype, copy=False), keep


def _class_nms(boxes: NDArray[Any], scores: NDArray[Any], classes: NDArray[np.int64], **settings: Any) -> Suppressed:
    return _nms("batched_nms", boxes, scores, classes, **settings)


def _class_soft_nms(
    boxes: NDArray[Any],
    scores: NDArray[Any],
    classes: NDArray[np.int64],
    *,
    min_score: float = 1e-3,
    max_num: int = -1,
    **settings: Any,
) -> Suppressed:
    parts = [(np.empty((0, 5), boxes.dtype), np.empty(0, np.int64))]
    for one in np.unique(classes):
        members = np.flatnonzero(classes == one)
        dets, places = soft_nms(boxes[members], scores[members], min_score=min_score, **settings)
        parts.append((dets, members[places]))
    dets, keep = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((keep, -dets[:, 4]))
    # the best box of each class came whatever its score; only the best of all is to
    order = order[~(dets[order, 4] < min_score) | (np.arange(len(order)) == 0)]
    if max_num > 0:
        order = order[:max_num]
    return dets[order], keep[order]


def nms_match(dets: ArrayLike, iou_threshold: float) -> list[NDArray[np.int64]]:
    """Tell which boxes greedy suppression groups around each kept box.

    Parameters
    ----------
    dets : array_like, [N, 5]
        Corners and score (x1, y1, x2, y2, score); float16, float32 or float64 (integers are taken as float64).
    iou_threshold : float
        A box belongs to a kept box of higher score if their intersection over union is at least this.

    Returns
    -------
    list of ndarray of int64
        One array a kept box, by descending score: its place in `dets`, then the places of the boxes it suppressed, by
        descending score.  Together they hold each place once.  No boxes give an empty list.

    Raises
    ------
    ValueError
        If the shape is another, or `iou_threshold` is NaN.
    TypeError
        If `dets` does not hold real numbers, or `iou_threshold` is none.

    Notes
    -----
    Equal IoU suppresses here, unlike in `nms`.  Ties and NaN as in `nms`.  Source: ``mmcv.ops.nms_match``.

    Examples
    --------
    >>> import mmort
    >>> mmort.nms_match([[0, 0, 10, 10, 0.8], [0, 0, 10, 9, 0.9], [20, 20, 30, 30, 0.7]], 0.5)
    [array([1, 0]), array([2])]
    """
    (rows,), _ = _arrays.floating("nms_match", dets=dets)
    members, starts = call("nms_match", (rows,), (_arrays.number("nms_match", "iou_threshold", iou_threshold),))
    return np.split(members, starts[1:-1]) if len(members) else []


def nms_match_pairs(
    boxes: ArrayLike, scores: ArrayLike, iou_threshold: ArrayLike, score_threshold: ArrayLike
) -> NDArray[np.int64]:
    """List which box suppressed which, for each image and class.

    Parameters
    ----------
    boxes : array_like, [B, K, 4]
        Corners (x1, y1, x2, y2), shared by all classes; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [B, C, K]
    iou_threshold : float or array_like
        A box belongs to a kept box of higher score if their intersection over union is at least this; of an array the
        first element counts.
    score_threshold : float or array_like
        Only pairs whose kept box has a score above this are listed; the others suppress all the same.

    Returns
    -------
    ndarray of int64, [S, 4]
        Rows (image, class, kept box, suppressed box), by image, class, descending score of the kept box, descending
        score of the suppressed one.

    Raises
    ------
    ValueError
        If a shape is another, or a threshold is empty.
    TypeError
        If an array does not hold real numbers.

    Notes
    -----
    The union gets 1e-10 added, so boxes without area have IoU 0.  Ties and NaN as in `nms`.  Source: MMDeploy's
    ``NMSMatch``, in ONNX Runtime ``mmdeploy::NMSMatch``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]]]
    >>> mmort.nms_match_pairs(boxes, [[[0.8, 0.9, 0.7]]], iou_threshold=0.5, score_threshold=0.1)
    array([[0, 0, 1, 0]])
    """
    operator = "nms_match_pairs"
    (boxes, scores), _ = _arrays.floating(operator, boxes=boxes, scores=scores)
    # thresholds follow the boxes' dtype and do not widen it
    thresholds = [
        np.asarray(value, boxes.dtype)
        for value in _arrays.floating(operator, iou_threshold=iou_threshold, score_threshold=score_threshold)[0]
    ]
    (pairs,) = call(operator, (boxes, scores, *thresholds), ())
    return pairs


def multiclass_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    score_threshold: float = 0.05,
    iou_threshold: float = 0.5,
    max_per_image: int = 100,
    nms_pre: int = -1,
    class_agnostic: bool = False,
    method: Literal["nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian"] = "nms",
    sigma: float = 0.5,
    min_score: float = 1e-3,
    offset: int = 0,
) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    """Turn the boxes and class scores of a batch into detections: threshold, suppression in classes, the best of all.

    Parameters
    ----------
    boxes : array_like, [B, N, 4] or [B, N, C, 4]
        Corners (x1, y1, x2, y2), in any unit, shared by the classes or for each class; float16, float32 or float64
        (integers are taken as float64).
    scores : array_like, [B, N, C]
        Without a background class.
    score_threshold : float, default 0.05
        Only scores above this take part.
    iou_threshold : float, default 0.5
        As in `nms` or `soft_nms`.
    max_per_image : int, default 100
        The number of rows K.  0 or less: as many as the image with most detections needs.
    nms_pre : int, default -1
        If above 0, only so many best boxes of each class take part.
    class_agnostic : bool, default False
        Let boxes of different classes suppress each other.
    method : {"nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian"}, default "nms"
    sigma, min_score : float
        As in `soft_nms`; with "nms" they mean nothing.
    offset : int, default 0
        As in `nms`.

    Returns
    -------
    dets : ndarray, [B, K, 5]
        Boxes with their (lowered) scores, by descending score, rows of zeros behind them; of the inputs' common
        floating dtype.
    labels : ndarray of int64, [B, K]
        Classes; -1 in rows that are not used.
    indices : ndarray of int64, [B, K]
        Places in `boxes`' N; -1 in rows that are not used.

    Raises
    ------
    ValueError
        If a shape is another, `iou_threshold` is NaN, or `method` another word.
    TypeError
        If an array does not hold real numbers, or a number is none.

    Notes
    -----
    Among equal scores the lower box comes first, then the lower class; within a class ties are as in `nms` or
    `soft_nms`.  NaN scores never take part.  Images and classes run in parallel.

    Source: MMDetection's ``multiclass_nms``; in ONNX Runtime ``mmort::MultiClassNMS``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[[0, 0, 10, 10], [0, 0, 10, 9]]]
    >>> scores = [[[0.9, 0.3], [0.8, 0.0]]]
    >>> dets, labels, indices = mmort.multiclass_nms(boxes, scores, max_per_image=3)
    >>> dets[0, :, 4], labels, indices
    (array([0.9, 0.3, 0. ]), array([[ 0,  1, -1]]), array([[ 0,  0, -1]]))
    """
    operator = "multiclass_nms"
    (boxes, scores), dtype = _arrays.floating(operator, boxes=boxes, scores=scores)
    attributes = (
        _arrays.number(operator, "score_threshold", score_threshold),
        _arrays.number(operator, "iou_threshold", iou_threshold),
        _arrays.integer(operator, "max_per_image", max_per_image),
        _arrays.integer(operator, "nms_pre", nms_pre),
        int(bool(class_agnostic)),
        _arrays.choice(operator, "method", method, ("nms", *(f"soft_nms_{one}" for one in METHODS))),
        _arrays.number(operator, "sigma", sigma),
        _arrays.number(operator, "min_score", min_score),
        _arrays.integer(operator, "offset", offset),
    )
    dets, labels, indices = call(operator, (boxes, scores), attributes)
    return dets.astype(dtype, copy=False), labels, indices
