"""Deformable convolution."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call
from mmort.ops._other_names import explains_other_names

__all__ = ["deform_conv2d", "modulated_deform_conv2d"]


@explains_other_names
def deform_conv2d(
    input: ArrayLike,
    offset: ArrayLike,
    weight: ArrayLike,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> NDArray[Any]:
    """Convolve a feature map with taps that are moved by offsets, as ``mmcv.ops.deform_conv2d``.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Of any real dtype but bool.
    offset : array_like of shape (N, deform_groups * 2 * KH * KW, OH, OW)
        For each deformable group and tap (row by row) the offset down, then the offset to the right, in pixels.
    weight : array_like of shape (O, C / groups, KH, KW)
        The convolution's kernels.
    stride : int or (int, int), default 1
        Distance of neighbouring outputs along H and W, in pixels.
    padding : int or (int, int), default 0
        Rows and columns of zeros added on each side.
    dilation : int or (int, int), default 1
        Distance of neighbouring taps along H and W, in pixels.
    groups : int, default 1
        Number of groups of input and output channels; an output channel reads the input channels of its group.
    deform_groups : int, default 1
        Number of groups of input channels that share their offsets, independent of `groups`.

    Returns
    -------
    ndarray of shape (N, O, OH, OW)
        Of the common floating dtype of the inputs; float16 is computed in float32, integers in float64.
        OH = (H + 2 * padding - dilation * (KH - 1) - 1) // stride + 1, or 0 if the kernel does not fit; OW likewise.

    Raises
    ------
    ValueError
        If a shape does not match, `groups` or `deform_groups` does not divide the channels, or a number is out of
        range.
    TypeError
        If an array is not of a real dtype, or another argument not an integer.

    Notes
    -----
    Values between pixels are bilinear; pixels outside the map are 0.  A tap at a position that is NaN gives NaN.

    Source: J. Dai et al., "Deformable Convolutional Networks", ICCV 2017; ``mmcv.ops.deform_conv2d``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> half_a_pixel_to_the_right = np.zeros((1, 2, 3, 3))
    >>> half_a_pixel_to_the_right[:, 1] = 0.5
    >>> mmort.deform_conv2d(image, half_a_pixel_to_the_right, np.ones((1, 1, 1, 1)))
    array([[[[0.5, 1.5, 1. ],
             [3.5, 4.5, 2.5],
             [6.5, 7.5, 4. ]]]])
    """
    (output,) = call(
        "deform_conv2d",
        input=input,
        offset=offset,
        weight=weight,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        deform_groups=deform_groups,
    )
    return output


@explains_other_names
def modulated_deform_conv2d(
    input: ArrayLike,
    offset: ArrayLike,
    mask: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> NDArray[Any]:
    """Convolve as `deform_conv2d` with a mask on the samples, as ``mmcv.ops.modulated_deform_conv2d``.

    Parameters
    ----------
    input : array_like of shape (N, C, H, W)
        Of any real dtype but bool.
    offset : array_like of shape (N, deform_groups * 2 * KH * KW, OH, OW)
        For each deformable group and tap (row by row) the offset down, then the offset to the right, in pixels.
    mask : array_like of shape (N, deform_groups * KH * KW, OH, OW)
        Factors of the samples, for each deformable group and tap.
    weight : array_like of shape (O, C / groups, KH, KW)
        The convolution's kernels.
    bias : array_like of shape (O,), optional
        Added to the channels of the output.
    stride : int or (int, int), default 1
    padding : int or (int, int), default 0
    dilation : int or (int, int), default 1
        As in `deform_conv2d`.
    groups, deform_groups : int, default 1
        As in `deform_conv2d`.

    Returns
    -------
    ndarray of shape (N, O, OH, OW)
        As from `deform_conv2d`.

    Raises
    ------
    ValueError, TypeError
        As `deform_conv2d`.

    Notes
    -----
    As for `deform_conv2d`.

    Source: X. Zhu et al., "Deformable ConvNets v2: More Deformable, Better Results", CVPR 2019;
    ``mmcv.ops.modulated_deform_conv2d``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> image = np.arange(9.0).reshape(1, 1, 3, 3)
    >>> offset, mask = np.zeros((1, 2, 3, 3)), np.full((1, 1, 3, 3), 0.5)
    >>> mmort.modulated_deform_conv2d(image, offset, mask, np.ones((1, 1, 1, 1)), bias=[1.0])
    array([[[[1. , 1.5, 2. ],
             [2.5, 3. , 3.5],
             [4. , 4.5, 5. ]]]])
    """
    (output,) = call(
        "modulated_deform_conv2d",
        input=input,
        offset=offset,
        mask=mask,
        weight=weight,
        bias=bias,
        stride=stride,
        padding=padding,
        dilation=dilation,
        groups=groups,
        deform_groups=deform_groups,
    )
    return output
