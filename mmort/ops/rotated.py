"""Rotated boxes: their overlap, suppression, and the features under them.

A box is (centre x, centre y, width, height, angle).  With x to the right and y downwards, a positive angle in radians
turns it clockwise on screen, unless a function is told otherwise.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call


def box_iou_rotated(
    bboxes1: ArrayLike,
    bboxes2: ArrayLike,
    mode: Literal["iou", "iof"] = "iou",
    aligned: bool = False,
    clockwise: bool = True,
) -> NDArray[Any]:
    """Compute how far rotated boxes overlap, for all pairs or row by row.

    Parameters
    ----------
    bboxes1 : array_like, [N, 5]
        Centre, width, height, angle (x, y, w, h, a), in any unit and radians; float16, float32 or float64 (integers are
        taken as float64).
    bboxes2 : array_like, [M, 5]
        Likewise; with `aligned` M must be N.
    mode : {"iou", "iof"}, default "iou"
        Divide the common area by the area of the union, or by that of the box from `bboxes1` ("foreground").
    aligned : bool, default False
        Compare row i with row i only.
    clockwise : bool, default True
        Whether a positive angle turns a box clockwise on screen (y downwards).

    Returns
    -------
    ndarray, [N, M], or [N] with `aligned`
        Of the common floating dtype of the inputs, within [0, 1].  0 where a box has no area, NaN where one is not
        finite.

    Raises
    ------
    ValueError
        If a shape is another, or `mode` another word.
    TypeError
        If an array does not hold real numbers.

    Notes
    -----
    Computed in float64 whatever the dtype, and exchanging `bboxes1` and `bboxes2` gives the same bits.  Boxes that
    nearly coincide and tiny ones are as exact as any, where MMCV's tolerances are absolute; MMCV lets boxes of an area
    below 1e-14 overlap nothing, mmort only those of none.

    Source: ``mmcv.ops.box_iou_rotated``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> mmort.box_iou_rotated([[0, 0, 4, 2, 0]], [[0, 0, 4, 2, 0], [0, 0, 4, 2, np.pi / 2]]).round(6)
    array([[1.      , 0.333333]])
    """
    (first, second), dtype = _arrays.floating("box_iou_rotated", bboxes1=bboxes1, bboxes2=bboxes2)
    foreground = _arrays.choice("box_iou_rotated", "mode", mode, ("iou", "iof"))
    (overlaps,) = call("box_iou_rotated", (first, second), (foreground, int(bool(aligned)), int(bool(clockwise))))
    return overlaps.astype(dtype, copy=False)


def nms_rotated(
    dets: ArrayLike, scores: ArrayLike, iou_threshold: float, labels: ArrayLike | None = None, clockwise: bool = True
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Keep the best rotated boxes and drop those that overlap a kept one by a threshold or more.

    Parameters
    ----------
    dets : array_like, [N, 5]
        Centre, width, height, angle (x, y, w, h, a), in any unit and radians; float16, float32 or float64 (integers are
        taken as float64).
    scores : array_like, [N]
    iou_threshold : float
        A box is dropped if its intersection over union with a kept box of higher score is this or above.
    labels : array_like of integers, [N], optional
        The class of each box: only boxes of one class suppress each other.
    clockwise : bool, default True
        Whether a positive angle turns a box clockwise on screen (y downwards).

    Returns
    -------
    dets : ndarray, [K, 6]
        The kept boxes with their scores in the last column, by descending score; of the inputs' common floating dtype.
    keep : ndarray of int64, [K]
        Their places in `dets`.

    Raises
    ------
    ValueError
        If a shape is another, or `iou_threshold` is NaN.
    TypeError
        If an array does not hold the numbers it should, or `iou_threshold` is none.

    Notes
    -----
    Among equal scores the box with the lower index comes first; NaN scores come last.  Overlaps are those of
    `box_iou_rotated`: boxes that are not finite are kept and suppress nothing.  No boxes give empty arrays.

    Source: ``mmcv.ops.nms_rotated``, which ignores `labels` on a CPU.

    Examples
    --------
    >>> import mmort
    >>> dets, keep = mmort.nms_rotated([[0, 0, 4, 2, 0], [0, 0, 4, 2, 0.1], [9, 9, 4, 2, 0]], [0.8, 0.9, 0.7], 0.5)
    >>> keep
    array([1, 2])
    """
    (boxes, values), dtype = _arrays.floating("nms_rotated", dets=dets, scores=scores)
    classes = None if labels is None else _arrays.integers("nms_rotated", "labels", labels)
    attributes = (_arrays.number("nms_rotated", "iou_threshold", iou_threshold), int(bool(clockwise)))
    keep, kept = call("nms_rotated", (boxes, values, classes), attributes)
    return kept.astype(dtype, copy=False), keep


