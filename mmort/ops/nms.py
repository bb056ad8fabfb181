"""Non-maximum suppression: greedy, soft, class by class, and with the groups it forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort._kernels import as_floating, as_integers, as_rows, call
from mmort.ops._other_names import explains_other_names
from mmort.ops._suppression import check_settings, suppression_settings

__all__ = ["batched_nms", "multiclass_nms", "nms", "nms_indices", "nms_match", "nms_match_pairs", "soft_nms"]


class KeptBoxes(NamedTuple):
    """Result of a suppression: the boxes that it keeps with their scores, and their indices among the inputs."""

    dets: NDArray[Any]
    indices: NDArray[np.int64]


class SelectedDetections(NamedTuple):
    """Result of `multiclass_nms`."""

    dets: NDArray[Any]
    labels: NDArray[np.int64]
    indices: NDArray[np.int64]


@explains_other_names
def nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float,
    offset: int = 0,
    score_threshold: float = 0,
    max_num: int = -1,
    idxs: ArrayLike | None = None,
) -> KeptBoxes:
    """Perform greedy non-maximum suppression.

    Parameters
    ----------
    boxes : array_like of shape (N, 4)
        Corners (x1, y1, x2, y2) in any unit; float16, float32 or float64 (integers are converted to float64).
    scores : array_like of shape (N,)
        Score of each box.
    iou_threshold : float
        A box is removed if its intersection over union with a kept box of higher score is greater than this.
    offset : int, default 0
        Added to widths and heights; 1 if corners are indices of pixels that both belong to the box.
    score_threshold : float, default 0
        If positive, boxes take part only if their score is greater than this.
    max_num : int, default -1
        If positive, the maximum number of boxes kept.
    idxs : array_like of int, shape (N,), optional
        Class of each box: only boxes of the same class suppress each other.

    Returns
    -------
    dets : ndarray of shape (K, 5)
        The kept boxes with their scores in the last column, by descending score; of the common floating dtype of the
        inputs.
    indices : ndarray of int64, shape (K,)
        Their indices in `boxes`.

    Raises
    ------
    ValueError
        If a shape does not match, or `iou_threshold` is NaN.
    TypeError
        If an array is not of a real dtype (`idxs`: of integers), or another argument not of its type.

    Notes
    -----
    Among equal scores the lower index comes first; NaN scores come last.  Boxes without area and boxes with NaN are
    kept and suppress nothing.  Everything is computed in the arrays' own dtype (float16 in float32) in MMCV's order of
    operations, so that float32 results equal MMCV's bit for bit.

    Source: ``mmcv.ops.nms``, which has no `idxs`.  torchvision's function returns the indices alone, here the second
    result: ``keep = mmort.nms(boxes, scores, 0.5).indices``.

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
    indices, dets = call(
        "nms",
        boxes=boxes,
        scores=scores,
        idxs=idxs,
        iou_threshold=iou_threshold,
        offset=offset,
        score_threshold=score_threshold,
        max_num=max_num,
    )
    return KeptBoxes(dets, indices)


