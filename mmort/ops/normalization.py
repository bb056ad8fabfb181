"""Normalization."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call

__all__ = ["group_norm"]


def group_norm(x: ArrayLike, num_groups: int, scale: ArrayLike, bias: ArrayLike, eps: float = 1e-5) -> NDArray[Any]:
    """Normalize each group of channels to mean 0 and variance 1, then scale and shift each channel.

    Parameters
    ----------
    x : array_like of shape (N, C, ...)
        float16, float32 or float64; any number of dimensions may follow the channels.
    num_groups : int
        Number of groups of neighbouring channels; it divides C.
    scale, bias : array_like of shape (C,)
        Factor and offset of each channel.
    eps : float, default 1e-5
        Added to the variance.

    Returns
    -------
    ndarray of shape (N, C, ...)
        ``(x - mean) / sqrt(variance + eps) * scale + bias``, of the common floating dtype of the inputs.

    Raises
    ------
    ValueError
        If a shape does not match, `num_groups` is below 1 or does not divide C, or `eps` is negative or not finite.
    TypeError
        If an array is not of a real dtype, `num_groups` not an integer, or `eps` not a number.

    Notes
    -----
    The variance is that of the population, divided by the number of elements.  Everything is computed in float64.
    A group that holds a NaN or an infinity becomes NaN, and so does one of equal elements if `eps` is 0.

    Source: Y. Wu and K. He, "Group Normalization", ECCV 2018; ``torch.nn.functional.group_norm``.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> x = np.array([[[1.0, 3.0], [10.0, 30.0]]])  # one image, two channels
    >>> mmort.group_norm(x, 2, scale=[1, 1], bias=[0, 5], eps=0)
    array([[[-1.,  1.],
            [ 4.,  6.]]])
    """
    (output,) = call("group_norm", x=x, num_groups=num_groups, scale=scale, bias=bias, eps=eps)
    return output
