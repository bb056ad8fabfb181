"""Corner pooling."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call

MODES = ("top", "bottom", "left", "right")


def corner_pool(input: ArrayLike, mode: Literal["top", "bottom", "left", "right"]) -> NDArray[Any]:
    """Take the running maximum of a feature map along one axis, towards one edge.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Of any real dtype.
    mode : {"top", "bottom", "left", "right"}
        The edge that the maximum runs to: with "top", row h of the result is the maximum over the rows h and below it
        (h, h + 1, ..., H - 1); with "bottom" over the rows up to h; "left" and "right" do the same with columns.

    Returns
    -------
    ndarray, [N, C, H, W]
        Of the input's dtype.  An empty input gives an empty result.

    Raises
    ------
    ValueError
        If `input` has not four dimensions, or `mode` is another word.
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
    array, dtype = _arrays.real("corner_pool", "input", input)
    (output,) = call("corner_pool", (array,), (_arrays.choice("corner_pool", "mode", mode, MODES),))
    return output.astype(dtype, copy=False)