def nms_rotated_indices(
    boxes: ArrayLike, scores: ArrayLike, iou_threshold: float, score_threshold: float
) -> NDArray[np.int64]:
    """Select rotated boxes by suppression within each image and class; as MMDeploy's ``NMSRotated``.

    Parameters
    ----------
    boxes : array_like, [B, K, 5]
        Of each image, shared by all classes: centre, width, height, angle (x, y, w, h, a), clockwise with y downwards,
        in radians; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [B, C, K]
    iou_threshold : float
        A box is dropped if its intersection over union with a kept box of higher score is above this (not: equal).
    score_threshold : float
        Only scores above this count.

    Returns
    -------
    ndarray of int64, [S, 3]
        Image, class and box of each selected one: by image, then by class, then by descending score.

    Raises
    ------
    ValueError
        If a shape is another, or a threshold is NaN.
    TypeError
        If an array does not hold real numbers, or a threshold is none.

    Notes
    -----
    Ties and boxes that are not finite as in `nms_rotated`.  Source: ``mmdeploy::NMSRotated``.

    Examples
    --------
    >>> import mmort
    >>> mmort.nms_rotated_indices([[[0, 0, 4, 2, 0], [0, 0, 4, 2, 0.1]]], [[[0.8, 0.9]]], 0.5, 0.1)
    array([[0, 0, 1]])
    """
    arrays, _ = _arrays.floating("nms_rotated_indices", boxes=boxes, scores=scores)
    attributes = (
        _arrays.number("nms_rotated_indices", "iou_threshold", iou_threshold),
        _arrays.number("nms_rotated_indices", "score_threshold", score_threshold),
    )
    (indices,) = call("nms_rotated_indices", tuple(arrays), attributes)
    return indices


