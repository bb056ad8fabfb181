"""The loss that trains most dense detectors, with the arguments of its namesake in ``mmcv.ops``."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.torch.dtypes import as_floating, in_dtype

__all__ = ["SigmoidFocalLoss", "sigmoid_focal_loss"]

Reduction = Literal["none", "mean", "sum"]


def sigmoid_focal_loss(
    input: Tensor,
    target: Tensor,
    gamma: float = 2.0,
    alpha: float = 0.25,
    weight: Tensor | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Compute the focal loss of logits, each class against the rest.

    It is made of torch's own functions: all its derivatives are torch's, on every device.

    Parameters
    ----------
    input : Tensor of floating dtype, (N, C)
        Logits.
    target : Tensor of int64, (N,)
        The class of each row; C, or any other number outside 0 to C - 1, is the background.
    gamma : float, default 2
        How much easy examples count less.
    alpha : float, default 0.25
        The weight of a row's own class; that of the others is ``1 - alpha``.
    weight : Tensor of floating dtype, (C,), optional
        A factor of each row's losses, by its class; 1 for the background.
    reduction : {"mean", "sum", "none"}, default "mean"
        "mean" divides the sum by N, not by N * C, as MMCV does.

    Returns
    -------
    Tensor
        A number, or (N, C) for "none".

    Raises
    ------
    ValueError
        If shapes do not match, or `reduction` is unknown.
    TypeError
        If `target` is not of dtype int64, or the logits not of a floating one, or bfloat16 outside of autocast.

    Examples
    --------
    >>> import torch, mmort.torch
    >>> mmort.torch.sigmoid_focal_loss(torch.zeros(1, 2), torch.tensor([1]), reduction="none")
    tensor([[0.1300, 0.0433]])
    """
    _check(input, target, weight, reduction)
    floating = {"input": input} if weight is None else {"input": input, "weight": weight}
    (input, *weights), dtype = as_floating("sigmoid_focal_loss", **floating)
    is_target = target[:, None] == torch.arange(input.shape[1], device=target.device)
    # With the logarithms of sigmoids a large logit has a loss and a gradient, where that of its sigmoid has none.
    # A power below 1 has no gradient at 0, which the sigmoid of one is.
    smallest = torch.finfo(input.dtype).tiny
    hit = alpha * torch.sigmoid(-input).clamp(min=smallest) ** gamma * functional.logsigmoid(input)
    miss = (1 - alpha) * torch.sigmoid(input).clamp(min=smallest) ** gamma * functional.logsigmoid(-input)
    loss = -torch.where(is_target, hit, miss)
    for factors in weights:
        known = is_target.any(1)
        loss = loss * torch.where(known, factors[torch.where(known, target, 0)], 1)[:, None]
    if reduction == "mean":
        loss = loss.sum() / input.shape[0]
    elif reduction == "sum":
        loss = loss.sum()
    return in_dtype(loss, dtype)


class SigmoidFocalLoss(nn.Module):
    """Compute the focal loss of logits; the arguments are those of `sigmoid_focal_loss`."""

    weight: Tensor | None

    def __init__(self, gamma: float, alpha: float, weight: Tensor | None = None, reduction: Reduction = "mean") -> None:
        super().__init__()
        self.gamma, self.alpha, self.reduction = gamma, alpha, reduction
        self.register_buffer("weight", weight)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss of logits (N, C) and classes (N,)."""
        return sigmoid_focal_loss(input, target, self.gamma, self.alpha, self.weight, self.reduction)


def _check(input: Tensor, target: Tensor, weight: Tensor | None, reduction: str) -> None:
    """Refuse arguments that do not match."""
    if input.ndim != 2:
        raise ValueError(f"sigmoid_focal_loss: input must be (N, C), got {tuple(input.shape)}")
    if target.dtype != torch.int64:
        raise TypeError(f"sigmoid_focal_loss: target must be of dtype int64, got {target.dtype}")
    if target.shape != input.shape[:1]:
        raise ValueError(f"sigmoid_focal_loss: target must be ({input.shape[0]},), got {tuple(target.shape)}")
    if weight is not None and weight.shape != input.shape[1:]:
        raise ValueError(f"sigmoid_focal_loss: weight must be ({input.shape[1]},), got {tuple(weight.shape)}")
    if reduction not in get_args(Reduction):
        raise ValueError(f"sigmoid_focal_loss: reduction must be 'none', 'mean' or 'sum', got {reduction!r}")
