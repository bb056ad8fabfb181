"""Layers whose channels are orientations of fields, after e2cnn's ``R2Conv`` and ``InnerBatchNorm``.

Source: M. Weiler and G. Cesa, "General E(2)-Equivariant Steerable CNNs", NeurIPS 2019.

A checkpoint has the coefficients of a basis of filters, and the basis itself, so that the filters of a plain
convolution follow from it without e2cnn.  ONNX Runtime computes them once, when it loads the file.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

ORIENTATIONS = 8
"""Of the group by which ReDet's layers are equivariant; it has no other."""

_BASIS_SIZES = {(1, 7): 40, (ORIENTATIONS, 1): 8, (ORIENTATIONS, 3): 64}
"""Filters in the basis by orientations of the input and kernel size, with ReDet's cut-off of frequencies."""


class EquivariantConv(nn.Module):
    """A convolution; maps whose channels are no multiple of the orientations have fields without orientation."""

    renamed_keys = ((r"\._basisexpansion\.block_expansion_\([^)]*\)\.sampled_basis$", ".sampled_basis"),)
    unused_keys = (r"\.(filter|expanded_bias)$",)  # e2cnn's results, which only some modules of a checkpoint have

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        orientations = 1 if in_channels % ORIENTATIONS else ORIENTATIONS
        if out_channels % ORIENTATIONS or groups != 1 or (orientations, kernel_size) not in _BASIS_SIZES:
            raise ValueError(
                "detect.build: an equivariant convolution must be one of 1x1 or 3x3, or 7x7 of an image, in one group, "
                f"with a multiple of {ORIENTATIONS} as output channels, got {in_channels} to {out_channels} channels, "
                f"kernel size {kernel_size}, {groups} groups"
            )
        self.fields = out_channels // ORIENTATIONS, in_channels // orientations
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        size = _BASIS_SIZES[orientations, kernel_size]
        self.weights = nn.Parameter(torch.zeros(self.fields[0] * self.fields[1] * size))
        self.register_buffer("sampled_basis", torch.zeros(size, ORIENTATIONS, orientations, kernel_size**2))
        self.bias = nn.Parameter(torch.zeros(self.fields[0])) if bias else None
        if bias:
            self.register_buffer("bias_expansion", torch.zeros(out_channels, self.fields[0]))

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.get_buffer("bias_expansion") @ self.bias
        return nn.functional.conv2d(x, self.filters(), bias, self.stride, self.padding, self.dilation)

    def filters(self) -> Tensor:
        """Return the filters of a plain convolution, [out_channels, in_channels, kernel_size, kernel_size]."""
        basis = self.get_buffer("sampled_basis")
        size, outputs, inputs, _ = basis.shape
        combined = self.weights.reshape(-1, size) @ basis.flatten(1)
        by_field = combined.reshape(*self.fields, outputs, inputs, self.kernel_size, self.kernel_size)
        return by_field.transpose(1, 2).flatten(0, 1).flatten(1, 2)


class FieldBatchNorm(nn.BatchNorm2d):
    """A normalization, in inference, whose statistics and factors are those of fields, not of their orientations."""

    renamed_keys = ((r"\.batch_norm_\[8\]\.", "."),)
    unused_keys = (r"\.indices_8$",)

    def __init__(self, channels: int) -> None:
        super().__init__(channels // ORIENTATIONS)

    def forward(self, input: Tensor) -> Tensor:
        assert self.running_mean is not None
        assert self.running_var is not None
        values = (self.running_mean, self.running_var, self.weight, self.bias)
        mean, variance, weight, bias = (value.repeat_interleave(ORIENTATIONS) for value in values)
        return nn.functional.batch_norm(input, mean, variance, weight, bias, eps=self.eps)
