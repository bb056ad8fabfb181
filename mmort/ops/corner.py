"""Corner pooling."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["corner_pool"]


def corner_pool(input: ArrayLike, mode: Literal["top", "bottom", "left", "right"]) -> NDArray[Any]:
    """Compute the running maximum of a feature map along one axis, towards one edge.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Of any real dtype.
    mode : {"top", "bottom", "left", "right"}
        The edge that the maximum runs towards.  With "top", row h of the result is the maximum over rows h, h + 1, ...,
        H - 1; with "bottom", over rows 0 to h; "left" and "right" do the same with columns.

    Returns
    -------
    ndarray of shape (N, C, H, W)
        Of the input's dtype.

    Raises
    ------
    ValueError
        If `input` does not have four dimensions, or `mode` is not one of the words above.
    TypeError
        If `input` is not of a real dtype.

    Notes
    -----
    NaN propagates: from the first NaN on, a line's result is NaN.  Of 0.0 and -0.0 the earlier one stays.

    Source: H. Law and J. Deng, "CornerNet: Detecting Objects as Paired Keypoints", ECCV 2018; ``mmcv.ops.CornerPool``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> mmort.corner_pool(np.array([[[[1, 3, 2, 0]]]]), "left")
    array([[[[3, 3, 2, 0]]]])
    """
    (output,) = call("corner_pool", input=input, mode=mode)
    return output
