"""Sampling of feature maps at given places."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
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
        What lies outside of the map: zeros, the nearest pixel of the border, or the map mirrored at its borders.
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
    arrays, dtype = _arrays.floating("grid_sample", input=input, grid=grid)
    (output,) = call("grid_sample", tuple(arrays), _attributes("grid_sample", mode, padding_mode, align_corners))
    return output.astype(dtype, copy=False)


def point_sample(
    input: ArrayLike,
    points: ArrayLike,
    align_corners: bool = False,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
) -> NDArray[Any]:
    """Read feature maps at points in relative coordinates; as ``mmcv.ops.point_sample``.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Of any real dtype but bool.
    points : array_like, [N, P, 2] or [N, OH, OW, 2]
        x (along W) and y (along H) of every point, from 0 (left, top) to 1 (right, bottom).
    align_corners : bool
        Whether 0 and 1 are the centres of the outermost pixels (True) or their outer edges (False).
    mode : {"bilinear", "nearest", "bicubic"}
        As in `grid_sample`.
    padding_mode : {"zeros", "border", "reflection"}
        As in `grid_sample`.

    Returns
    -------
    ndarray, [N, C, P] or [N, C, OH, OW]
        Of the inputs' common floating dtype; float16 is computed in float32, integers in float64.  Empty if N, C or
        the number of points is 0.

    Raises
    ------
    ValueError
        If a shape does not fit, a mode is another word, or there are points to read but H or W is 0.
    TypeError
        If a dtype is not real.

    Notes
    -----
    Equal to ``grid_sample(input, 2 * points - 1)``.

    Source: A. Kirillov et al., "PointRend: Image Segmentation as Rendering", CVPR 2020; ``mmcv.ops.point_sample``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> image = np.array([[[[0.0, 1.0], [2.0, 3.0]]]])
    >>> mmort.point_sample(image, np.array([[[0.5, 0.5], [0.75, 0.25]]]))
    array([[[1.5, 1. ]]])
    """
    shape = np.shape(points)
    if len(shape) not in (3, 4) or shape[-1] != 2:
        raise ValueError(f"point_sample: points must be [N, P, 2] or [N, OH, OW, 2], got {list(shape)}")
    (array, places), dtype = _arrays.floating("point_sample", input=input, points=points)
    grid = np.asarray(places) * 2 - 1
    if len(shape) == 3:
        grid = grid[:, :, np.newaxis]
    (output,) = call("grid_sample", (array, grid), _attributes("point_sample", mode, padding_mode, align_corners))
    return (output[..., 0] if len(shape) == 3 else output).astype(dtype, copy=False)


def _attributes(operator: str, mode: Mode, padding_mode: PaddingMode, align_corners: bool) -> tuple[int, int, int]:
    return (
        _arrays.choice(operator, "mode", mode, MODES),
        _arrays.choice(operator, "padding_mode", padding_mode, PADDING_MODES),
        int(bool(align_corners)),
    )
