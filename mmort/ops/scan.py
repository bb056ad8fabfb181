"""Cumulative maximum and minimum."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort._kernels import call
from mmort.ops._other_names import explains_other_names

__all__ = ["cummax", "cummin"]


class CumulativeExtremum(NamedTuple):
    """Result of `cummax` and `cummin`."""

    values: NDArray[Any]
    indices: NDArray[np.int64]


@explains_other_names
def cummax(input: ArrayLike, dim: int) -> CumulativeExtremum:
    """Compute the cumulative maximum along a dimension and the index of each maximum, as ``torch.cummax``.

    Parameters
    ----------
    input : array_like
        Of any real dtype, with at least one dimension.
    dim : int
        The dimension to scan; negative ones count from the end.

    Returns
    -------
    values : ndarray of the shape of `input`
        The largest element so far; of the input's dtype.
    indices : ndarray of int64, of the shape of `input`
        Its index along `dim`; the last one of equal elements.

    Raises
    ------
    ValueError
        If `input` is a scalar or `dim` is out of range.
    TypeError
        If `input` is not of a real dtype or `dim` is not an integer.

    Notes
    -----
    NaN counts as larger than anything, as in torch (MMCV's operator for ONNX Runtime skipped it).

    Source: ``torch.cummax``; MMCV's ``cummax`` operator.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> values, indices = mmort.cummax(np.array([1.0, 3.0, 2.0, 3.0]), 0)
    >>> values, indices
    (array([1., 3., 3., 3.]), array([0, 1, 1, 3]))
    """
    return CumulativeExtremum(*call("cummax", input=input, dim=dim))


@explains_other_names
def cummin(input: ArrayLike, dim: int) -> CumulativeExtremum:
    """Compute the cumulative minimum along a dimension and the index of each minimum, as ``torch.cummin``.

    Parameters
    ----------
    input : array_like
        Of any real dtype, with at least one dimension.
    dim : int
        The dimension to scan; negative ones count from the end.

    Returns
    -------
    values : ndarray of the shape of `input`
        The smallest element so far; of the input's dtype.
    indices : ndarray of int64, of the shape of `input`
        Its index along `dim`; the last one of equal elements.

    Raises
    ------
    ValueError
        If `input` is a scalar or `dim` is out of range.
    TypeError
        If `input` is not of a real dtype or `dim` is not an integer.

    Notes
    -----
    NaN counts as smaller than anything, as in torch (MMCV's operator for ONNX Runtime skipped it).

    Source: ``torch.cummin``; MMCV's ``cummin`` operator.

    Examples
    --------
    >>> import numpy as np
    >>> import mmort
    >>> mmort.cummin(np.array([[3, 1, 2], [0, 5, 0]]), dim=1).values
    array([[3, 1, 1],
           [0, 0, 0]])
    """
    return CumulativeExtremum(*call("cummin", input=input, dim=dim))