@explains_other_names
def soft_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float = 0.3,
    sigma: float = 0.5,
    min_score: float = 1e-3,
    method: Literal["naive", "linear", "gaussian"] = "linear",
    offset: int = 0,
) -> KeptBoxes:
    """Perform Soft-NMS: lower the scores of boxes that overlap a better one instead of removing them.

    Parameters
    ----------
    boxes : array_like of shape (N, 4)
        Corners (x1, y1, x2, y2) in any unit; float16, float32 or float64 (integers are converted to float64).
    scores : array_like of shape (N,)
        Score of each box.
    iou_threshold : float, default 0.3
        Boxes overlap if their intersection over union is at least this; "gaussian" ignores it.
    sigma : float, default 0.5
        Width of the decay of "gaussian".
    min_score : float, default 0.001
        Boxes are removed once their score is below this.
    method : {"naive", "linear", "gaussian"}, default "linear"
        Factor of the score of a box that overlaps: 0 for "naive", 1 - IoU for "linear"; "gaussian" multiplies the score
        of every box by exp(-IoU**2 / sigma).
    offset : int, default 0
        Added to widths and heights; 1 if corners are indices of pixels that both belong to the box.

    Returns
    -------
    dets : ndarray of shape (M, 5)
        The remaining boxes with their lowered scores in the last column, by descending score; of the common floating
        dtype of the inputs.
    indices : ndarray of int64, shape (M,)
        Their indices in `boxes`.

    Raises
    ------
    ValueError
        If a shape does not match, or `method` is not one of the words above.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    As in MMCV the box with the highest score is always returned, even if its score is below `min_score`, and the order
    among equal scores follows from MMCV's swaps.  The exponential is evaluated in double precision and rounded, so that
    results do not depend on the C library.

    Source: N. Bodla et al., "Soft-NMS: Improving Object Detection With One Line of Code", ICCV 2017;
    ``mmcv.ops.soft_nms``.

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
    dets, indices = call(
        "soft_nms",
        boxes=boxes,
        scores=scores,
        iou_threshold=iou_threshold,
        sigma=sigma,
        min_score=min_score,
        method=method,
        offset=offset,
    )
    return KeptBoxes(dets, indices)


@explains_other_names
def batched_nms(
    boxes: ArrayLike,
    scores: ArrayLike,
    idxs: ArrayLike,
    nms_cfg: Mapping[str, Any] | float | None,
    class_agnostic: bool = False,
) -> KeptBoxes:
    """Perform non-maximum suppression within each class.

    Parameters
    ----------
    boxes : array_like of shape (N, 4)
        Corners (x1, y1, x2, y2) in any unit; float16, float32 or float64 (integers are converted to float64).
    scores : array_like of shape (N,)
        Score of each box.
    idxs : array_like of int, shape (N,)
        Class of each box; any integers.
    nms_cfg : mapping, float or None
        ``type`` is "nms" (the default) or "soft_nms"; the other entries are arguments of that function, with
        ``max_num`` counted over all classes.  ``class_agnostic`` here overrides the argument; ``split_thr`` is ignored.
        A number is the ``iou_threshold`` of "nms", as in torchvision.  None suppresses nothing and only sorts.
    class_agnostic : bool, default False
        Let boxes of different classes suppress each other.

    Returns
    -------
    dets : ndarray of shape (K, 5)
        The kept boxes with their scores in the last column, by descending score over all classes.
    indices : ndarray of int64, shape (K,)
        Their indices in `boxes`.

    Raises
    ------
    ValueError
        If a shape does not match, or ``type`` is not one of the words above.
    TypeError
        If an array is not of a real dtype (`idxs`: of integers), or `nms_cfg` has an unknown key.

    Notes
    -----
    Classes are compared as integers; boxes are never shifted, so neither large coordinates nor float16 nor many classes
    cost precision.  Ties and NaN are handled as in `nms`.  With "soft_nms" a box below ``min_score`` is returned only
    if it is the best of all.

    Source: ``mmcv.ops.batched_nms``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9]]
    >>> mmort.batched_nms(boxes, [0.9, 0.8, 0.7], [0, 1, 0], dict(type="nms", iou_threshold=0.5)).indices
    array([0, 1])
    """
    (boxes, scores), dtype = as_floating("batched_nms", boxes=as_rows(boxes, 4), scores=scores)
    classes = as_integers("batched_nms", "idxs", idxs)
    if boxes.ndim != 2 or boxes.shape[1] != 4:  # boxes of single classes could fit where all of them do not
        raise ValueError(f"batched_nms: boxes must be [N, 4], got {list(boxes.shape)}")
    for name, array in (("scores", scores), ("idxs", classes)):
        if array.shape != boxes.shape[:1]:
            raise ValueError(f"batched_nms: {name} must be [N] with N = {len(boxes)}, got {list(array.shape)}")
    settings = suppression_settings(nms_cfg)
    settings.pop("split_thr", None)
    kind = settings.pop("type", "nms")
    agnostic = bool(settings.pop("class_agnostic", class_agnostic))
    kinds: dict[str, Callable[..., KeptBoxes]] = {"nms": _class_nms, "soft_nms": _class_soft_nms}
    if kind not in kinds:
        raise ValueError(f"batched_nms: nms_cfg['type'] must be 'nms' or 'soft_nms', got {kind!r}")
    check_settings(kind, settings)
    dets, indices = kinds[kind](boxes, scores, np.zeros_like(classes) if agnostic else classes, **settings)
    return KeptBoxes(dets.astype(dtype, copy=False), indices)


def _class_nms(boxes: NDArray[Any], scores: NDArray[Any], classes: NDArray[np.int64], **settings: Any) -> KeptBoxes:
    """Perform greedy suppression within each class."""
    indices, dets = call("nms", "batched_nms", boxes=boxes, scores=scores, idxs=classes, **settings)
    return KeptBoxes(dets, indices)


def _class_soft_nms(
    boxes: NDArray[Any],
    scores: NDArray[Any],
    classes: NDArray[np.int64],
    *,
    min_score: float = 1e-3,
    max_num: int = -1,
    **settings: Any,
) -> KeptBoxes:
    """Perform Soft-NMS class by class and merge the results."""
    parts = [(np.empty((0, 5), boxes.dtype), np.empty(0, np.int64))]
    by_class = np.argsort(classes, kind="stable")
    starts = np.flatnonzero(np.diff(classes[by_class])) + 1
    for members in np.split(by_class, starts) if len(classes) else []:
        dets, kept = soft_nms(boxes[members], scores[members], min_score=min_score, **settings)
        parts.append((dets, members[kept]))
    dets, indices = (np.concatenate(part) for part in zip(*parts, strict=True))
    order = np.lexsort((indices, -dets[:, 4]))
    # Soft-NMS returns the best box of each class whatever its score; only the best of all is wanted.
    order = order[~(dets[order, 4] < min_score) | (np.arange(len(order)) == 0)]
    if max_num > 0:
        order = order[:max_num]
    return KeptBoxes(dets[order], indices[order])


@explains_other_names
def nms_match(dets: ArrayLike, iou_threshold: float) -> list[NDArray[np.int64]]:
    """Group boxes by the kept box that suppresses them in greedy suppression.

    Parameters
    ----------
    dets : array_like of shape (N, 5)
        Corners and score (x1, y1, x2, y2, score); float16, float32 or float64 (integers are converted to float64).
    iou_threshold : float
        A box belongs to a kept box of higher score if their intersection over union is at least this.

    Returns
    -------
    list of ndarray of int64
        One array for each kept box, by descending score: its index in `dets`, then the indices of the boxes that it
        suppresses, by descending score.  Each index occurs once.

    Raises
    ------
    ValueError
        If the shape does not match, or `iou_threshold` is NaN.
    TypeError
        If `dets` is not of a real dtype, or `iou_threshold` is not a number.

    Notes
    -----
    Unlike in `nms`, an IoU equal to the threshold suppresses.  Ties and NaN are handled as in `nms`.

    Source: ``mmcv.ops.nms_match``.

    Examples
    --------
    >>> import mmort
    >>> mmort.nms_match([[0, 0, 10, 10, 0.8], [0, 0, 10, 9, 0.9], [20, 20, 30, 30, 0.7]], 0.5)
    [array([1, 0]), array([2])]
    """
    members, starts = call("nms_match", dets=dets, iou_threshold=iou_threshold)
    return np.split(members, starts[1:-1]) if len(members) else []


def nms_match_pairs(
    boxes: ArrayLike, scores: ArrayLike, iou_threshold: ArrayLike, score_threshold: ArrayLike
) -> NDArray[np.int64]:
    """List which box suppresses which in greedy suppression, for each image and class.

    Parameters
    ----------
    boxes : array_like of shape (B, K, 4)
        Corners (x1, y1, x2, y2), shared by all classes; float16, float32 or float64 (integers are converted to
        float64).
    scores : array_like of shape (B, C, K)
        Score of each box for each class.
    iou_threshold : float or array_like
        A box belongs to a kept box of higher score if their intersection over union is at least this; of an array the
        first element is used.
    score_threshold : float or array_like
        Only pairs whose kept box has a score greater than this are listed; the others suppress all the same.

    Returns
    -------
    ndarray of int64, shape (S, 4)
        Rows (image, class, kept box, suppressed box), by image, class, descending score of the kept box, descending
        score of the suppressed one.

    Raises
    ------
    ValueError
        If a shape does not match, or a threshold is empty.
    TypeError
        If an array is not of a real dtype.

    Notes
    -----
    1e-10 is added to the area of the union, so boxes without area have IoU 0.  Ties and NaN are handled as in `nms`.

    Source: MMDeploy's ``NMSMatch`` operator.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]]]
    >>> mmort.nms_match_pairs(boxes, [[[0.8, 0.9, 0.7]]], iou_threshold=0.5, score_threshold=0.1)
    array([[0, 0, 1, 0]])
    """
    function = "nms_match_pairs"
    (boxes, scores), _ = as_floating(function, boxes=boxes, scores=scores)
    # Thresholds follow the dtype of the boxes and do not widen it.
    iou_threshold, score_threshold = (
        np.asarray(threshold, boxes.dtype)
        for threshold in as_floating(function, iou_threshold=iou_threshold, score_threshold=score_threshold)[0]
    )
    (pairs,) = call(function, boxes=boxes, scores=scores, iou_threshold=iou_threshold, score_threshold=score_threshold)
    return pairs


def nms_indices(
    boxes: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float,
    score_threshold: float,
    max_per_class: int = -1,
    center_point_box: bool = False,
) -> NDArray[np.int64]:
    """Perform greedy non-maximum suppression within each image and class, as ONNX defines it.

    Parameters
    ----------
    boxes : array_like of shape (B, K, 4)
        Two opposite corners (x1, y1, x2, y2) in any order, or (y1, x1, y2, x2), shared by all classes; float16, float32
        or float64 (integers are converted to float64).
    scores : array_like of shape (B, C, K)
        Score of each box for each class.
    iou_threshold : float
        From 0 to 1.  A box is removed if its intersection over union with a kept box of its class is greater than this.
    score_threshold : float
        Only scores greater than this take part; with minus infinity all scores do, also NaN and minus infinity.
    max_per_class : int, default -1
        If positive, the maximum number of boxes kept of each class in an image.
    center_point_box : bool, default False
        Whether boxes are (x_center, y_center, width, height).

    Returns
    -------
    ndarray of int64, shape (S, 3)
        Rows (image, class, box), by image, class and descending score.

    Raises
    ------
    ValueError
        If a shape does not match, `iou_threshold` is not from 0 to 1, or `score_threshold` is NaN.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    Among equal scores the lower index comes first; NaN scores come last.  Boxes without area are kept and suppress
    nothing.  float32 results equal those of ONNX Runtime's NonMaxSuppression.

    Source: ONNX's ``NonMaxSuppression``, in which thresholds are inputs.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]]]
    >>> mmort.nms_indices(boxes, [[[0.8, 0.9, 0.7]]], iou_threshold=0.5, score_threshold=0.1)
    array([[0, 0, 1],
           [0, 0, 2]])
    """
    (indices,) = call(
        "nms_indices",
        boxes=boxes,
        scores=scores,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
        max_per_class=max_per_class,
        center_point_box=center_point_box,
    )
    return indices


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
) -> SelectedDetections:
    """Select detections from the boxes and class scores of a batch: threshold, suppression per class, best of all.

    Parameters
    ----------
    boxes : array_like of shape (B, N, 4) or (B, N, C, 4)
        Corners (x1, y1, x2, y2) in any unit, shared by all classes or for each class; float16, float32 or float64
        (integers are converted to float64).
    scores : array_like of shape (B, N, C)
        Score of each box for each class, without a background class.
    score_threshold : float, default 0.05
        Only scores greater than this take part.
    iou_threshold : float, default 0.5
        As in `nms` or `soft_nms`.
    max_per_image : int, default 100
        Number of rows K.  0 or less: as many as the image with the most detections needs.
    nms_pre : int, default -1
        If positive, the number of best boxes of each class that take part.
    class_agnostic : bool, default False
        Let boxes of different classes suppress each other.
    method : {"nms", "soft_nms_naive", "soft_nms_linear", "soft_nms_gaussian"}, default "nms"
        `nms`, or a method of `soft_nms`.
    sigma, min_score : float, default 0.5 and 0.001
        As in `soft_nms`; ignored with "nms".  Below `min_score` only the best box of all classes is returned.
    offset : int, default 0
        As in `nms`.

    Returns
    -------
    dets : ndarray of shape (B, K, 5)
        Boxes with their (lowered) scores, by descending score, followed by rows of zeros; of the common floating dtype
        of the inputs.
    labels : ndarray of int64, shape (B, K)
        Classes; -1 in unused rows.
    indices : ndarray of int64, shape (B, K)
        Indices in the second dimension of `boxes`; -1 in unused rows.

    Raises
    ------
    ValueError
        If a shape does not match, `iou_threshold` is NaN, or `method` is not one of the words above.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    Among equal scores the lower box comes first, then the lower class; within a class ties are handled as in `nms` or
    `soft_nms`.  NaN scores never take part.  Images and classes run in parallel.

    Source: MMDetection's ``multiclass_nms``.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[[0, 0, 10, 10], [0, 0, 10, 9]]]
    >>> scores = [[[0.9, 0.3], [0.8, 0.0]]]
    >>> dets, labels, indices = mmort.multiclass_nms(boxes, scores, max_per_image=3)
    >>> dets[0, :, 4], labels, indices
    (array([0.9, 0.3, 0. ]), array([[ 0,  1, -1]]), array([[ 0,  0, -1]]))
    """
    dets, labels, indices = call(
        "multiclass_nms",
        boxes=boxes,
        scores=scores,
        score_threshold=score_threshold,
        iou_threshold=iou_threshold,
        max_per_image=max_per_image,
        nms_pre=nms_pre,
        class_agnostic=class_agnostic,
        method=method,
        sigma=sigma,
        min_score=min_score,
        offset=offset,
    )
    return SelectedDetections(dets, labels, indices)
