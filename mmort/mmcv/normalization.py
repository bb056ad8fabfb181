"""Synchronised batch normalisation: the part of each process."""

from __future__ import annotations

from torch import Tensor

from mmort.mmcv.memory import write

__all__ = [
    "sync_bn_backward_data",
    "sync_bn_backward_param",
    "sync_bn_forward_mean",
    "sync_bn_forward_output",
    "sync_bn_forward_var",
]


def sync_bn_forward_mean(input: Tensor, mean: Tensor) -> None:
    """Write the mean of each channel of (N, C, L) into `mean`."""
    write(mean, input.float().mean((0, 2)))


def sync_bn_forward_var(input: Tensor, mean: Tensor, var: Tensor) -> None:
    """Write each channel's mean squared distance from `mean` into `var`."""
    write(var, (input.float() - mean[:, None]).square().mean((0, 2)))


def sync_bn_forward_output(
    input: Tensor,
    mean: Tensor,
    var: Tensor,
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    norm: Tensor,
    std: Tensor,
    output: Tensor,
    eps: float,
    momentum: float | Tensor,
    group_size: int,
) -> None:
    """Write the normalised input and the output, and update the running statistics, if there are any."""
    write(std, (var + eps).sqrt())
    write(norm, (input.float() - mean[:, None]) / std[:, None])
    write(output, norm * weight[:, None] + bias[:, None])
    if running_mean.numel():
        count = input.shape[0] * input.shape[2] * group_size
        unbiased = var * (count / (count - 1)) if count > 1 else var
        running_mean += momentum * (mean - running_mean)
        running_var += momentum * (unbiased - running_var)


def sync_bn_backward_param(grad_output: Tensor, norm: Tensor, grad_weight: Tensor, grad_bias: Tensor) -> None:
    """Write the gradients of weight and bias."""
    write(grad_weight, (grad_output * norm).sum((0, 2)))
    write(grad_bias, grad_output.sum((0, 2)))


def sync_bn_backward_data(
    grad_output: Tensor,
    weight: Tensor,
    grad_weight: Tensor,
    grad_bias: Tensor,
    norm: Tensor,
    std: Tensor,
    grad_input: Tensor,
) -> None:
    """Write the gradient of the input into `grad_input`; those of the parameters are of all processes by now."""
    count = grad_output.shape[0] * grad_output.shape[2]
    through_statistics = (norm * grad_weight[:, None] + grad_bias[:, None]) / count
    write(grad_input, (grad_output - through_statistics) * (weight / std)[:, None])
