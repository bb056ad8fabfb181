"""Cumulative maximum and minimum."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mmort import _arrays
from mmort._kernels import call


class CumulativeExtremum(NamedTuple):
    """Result of `cummax` and `cummin`."""

    values: NDArray[Any]
    indices: NDArray[np.int64]


def cummax(input: ArrayLike, dim: int) -> CumulativeExtremum:
    """Take the cumulative maximum along a dimension, with the place of each maximum; as ``torch.cummax``.

    Parameters
    ----------
    input : array_like
        Of any real dtype, with at least one dimension.
    dim : int
        The dimension to go along; negative ones count from the end.

    Returns
    -------
    values : ndarray, shape of `input`
        The largest element so far; of the input's dtype.
    indices : ndarray of int64, shape of `input`
        Where it stands along `dim`; among equal elements the latest one.

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
    return _scan("cummax", input, dim)


def cummin(input: ArrayLike, dim: int) -> CumulativeExtremum:
    """Take the cumulative minimum along a dimension, with the place of each minimum; as ``torch.cummin``.

    Parameters
    ----------
    input : array_like
        Of any real dtype, with at least one dimension.
    dim : int
        The dimension to go along; negative ones count from the end.

    Returns
    -------
    values : ndarray, shape of `input`
        The smallest element so far; of the input's dtype.
    indices : ndarray of int64, shape of `input`
        Where it stands along `dim`; among equal elements the latest one.

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
    return _scan("cummin", input, dim)


def _scan(operator: str, input: ArrayLike, dim: int) -> CumulativeExtremum:
    array, dtype = _arrays.real(operator, "input", input)
    values, indices = call(operator, (array,), (_arrays.integer(operator, "dim", dim),))
    return CumulativeExtremum(values.astype(dtype, copy=False), indices)
