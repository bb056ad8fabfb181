"""Overlap of boxes."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call


def box_iou(
    boxes1: ArrayLike, boxes2: ArrayLike, mode: Literal["iou", "iof"] = "iou", aligned: bool = False, offset: int = 0
) -> NDArray[Any]:
    """Compute how far boxes overlap, for all pairs or row by row.

    Parameters
    ----------
    boxes1 : array_like, [N, 4]
        Corners (x1, y1, x2, y2), in any unit; float16, float32 or float64 (integers are taken as float64).
    boxes2 : array_like, [M, 4]
        Likewise; with `aligned` M must be N.
    mode : {"iou", "iof"}, default "iou"
        Divide the common area by the area of the union, or by that of the box from `boxes1` ("foreground").
    aligned : bool, default False
        Compare row i with row i only.
    offset : int, default 0
        Added to widths and heights; 1 if corners are pixel indices and both belong to the box.

    Returns
    -------
    ndarray, [N, M], or [N] with `aligned`
        Of the common floating dtype of the inputs.  NaN where the divisor is zero, that is for boxes without area.

    Raises
    ------
    ValueError
        If a shape is another, or `mode` another word.
    TypeError
        If an array does not hold real numbers.

    Notes
    -----
    float16 is computed in float32.  Source: ``mmcv.ops.bbox_overlaps``, ``torchvision.ops.box_iou``.

    Examples
    --------
    >>> import mmort
    >>> mmort.box_iou([[0, 0, 2, 2]], [[1, 0, 3, 2], [5, 5, 6, 6]])
    array([[0.33333333, 0.        ]])
    """
    (first, second), dtype = _arrays.floating("box_iou", boxes1=boxes1, boxes2=boxes2)
    foreground = _arrays.choice("box_iou", "mode", mode, ("iou", "iof"))
    (overlaps,) = call(
        "box_iou", (first, second), (foreground, int(bool(aligned)), _arrays.integer("box_iou", "offset", offset))
    )
    return overlaps.astype(dtype, copy=False)
