"""Rotated boxes: their overlap, suppression, and the features under them.

A box is (centre x, centre y, width, height, angle).  With x to the right and y downwards, a positive angle in radians
turns it clockwise on screen, unless a function has an argument `clockwise` that says otherwise.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort._kernels import as_floating, as_integer, as_number, call
from mmort.ops._other_names import explains_other_names
from mmort.ops.nms import KeptBoxes

__all__ = [
    "box_iou_rotated",
    "multiclass_nms_rotated",
    "nms_rotated",
    "nms_rotated_indices",
    "roi_align_rotated",
    "rotated_feature_align",
]


class SelectedRotatedDetections(NamedTuple):
    """Result of `multiclass_nms_rotated`."""

    dets: NDArray[Any]
    labels: NDArray[np.int64]


def box_iou_rotated(
    bboxes1: ArrayLike,
    bboxes2: ArrayLike,
    mode: Literal["iou", "iof"] = "iou",
    aligned: bool = False,
    clockwise: bool = True,
) -> NDArray[Any]:
    """Compute the intersection over union of rotated boxes, for all pairs or row by row.

    Parameters
    ----------
    bboxes1 : array_like of shape (N, 5)
        Centre, width, height, angle (x, y, w, h, a), in any unit and radians; float16, float32 or float64 (integers are
        converted to float64).
    bboxes2 : array_like of shape (M, 5)
        As `bboxes1`; with `aligned` M must be N.
    mode : {"iou", "iof"}, default "iou"
        Divide the area of the intersection by that of the union, or by that of the box from `bboxes1` ("foreground").
    aligned : bool, default False
        Compare row i of `bboxes1` with row i of `bboxes2` only.
    clockwise : bool, default True
        Whether a positive angle turns a box clockwise on screen (y downwards).

    Returns
    -------
    ndarray of shape (N, M), or (N,) with `aligned`
        Of the common floating dtype of the inputs, within [0, 1].  0 where a box has no area, NaN where a box is not
        finite.

    Raises
    ------
    ValueError
        If a shape does not match, or `mode` is not one of the words above.
    TypeError
        If an array is not of a real dtype.

    Notes
    -----
    Computed in float64 for every dtype, and exchanging `bboxes1` and `bboxes2` gives the same bits.  Boxes that nearly
    coincide and tiny boxes are as exact as any, where MMCV's tolerances are absolute; MMCV lets boxes of an area below
    1e-14 overlap nothing, mmort only boxes without area.

    Source: ``mmcv.ops.box_iou_rotated``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> mmort.box_iou_rotated([[0, 0, 4, 2, 0]], [[0, 0, 4, 2, 0], [0, 0, 4, 2, np.pi / 2]]).round(6)
    array([[1.      , 0.333333]])
    """
    (overlaps,) = call(
        "box_iou_rotated", bboxes1=bboxes1, bboxes2=bboxes2, mode=mode, aligned=aligned, clockwise=clockwise
    )
    return overlaps


@explains_other_names
def nms_rotated(
    dets: ArrayLike,
    scores: ArrayLike,
    iou_threshold: float,
    labels: ArrayLike | None = None,
    clockwise: bool = True,
    suppress_equal: bool = True,
) -> KeptBoxes:
    """Perform greedy non-maximum suppression on rotated boxes.

    Parameters
    ----------
    dets : array_like of shape (N, 5)
        Centre, width, height, angle (x, y, w, h, a), in any unit and radians; float16, float32 or float64 (integers are
        converted to float64).
    scores : array_like of shape (N,)
        Score of each box.
    iou_threshold : float
        A box is removed if its intersection over union with a kept box of higher score is greater than this, or equal
        to it.
    labels : array_like of int, shape (N,), optional
        Class of each box: only boxes of the same class suppress each other.
    clockwise : bool, default True
        Whether a positive angle turns a box clockwise on screen (y downwards).
    suppress_equal : bool, default True
        Whether an intersection over union equal to `iou_threshold` removes a box, as in MMCV on a CPU but not on a GPU.

    Returns
    -------
    dets : ndarray of shape (K, 6)
        The kept boxes with their scores in the last column, by descending score; of the common floating dtype of the
        inputs.
    indices : ndarray of int64, shape (K,)
        Their indices in `dets`.

    Raises
    ------
    ValueError
        If a shape does not match, or `iou_threshold` is NaN.
    TypeError
        If an array is not of a real dtype (`labels`: of integers), or `iou_threshold` is not a number.

    Notes
    -----
    Among equal scores the box with the lower index comes first; NaN scores come last.  Overlaps are those of
    `box_iou_rotated`: boxes that are not finite are kept and suppress nothing.

    Source: ``mmcv.ops.nms_rotated``, which ignores `labels` on a CPU.

    Examples
    --------
    >>> import mmort
    >>> boxes = [[0, 0, 4, 2, 0], [0, 0, 4, 2, 0.1], [9, 9, 4, 2, 0]]
    >>> mmort.nms_rotated(boxes, [0.8, 0.9, 0.7], 0.5).indices
    array([1, 2])
    """
    indices, kept = call(
        "nms_rotated",
        dets=dets,
        scores=scores,
        labels=labels,
        iou_threshold=iou_threshold,
        clockwise=clockwise,
        suppress_equal=suppress_equal,
    )
    return KeptBoxes(kept, indices)


def nms_rotated_indices(
    boxes: ArrayLike, scores: ArrayLike, iou_threshold: float, score_threshold: float
) -> NDArray[np.int64]:
    """Select rotated boxes by suppression within each image and class, as MMDeploy's ``NMSRotated``.

    Parameters
    ----------
    boxes : array_like of shape (B, K, 5)
        Boxes of each image, shared by all classes: centre, width, height, angle (x, y, w, h, a), clockwise with y
        downwards, in radians; float16, float32 or float64 (integers are converted to float64).
    scores : array_like of shape (B, C, K)
        Score of each box for each class.
    iou_threshold : float
        A box is removed if its intersection over union with a kept box of higher score is greater than this.
    score_threshold : float
        Only scores greater than this take part.

    Returns
    -------
    ndarray of int64, shape (S, 3)
        Image, class and box of each selected one: by image, then by class, then by descending score.

    Raises
    ------
    ValueError
        If a shape does not match, or a threshold is NaN.
    TypeError
        If an array is not of a real dtype, or a threshold is not a number.

    Notes
    -----
    Ties and boxes that are not finite are handled as in `nms_rotated`.

    Source: MMDeploy's ``NMSRotated`` operator.

    Examples
    --------
    >>> import mmort
    >>> mmort.nms_rotated_indices([[[0, 0, 4, 2, 0], [0, 0, 4, 2, 0.1]]], [[[0.8, 0.9]]], 0.5, 0.1)
    array([[0, 0, 1]])
    """
    (indices,) = call(
        "nms_rotated_indices",
        boxes=boxes,
        scores=scores,
        iou_threshold=iou_threshold,
        score_threshold=score_threshold,
    )
    return indices


def multiclass_nms_rotated(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: int = 1000,
    iou_threshold: float = 0.1,
    score_threshold: float = 0.05,
    pre_top_k: int = -1,
    keep_top_k: int = -1,
) -> SelectedRotatedDetections:
    """Select detections from the rotated boxes and class scores of a batch.

    Parameters
    ----------
    boxes : array_like of shape (B, K, 5)
        Boxes of each image, shared by all classes: centre, width, height, angle (x, y, w, h, a), clockwise with y
        downwards, in radians; float16, float32 or float64 (integers are converted to float64).
    scores : array_like of shape (B, K, C)
        Score of each box for each class.
    max_output_boxes_per_class : int, default 1000
        If positive, the maximum number of boxes of one class that are kept in an image.
    iou_threshold : float, default 0.1
        A box is removed if its intersection over union with a kept box of the same class and higher score is greater
        than this.
    score_threshold : float, default 0.05
        Only scores greater than this take part.
    pre_top_k : int, default -1
        If positive, the number of boxes of an image that take part: those with the highest score in any class.
    keep_top_k : int, default -1
        If positive, the maximum number of detections in an image.

    Returns
    -------
    dets : ndarray of shape (B, n, 6)
        Boxes with their scores in the last column, by descending score; n is the largest number of detections in an
        image, and images with fewer are padded with zeros.
    labels : ndarray of int64, shape (B, n)
        The classes; -1 in padding.

    Raises
    ------
    ValueError
        If a shape does not match, or a threshold is NaN.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    Among equal scores the lower class comes first, then the lower box.

    Source: ``multiclass_nms_rotated`` of MMDeploy, which pads with one more row and ignores
    `max_output_boxes_per_class` in ONNX Runtime.

    Examples
    --------
    >>> import mmort
    >>> dets, labels = mmort.multiclass_nms_rotated([[[0, 0, 4, 2, 0], [9, 9, 4, 2, 0]]], [[[0.9, 0.3], [0.1, 0.8]]])
    >>> dets[0, :, 5], labels
    (array([0.9, 0.8, 0.3, 0.1]), array([[0, 1, 1, 0]]))
    """
    function = "multiclass_nms_rotated"
    (rows, values), dtype = as_floating(function, boxes=boxes, scores=scores)
    if rows.ndim != 3 or rows.shape[2] != 5:
        raise ValueError(f"{function}: boxes must be [B, K, 5], got {list(rows.shape)}")
    images, count = rows.shape[:2]
    if values.ndim != 3 or values.shape[:2] != (images, count):
        raise ValueError(
            f"{function}: scores must be [B, K, C] with B = {images}, K = {count}, got {list(values.shape)}"
        )
    thresholds = {"iou_threshold": iou_threshold, "score_threshold": score_threshold}
    for name, threshold in thresholds.items():
        if np.isnan(as_number(function, name, threshold)):
            raise ValueError(f"{function}: {name} must be a number, got nan")
    max_per_class = as_integer(function, "max_output_boxes_per_class", max_output_boxes_per_class)
    max_before = as_integer(function, "pre_top_k", pre_top_k)
    max_per_image = as_integer(function, "keep_top_k", keep_top_k)
    if 0 < max_before < count:
        highest = np.fmax.reduce(values, axis=2, initial=-np.inf)
        chosen = np.sort(np.argsort(-highest, axis=1, kind="stable")[:, :max_before], axis=1)[:, :, None]
        rows, values = np.take_along_axis(rows, chosen, axis=1), np.take_along_axis(values, chosen, axis=1)
    indices = nms_rotated_indices(rows, values.transpose(0, 2, 1), **thresholds)
    if max_per_class > 0:
        indices = indices[_ranks(indices[:, 0] * values.shape[2] + indices[:, 1]) < max_per_class]
    kept_scores = values[indices[:, 0], indices[:, 2], indices[:, 1]]
    order = np.lexsort((-kept_scores, indices[:, 0]))
    indices, kept_scores = indices[order], kept_scores[order]
    ranks = _ranks(indices[:, 0])
    if max_per_image > 0:
        best = ranks < max_per_image
        indices, kept_scores, ranks = indices[best], kept_scores[best], ranks[best]
    longest = int(ranks.max(initial=-1)) + 1
    dets, labels = np.zeros((images, longest, 6), dtype), np.full((images, longest), -1, np.int64)
    dets[indices[:, 0], ranks, :5] = rows[indices[:, 0], indices[:, 2]]
    dets[indices[:, 0], ranks, 5] = kept_scores
    labels[indices[:, 0], ranks] = indices[:, 1]
    return SelectedRotatedDetections(dets, labels)


def _ranks(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the position of each member within its group; `groups` are in ascending order."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


@explains_other_names
def roi_align_rotated(
    input: ArrayLike,
    rois: ArrayLike,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> NDArray[Any]:
    """Average the features of rotated regions of interest in bins, by bilinear sampling.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Feature maps; float16, float32 or float64 (integers are converted to float64).
    rois : array_like of shape (K, 6)
        Batch index, centre, width, height, angle (i, x, y, w, h, a), in units of the image that the map was computed
        from, and radians.
    output_size : int or (int, int)
        Number of bins along a region's height and width.
    spatial_scale : float, default 1.0
        Size of the map divided by that of the image.
    sampling_ratio : int, default 0
        Samples along each axis of a bin, at most 1024.  0 or less: the size of a bin in pixels, rounded up.
    aligned : bool, default True
        Whether the centre of a pixel is at its index + 0.5.  If not, it is at its index, and a region counts as at
        least one pixel wide and high.
    clockwise : bool, default False
        Whether a positive angle turns a region clockwise on screen (y downwards).

    Returns
    -------
    ndarray of shape (K, C, output height, output width)
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape does not match, a batch index is not one of `input`, a region is not finite, or has more than 2**26
        samples.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    Samples up to one pixel outside the map take the border's value; those further out count as 0.  A region of zero or
    negative size has no samples if `aligned` and `sampling_ratio` is 0, and gives 0.

    Source: ``mmcv.ops.roi_align_rotated``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> image = [[[[1.0, 2.0], [3.0, 4.0]]]]
    >>> mmort.roi_align_rotated(image, [[0, 1, 1, 2, 2, np.pi / 2]], 2, sampling_ratio=1).round(6)
    array([[[[3., 1.],
             [4., 2.]]]])
    """
    (output,) = call(
        "roi_align_rotated",
        input=input,
        rois=rois,
        output_size=output_size,
        spatial_scale=spatial_scale,
        sampling_ratio=sampling_ratio,
        aligned=aligned,
        clockwise=clockwise,
    )
    return output


def rotated_feature_align(
    features: ArrayLike, best_rbboxes: ArrayLike, spatial_scale: float = 1 / 8, points: int = 1
) -> NDArray[Any]:
    """Add to each location's features those at the centre and the corners of the box predicted there.

    Parameters
    ----------
    features : array_like of shape (N, C, H, W)
        float16, float32 or float64 (integers are converted to float64).
    best_rbboxes : array_like of shape (N, H, W, 5)
        A box for each location, in units of the image: **row** and column of the centre, width, height, angle in
        radians.  MMCV reads a box's first number as the row, although its callers put x there; mmort keeps that, as
        models have been trained with it.
    spatial_scale : float, default 1 / 8
        Size of the map divided by that of the image.
    points : int, default 1
        1: the centre; 2 to 5: also the first 1 to 4 corners.

    Returns
    -------
    ndarray of shape (N, C, H, W)
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape does not match, `points` is out of range, or a number of `best_rbboxes` that is used is NaN.
    TypeError
        If an array is not of a real dtype, or another argument not of its type.

    Notes
    -----
    Points up to one pixel outside the map take the border's value; those further out, and infinite ones, add nothing.

    Source: X. Yang et al., "R3Det: Refined Single-Stage Detector with Feature Refinement for Rotating Object", AAAI
    2021; ``mmcv.ops.rotated_feature_align``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> mmort.rotated_feature_align([[[[1.0, 2.0, 3.0]]]], np.array([[[[0, 2, 1, 1, 0]] * 3]]), spatial_scale=1)
    array([[[[4., 5., 6.]]]])
    """
    (output,) = call(
        "rotated_feature_align",
        features=features,
        best_rbboxes=best_rbboxes,
        spatial_scale=spatial_scale,
        points=points,
    )
    return output