def multiclass_nms_rotated(
    boxes: ArrayLike,
    scores: ArrayLike,
    max_output_boxes_per_class: int = 1000,
    iou_threshold: float = 0.1,
    score_threshold: float = 0.05,
    pre_top_k: int = -1,
    keep_top_k: int = -1,
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Turn a detector's rotated boxes and class scores into its detections.

    Parameters
    ----------
    boxes : array_like, [B, K, 5]
        Of each image, shared by all classes: centre, width, height, angle (x, y, w, h, a), clockwise with y downwards,
        in radians; float16, float32 or float64 (integers are taken as float64).
    scores : array_like, [B, K, C]
    max_output_boxes_per_class : int, default 1000
        If above 0, at most so many of one class are kept in an image.
    iou_threshold : float, default 0.1
        A box is dropped if its intersection over union with a kept box of the same class and higher score is above
        this.
    score_threshold : float, default 0.05
        Only scores above this count.
    pre_top_k : int, default -1
        If above 0, only so many boxes of an image take part: those with the highest score in any class.
    keep_top_k : int, default -1
        If above 0, at most so many detections of an image are kept.

    Returns
    -------
    dets : ndarray, [B, n, 6]
        Boxes with their scores in the last column, by descending score; n is the largest number of detections in an
        image, and images with fewer are filled up with zeros.
    labels : ndarray of int64, [B, n]
        The classes; -1 where filled up.

    Raises
    ------
    ValueError
        If a shape is another, or a threshold is NaN.
    TypeError
        If an array does not hold real numbers, or a number is none.

    Notes
    -----
    Among equal scores the lower class, then the lower box comes first.

    Source: ``multiclass_nms_rotated`` of MMDeploy, which adds one more row to fill up and ignores
    `max_output_boxes_per_class` in ONNX Runtime.

    Examples
    --------
    >>> import mmort
    >>> dets, labels = mmort.multiclass_nms_rotated([[[0, 0, 4, 2, 0], [9, 9, 4, 2, 0]]], [[[0.9, 0.3], [0.1, 0.8]]])
    >>> dets[0, :, 5], labels
    (array([0.9, 0.8, 0.3, 0.1]), array([[0, 1, 1, 0]]))
    """
    name = "multiclass_nms_rotated"
    (rows, values), dtype = _arrays.floating(name, boxes=boxes, scores=scores)
    if rows.ndim != 3 or rows.shape[2] != 5:
        raise ValueError(f"{name}: boxes must be [B, K, 5], got {list(rows.shape)}")
    images, count = rows.shape[:2]
    if values.ndim != 3 or values.shape[:2] != (images, count):
        raise ValueError(f"{name}: scores must be [B, K, C] with B = {images}, K = {count}, got {list(values.shape)}")
    thresholds = (
        _arrays.number(name, "iou_threshold", iou_threshold),
        _arrays.number(name, "score_threshold", score_threshold),
    )
    for argument, threshold in zip(("iou_threshold", "score_threshold"), thresholds, strict=True):
        if np.isnan(threshold):
            raise ValueError(f"{name}: {argument} must be a number, got nan")
    most_each = _arrays.integer(name, "max_output_boxes_per_class", max_output_boxes_per_class)
    most_before = _arrays.integer(name, "pre_top_k", pre_top_k)
    most = _arrays.integer(name, "keep_top_k", keep_top_k)
    if 0 < most_before < count:
        best = np.fmax.reduce(values, axis=2, initial=-np.inf)
        chosen = np.sort(np.argsort(-best, axis=1, kind="stable")[:, :most_before], axis=1)[:, :, None]
        rows, values = np.take_along_axis(rows, chosen, axis=1), np.take_along_axis(values, chosen, axis=1)
    (indices,) = call("nms_rotated_indices", (rows, np.ascontiguousarray(values.transpose(0, 2, 1))), thresholds)
    if most_each > 0:
        indices = indices[_places(indices[:, 0] * values.shape[2] + indices[:, 1]) < most_each]
    found = values[indices[:, 0], indices[:, 2], indices[:, 1]]
    order = np.lexsort((-found, indices[:, 0]))
    indices, found = indices[order], found[order]
    places = _places(indices[:, 0])
    if most > 0:
        indices, found, places = indices[places < most], found[places < most], places[places < most]
    longest = int(places.max(initial=-1)) + 1
    dets, labels = np.zeros((images, longest, 6), dtype), np.full((images, longest), -1, np.int64)
    dets[indices[:, 0], places, :5] = rows[indices[:, 0], indices[:, 2]]
    dets[indices[:, 0], places, 5] = found
    labels[indices[:, 0], places] = indices[:, 1]
    return dets, labels


def _places(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the place of each member within its group; `groups` are in ascending order."""
    return np.arange(len(groups)) - np.searchsorted(groups, groups)


def roi_align_rotated(
    input: ArrayLike,
    rois: ArrayLike,
    output_size: int | tuple[int, int],
    spatial_scale: float = 1.0,
    sampling_ratio: int = 0,
    aligned: bool = True,
    clockwise: bool = False,
) -> NDArray[Any]:
    """Average a feature map over the bins of rotated regions, by bilinear sampling.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        float16, float32 or float64 (integers are taken as float64).
    rois : array_like, [K, 6]
        Image index, centre, width, height, angle (i, x, y, w, h, a), in units of the image that the map was made of,
        and radians.
    output_size : int or pair of int
        Bins along a region's height and width.
    spatial_scale : float, default 1.0
        The map's size over the image's.
    sampling_ratio : int, default 0
        Samples along either axis of a bin, up to 1024; 0 or less: as many as the bin is pixels long, rounded up.
    aligned : bool, default True
        Shift coordinates by half a pixel, as those of an image count from the corner of its first pixel.  If False, do
        not, and take regions to be at least one pixel wide and high.
    clockwise : bool, default False
        Whether a positive angle turns a region clockwise on screen (y downwards).

    Returns
    -------
    ndarray, [K, C, output_height, output_width]
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape is another, an image index is not one of `input`, a region is not finite, or has more than 2**26
        samples.
    TypeError
        If an array does not hold real numbers, or a number is none.

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
    (features, regions), dtype = _arrays.floating("roi_align_rotated", input=input, rois=rois)
    height, width = _arrays.pair("roi_align_rotated", "output_size", output_size)
    attributes = (
        height,
        width,
        _arrays.number("roi_align_rotated", "spatial_scale", spatial_scale),
        _arrays.integer("roi_align_rotated", "sampling_ratio", sampling_ratio),
        int(bool(aligned)),
        int(bool(clockwise)),
    )
    (output,) = call("roi_align_rotated", (features, regions), attributes)
    return output.astype(dtype, copy=False)


def rotated_feature_align(
    features: ArrayLike, best_rbboxes: ArrayLike, spatial_scale: float = 1 / 8, points: int = 1
) -> NDArray[Any]:
    """Add to each location's features those at the centre, and the corners, of the box that was predicted there.

    Parameters
    ----------
    features : array_like, [N, C, H, W]
        float16, float32 or float64 (integers are taken as float64).
    best_rbboxes : array_like, [N, H, W, 5]
        A box for each location, in units of the image: **row** and column of the centre, width, height, angle in
        radians. MMCV reads a box's first number as the row, although its callers put x there; mmort keeps that, as
        models have been trained with it.
    spatial_scale : float, default 1 / 8
        The map's size over the image's.
    points : int, default 1
        1: the centre; 2 to 5: also the first 1 to 4 corners.

    Returns
    -------
    ndarray, [N, C, H, W]
        Of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape is another, `points` is out of range, or a number of `best_rbboxes` that is used is NaN.
    TypeError
        If an array does not hold real numbers, or a number is none.

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
    (maps, boxes), dtype = _arrays.floating("rotated_feature_align", features=features, best_rbboxes=best_rbboxes)
    attributes = (
        _arrays.number("rotated_feature_align", "spatial_scale", spatial_scale),
        _arrays.integer("rotated_feature_align", "points", points),
    )
    (output,) = call("rotated_feature_align", (maps, boxes), attributes)
    return output.astype(dtype, copy=False)
