"""Sampling of feature maps at given places."""

from __future__ import annotations

from typing import Any, Literal

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call

MODES = ("bilinear", "nearest", "bicubic")
PADDING_MODES = ("zeros", "border", "reflection")

Mode = Literal["bilinear", "nearest", "bicubic"]
PaddingMode = Literal["zeros", "border", "reflection"]


def grid_sample(
    input: ArrayLike,
    grid: ArrayLike,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> NDArray[Any]:
    """Read feature maps at the places a grid names, between pixels too; as ``torch.nn.functional.grid_sample``.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Of any real dtype but bool.
    grid : array_like, [N, OH, OW, 2]
        x (along W) and y (along H) of every place to read, from -1 (left, top) to 1 (right, bottom).  Further columns
        are ignored.
    mode : {"bilinear", "nearest", "bicubic"}
        How values between pixels are made.  "nearest" rounds halves to even; "bicubic" is cubic convolution with
        a = -0.75.
    padding_mode : {"zeros", "border", "reflection"}
        What lies outside of the map: zeros, the pixel of the border that is nearest, or the map mirrored at its borders.
    align_corners : bool
        Whether -1 and 1 are the centres of the outermost pixels (True) or their outer edges (False).

    Returns
    -------
    ndarray, [N, C, OH, OW]
        Of the inputs' common floating dtype; float16 is computed in float32, integers in float64.  Empty if N, C, OH or
        OW is 0.

    Raises
    ------
    ValueError
        If a shape does not fit, a mode is another word, or there are places to read but H or W is 0.
    TypeError
        If a dtype is not real.

    Notes
    -----
    Infinite places, and NaN, are outside: with zeros padding they give 0, with the other two the value at the
    border (at the last row or column for NaN); bicubic gives NaN.

    Source: ``torch.nn.functional.grid_sample``; MMCV's and MMDeploy's ``grid_sampler`` operator.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> image = np.array([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> grid = np.array([[[[-1.0, -1.0], [0.0, 0.0], [1.0, 0.0]]]])
    >>> mmort.grid_sample(image, grid, align_corners=True)
    array([[[[0. , 1.5, 2. ]]]])
    """
    return _sample("grid_sample", input, grid, mode, padding_mode, align_corners)


def _sample(
    operator: str, input: ArrayLike, grid: ArrayLike, mode: Mode, padding_mode: PaddingMode, align_corners: bool
) -> NDArray[Any]:
    arrays, dtype = _arrays.floating(operator, input=input, grid=grid)
    attributes = (
        _arrays.choice(operator, "mode", mode, MODES),
        _arrays.choice(operator, "padding_mode", padding_mode, PADDING_MODES),
        int(bool(align_corners)),
    )
    (output,) = call("grid_sample", tuple(arrays), attributes)
    return output.astype(dtype, copy=False)
