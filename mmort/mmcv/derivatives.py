"""Gradients of functions that are written with torch's differentiable operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def gradients(function: Callable[..., Tensor], inputs: Sequence[Tensor], output_gradient: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of a function with respect to its inputs."""
    with torch.enable_grad():
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        output = function(*leaves)
    if not output.requires_grad:  # of no regions
        return tuple(map(torch.zeros_like, leaves))
    return torch.autograd.grad(output, leaves, output_gradient, materialize_grads=True)
