"""Overlap of boxes."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["box_iou"]


def box_iou(
    boxes1: ArrayLike, boxes2: ArrayLike, mode: Literal["iou", "iof"] = "iou", aligned: bool = False, offset: int = 0
) -> NDArray[Any]:
    """Compute the intersection over union of boxes, for all pairs or row by row.

    Parameters
    ----------
    boxes1 : array_like of shape (N, 4)
        Corners (x1, y1, x2, y2) in any unit; float16, float32 or float64 (integers are converted to float64).
    boxes2 : array_like of shape (M, 4)
        As `boxes1`; with `aligned` M must be N.
    mode : {"iou", "iof"}, default "iou"
        Divide the area of the intersection by that of the union, or by that of the box from `boxes1` ("foreground").
    aligned : bool, default False
        Compare row i of `boxes1` with row i of `boxes2` only.
    offset : int, default 0
        Added to widths and heights; 1 if corners are indices of pixels that both belong to the box.

    Returns
    -------
    ndarray of shape (N, M), or (N,) with `aligned`
        Of the common floating dtype of the inputs.  NaN where the divisor is zero, that is for boxes without area.

    Raises
    ------
    ValueError
        If a shape does not match, or `mode` is not one of the words above.
    TypeError
        If an array is not of a real dtype, or `offset` is not an integer.

    Notes
    -----
    float16 is computed in float32.

    Source: ``mmcv.ops.bbox_overlaps``, ``torchvision.ops.box_iou``.

    Examples
    --------
    >>> import mmort
    >>> mmort.box_iou([[0, 0, 2, 2]], [[1, 0, 3, 2], [5, 5, 6, 6]])
    array([[0.33333333, 0.        ]])
    """
    (overlaps,) = call("box_iou", boxes1=boxes1, boxes2=boxes2, mode=mode, aligned=aligned, offset=offset)
    return overlaps
