"""Focal losses."""

from __future__ import annotations

import torch
from torch import Tensor

import mmort.torch
from mmort.mmcv.derivatives import gradients
from mmort.mmcv.memory import write

__all__ = [
    "sigmoid_focal_loss_backward",
    "sigmoid_focal_loss_forward",
    "softmax_focal_loss_backward",
    "softmax_focal_loss_forward",
]


def sigmoid_focal_loss_forward(
    input: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each logit into `output`; `weight` is empty or a factor for each class."""
    write(output, _sigmoid_focal_loss(input, target, weight, gamma, alpha))


def sigmoid_focal_loss_backward(
    input: Tensor, target: Tensor, weight: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Write the gradient of the losses' sum into `grad_input`."""

    def loss(logits: Tensor) -> Tensor:
        return _sigmoid_focal_loss(logits, target, weight, gamma, alpha)

    write(grad_input, gradients(loss, [input], torch.ones_like(input))[0])


def _sigmoid_focal_loss(input: Tensor, target: Tensor, weight: Tensor, gamma: float, alpha: float) -> Tensor:
    factors = weight if weight.numel() else None
    return mmort.torch.sigmoid_focal_loss(input, target, gamma, alpha, factors, reduction="none")


def softmax_focal_loss_forward(
    softmax: Tensor, target: Tensor, weight: Tensor, output: Tensor, gamma: float, alpha: float
) -> None:
    """Write the loss of each row of probabilities into `output`; rows of negative classes have none."""
    probability = _of_target(softmax, target)
    loss = -alpha * (1 - probability) ** gamma * _logarithm(probability)
    write(output, loss * _factors(target, weight, softmax.dtype))


def softmax_focal_loss_backward(
    softmax: Tensor, target: Tensor, weight: Tensor, buff: Tensor, grad_input: Tensor, gamma: float, alpha: float
) -> None:
    """Write the gradient of the losses' sum by the logits into `grad_input`."""
    probability = _of_target(softmax, target)
    miss = 1 - probability
    slope = alpha * (gamma * miss ** (gamma - 1) * probability * _logarithm(probability) - miss**gamma)
    write(buff, slope * _factors(target, weight, softmax.dtype))
    hits = target[:, None] == torch.arange(softmax.shape[1])
    write(grad_input, buff[:, None] * (hits.to(softmax.dtype) - softmax))


def _of_target(softmax: Tensor, target: Tensor) -> Tensor:
    """Return the probability of each row's class."""
    return softmax.gather(1, target.clamp(min=0)[:, None])[:, 0]


def _logarithm(probability: Tensor) -> Tensor:
    return probability.clamp(min=torch.finfo(torch.float32).tiny).log()


def _factors(target: Tensor, weight: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the factor of each row's loss: its class's weight, 0 for negative classes."""
    factors = weight[target.clamp(min=0)] if weight.numel() else 1
    return (target >= 0).to(dtype) * factors
