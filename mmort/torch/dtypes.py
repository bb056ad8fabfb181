"""The dtypes of functions that are written in plain torch, which are those of the operators."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

FLOATING = torch.float16, torch.float32, torch.float64


def check_floating(function: str, name: str, tensor: Tensor) -> None:
    """Raise TypeError if a tensor is of none of the dtypes that the functions compute with."""
    if tensor.dtype not in FLOATING:
        raise TypeError(f"{function}: {name} must be float16, float32 or float64, got {tensor.dtype}")


def as_floating(function: str, /, **tensors: Tensor) -> tuple[list[Tensor], torch.dtype]:
    """Return tensors in one dtype to compute in, at least float32, and the dtype of the results.

    The results have the common dtype of the tensors.  Under autocast all but float64 is float32, as in operators.
    """
    casts = [under_autocast(tensor) for tensor in tensors.values()]
    for name, tensor in zip(tensors, casts, strict=True):
        check_floating(function, name, tensor)
    common = reduce(torch.promote_types, (tensor.dtype for tensor in casts))
    computed = torch.promote_types(common, torch.float32)
    return [in_dtype(tensor, computed) for tensor in casts], common


def in_dtype(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a tensor in a dtype; itself, and in exports no node, if that is its own."""
    return tensor if tensor.dtype == dtype else tensor.to(dtype)


def under_autocast(tensor: Tensor) -> Tensor:
    """Return a tensor as autocast hands it to operators: in float32 instead of a narrower dtype."""
    if tensor.dtype not in (torch.bfloat16, torch.float16):
        return tensor
    device = tensor.device.type
    enabled = torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
    return tensor.float() if enabled else tensor
