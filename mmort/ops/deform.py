"""Deformable convolution."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call

Pair = int | tuple[int, int]


def deform_conv2d(
    input: ArrayLike,
    offset: ArrayLike,
    weight: ArrayLike,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> NDArray[Any]:
    """Convolve, each tap of the kernel reading where an offset moves it; as ``mmcv.ops.deform_conv2d``.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Of any real dtype but bool.
    offset : array_like, [N, deform_groups * 2 * KH * KW, OH, OW]
        For each deformable group and tap (row by row) how far down, and then how far right, to read, in pixels.
    weight : array_like, [O, C / groups, KH, KW]
    stride, padding, dilation : int or (int, int)
        Along H and W: pixels from one place to the next, rows and columns of zeros around the map, and pixels from one
        tap to the next.
    groups : int
        Into how many groups the channels of input and output are split; each output reads the channels of its group.
    deform_groups : int
        Into how many groups the channels of the input are split to be moved alike, whatever `groups` is.

    Returns
    -------
    ndarray, [N, O, OH, OW]
        Of the inputs' common floating dtype; float16 is computed in float32, integers in float64.
        OH = (H + 2 * padding - dilation * (KH - 1) - 1) // stride + 1, and 0 if the kernel does not fit; OW alike.

    Raises
    ------
    ValueError
        If a shape does not fit, `groups` or `deform_groups` does not divide the channels, or a number is out of range.
    TypeError
        If a dtype is not real, or an attribute not an integer.

    Notes
    -----
    Values between pixels are bilinear; pixels outside of the map are 0.  A place that is NaN gives NaN.

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
    arrays, dtype = _arrays.floating("deform_conv2d", input=input, offset=offset, weight=weight)
    attributes = _attributes("deform_conv2d", stride, padding, dilation, groups, deform_groups)
    (output,) = call("deform_conv2d", tuple(arrays), attributes)
    return output.astype(dtype, copy=False)


def modulated_deform_conv2d(
    input: ArrayLike,
    offset: ArrayLike,
    mask: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
    deform_groups: int = 1,
) -> NDArray[Any]:
    """Convolve as `deform_conv2d`, each sample multiplied by a mask; as ``mmcv.ops.modulated_deform_conv2d``.

    Parameters
    ----------
    input : array_like, [N, C, H, W]
        Of any real dtype but bool.
    offset : array_like, [N, deform_groups * 2 * KH * KW, OH, OW]
        For each deformable group and tap (row by row) how far down, and then how far right, to read, in pixels.
    mask : array_like, [N, deform_groups * KH * KW, OH, OW]
        What the samples of each deformable group and tap are multiplied by.
    weight : array_like, [O, C / groups, KH, KW]
    bias : array_like, [O], optional
        Added to the channels of the output.
    stride, padding, dilation : int or (int, int)
        As in `deform_conv2d`.
    groups, deform_groups : int
        As in `deform_conv2d`.

    Returns
    -------
    ndarray, [N, O, OH, OW]
        As from `deform_conv2d`.

    Raises
    ------
    ValueError, TypeError
        As `deform_conv2d`.

    Notes
    -----
    As of `deform_conv2d`.

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
    operator = "modulated_deform_conv2d"
    given = {"input": input, "offset": offset, "mask": mask, "weight": weight}
    if bias is not None:
        given["bias"] = bias
    arrays, dtype = _arrays.floating(operator, **given)
    attributes = _attributes(operator, stride, padding, dilation, groups, deform_groups)
    (output,) = call(operator, tuple(arrays), attributes)
    return output.astype(dtype, copy=False)


def _attributes(
    operator: str, stride: Pair, padding: Pair, dilation: Pair, groups: int, deform_groups: int
) -> tuple[int, ...]:
    return (
        *_arrays.pair(operator, "stride", stride),
        *_arrays.pair(operator, "padding", padding),
        *_arrays.pair(operator, "dilation", dilation),
        _arrays.integer(operator, "groups", groups),
        _arrays.integer(operator, "deform_groups", deform_groups),
    )
