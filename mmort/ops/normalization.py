"""Normalization."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call


def group_norm(x: ArrayLike, num_groups: int, scale: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> NDArray[Any]:
    """Bring each group of an image's channels to mean 0 and variance 1, then scale and shift each channel.

    Parameters
    ----------
    x : array_like, [N, C, ...]
        float16, float32 or float64; any number of dimensions may follow the channels.
    num_groups : int
        Into how many groups of neighbours the channels are split; it divides C.
    scale, bias : array_like, [C]
        What each channel is multiplied by, and what is then added.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    ndarray, [N, C, ...]
        ``(x - mean) / sqrt(variance + eps) * scale + bias``, of the inputs' common floating dtype.  An empty input
        gives an empty result.

    Raises
    ------
    ValueError
        If a shape is another, `num_groups` is below 1 or does not divide C, or `eps` is negative or not finite.
    TypeError
        If an array does not hold real numbers, or an argument is no number.

    Notes
    -----
    The variance is that of the population, divided by the number of elements.  Everything is computed in float64.
    A group that holds a NaN or an infinity becomes NaN, and so does one of equal elements if `eps` is 0.

    Source: Y. Wu and K. He, "Group Normalization", ECCV 2018; ``torch.nn.functional.group_norm``; in ONNX Runtime
    ``mmort::GroupNorm``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> x = np.array([[[1.0, 3.0], [10.0, 30.0]]])  # one image, two channels
    >>> mmort.group_norm(x, 2, scale=[1, 1], bias=[0, 5], eps=0)
    array([[[-1.,  1.],
            [ 4.,  6.]]])
    """
    arrays, dtype = _arrays.floating("group_norm", x=x, scale=scale, bias=bias)
    attributes = _arrays.integer("group_norm", "num_groups", num_groups), _arrays.number("group_norm", "eps", eps)
    (output,) = call("group_norm", tuple(arrays), attributes)
    return output.astype(dtype, copy=False)
