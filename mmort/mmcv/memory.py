"""Tensors as MMCV's kernels take them: numbers in a row, whatever the shape that the caller gave them."""

from __future__ import annotations

from torch import Tensor


def write(target: Tensor, values: Tensor) -> None:
    """Write values into a tensor that has as many, in the order of both."""
    target.copy_(values.reshape(target.shape))
