"""Sampling of feature maps at given positions."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort._kernels import as_floating, call

__all__ = ["grid_sample", "point_sample"]

Mode = Literal["bilinear", "nearest", "bicubic"]
PaddingMode = Literal["zeros", "border", "reflection"]


def grid_sample(
    input: ArrayLike,
    grid: ArrayLike,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
    align_corners: bool = False,
) -> NDArray[Any]:
    """Sample feature maps at the positions of a grid, as ``torch.nn.functional.grid_sample``.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Of any real dtype but bool.  What is channels-last in memory is read as it is, without a copy.
    grid : array_like of shape (N, OH, OW, 2)
        x (along W) and y (along H) of each position, from -1 (left, top) to 1 (right, bottom).  Further columns are
        ignored.
    mode : {"bilinear", "nearest", "bicubic"}, default "bilinear"
        Interpolation between pixels.  "nearest" rounds halves to even; "bicubic" is cubic convolution with a = -0.75.
    padding_mode : {"zeros", "border", "reflection"}, default "zeros"
        Values outside the map: zeros, the nearest pixel of the border, or the map mirrored at its borders.
    align_corners : bool, default False
        Whether -1 and 1 are the centres of the outermost pixels (True) or their outer edges (False).

    Returns
    -------
    ndarray of shape (N, C, OH, OW)
        Of the common floating dtype of the inputs; float16 is computed in float32, integers in float64.

    Raises
    ------
    ValueError
        If a shape does not match, a mode is not one of the words above, or H or W is 0 while there are positions.
    TypeError
        If an array is not of a real dtype.

    Notes
    -----
    Positions that are infinite or NaN are outside the map: with zeros padding they give 0, with the other two the value
    at the border (at the last row or column for NaN); bicubic gives NaN.

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
    (output,) = call(
        "grid_sample", input=input, grid=grid, mode=mode, padding_mode=padding_mode, align_corners=align_corners
    )
    return output


def point_sample(
    input: ArrayLike,
    points: ArrayLike,
    align_corners: bool = False,
    mode: Mode = "bilinear",
    padding_mode: PaddingMode = "zeros",
) -> NDArray[Any]:
    """Sample feature maps at points in relative coordinates, as ``mmcv.ops.point_sample``.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Of any real dtype but bool.
    points : array_like of shape (N, P, 2) or (N, OH, OW, 2)
        x (along W) and y (along H) of each point, from 0 (left, top) to 1 (right, bottom).
    align_corners : bool, default False
        Whether 0 and 1 are the centres of the outermost pixels (True) or their outer edges (False).
    mode : {"bilinear", "nearest", "bicubic"}, default "bilinear"
        As in `grid_sample`.
    padding_mode : {"zeros", "border", "reflection"}, default "zeros"
        As in `grid_sample`.

    Returns
    -------
    ndarray of shape (N, C, P) or (N, C, OH, OW)
        Of the common floating dtype of the inputs; float16 is computed in float32, integers in float64.

    Raises
    ------
    ValueError
        If a shape does not match, a mode is not one of the words above, or H or W is 0 while there are points.
    TypeError
        If an array is not of a real dtype.

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
    (features, positions), dtype = as_floating("point_sample", input=input, points=points)
    grid = np.asarray(positions) * 2 - 1
    if len(shape) == 3:
        grid = grid[:, :, np.newaxis]
    (output,) = call(
        "grid_sample",
        "point_sample",
        input=features,
        grid=grid,
        mode=mode,
        padding_mode=padding_mode,
        align_corners=align_corners,
    )
    return (output[..., 0] if len(shape) == 3 else output).astype(dtype, copy=False)
