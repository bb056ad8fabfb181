"""Layers that every network here is made of, with the names that MMCV gives them in a ``state_dict``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, default, require
from mmort.detect.parts.rotated.equivariant import EquivariantConv, FieldBatchNorm
from mmort.detect.versions import Config
from mmort.torch import DeformConv2dPack, ModulatedDeformConv2dPack

_RELU: Config = {"type": "ReLU"}


@dataclass(frozen=True, kw_only=True)
class LayerEntries(Schema):
    """The entries of parts whose convolutions, normalizations and activations can be chosen."""

    conv_cfg: Config | None = None
    norm_cfg: Config | None = None
    act_cfg: Config | None = default(_RELU)

    @property
    def layer(self) -> dict[str, Config | None]:
        """These entries as arguments of `ConvModule`."""
        return {"conv_cfg": self.conv_cfg, "norm_cfg": self.norm_cfg, "act_cfg": self.act_cfg}


class ConvWS(nn.Conv2d):
    """A convolution whose weights are standardized for each output channel, as MMCV's ``ConvWS2d``.

    Source: S. Qiao et al., "Weight Standardization", 2019.
    """

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.standardized(), self.bias)

    def standardized(self) -> Tensor:
        """Return the weights that are used."""
        weight = self.weight
        mean, deviation = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
        return (weight - mean) / (deviation + 1e-5)


class ConvAWS(ConvWS):
    """A `ConvWS` whose weights then get a scale and a shift for each output channel, as MMCV's ``ConvAWS2d``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("weight_gamma", torch.ones(self.out_channels, 1, 1, 1))
        self.register_buffer("weight_beta", torch.zeros(self.out_channels, 1, 1, 1))

    def standardized(self) -> Tensor:
        weight = self.weight
        mean, variance = weight.mean((1, 2, 3), keepdim=True), weight.var((1, 2, 3), keepdim=True)
        standard = (weight - mean) / (variance + 1e-5).sqrt()
        return standard * self.get_buffer("weight_gamma") + self.get_buffer("weight_beta")


class ConvSamePadding(nn.Conv2d):
    """A convolution padded so that its maps have the size of the input by the stride, as ``Conv2dAdaptivePadding``."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, padding: int = 0, **options: Any) -> None:
        super().__init__(in_channels, out_channels, kernel_size, **options)

    def forward(self, input: Tensor) -> Tensor:
        padding: list[int] = []
        for axis in (1, 0):  # the last is padded first
            side, stride = input.shape[axis + 2], self.stride[axis]
            extent = (self.kernel_size[axis] - 1) * self.dilation[axis] + 1
            missing = ((side + stride - 1) // stride - 1) * stride + extent - side
            if extent < stride:
                missing = torch.sym_max(missing, 0)  # type: ignore[no-untyped-call]
            padding += [missing // 2, missing - missing // 2]
        return super().forward(nn.functional.pad(input, padding))


class NormedConv2d(nn.Conv2d):
    """A convolution of features and with weights that are normalized over their channels."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias: bool = True,
        tempearture: float = 20,
        power: float = 1,
        eps: float = 1e-6,
        norm_over_kernel: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, bias=bias)
        self.temperature, self.power, self.eps = tempearture, power, eps  # MMDetection's spelling
        self.axes = (1, 2, 3) if norm_over_kernel else (1,)

    def forward(self, input: Tensor) -> Tensor:
        weight, x = (
            values / (values.norm(dim=axes, keepdim=True) ** self.power + self.eps)
            for values, axes in ((self.weight, self.axes), (input, (1,)))
        )
        return self._conv_forward(x * self.temperature, weight, self.bias)


class Scale(nn.Module):
    """A learned factor."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class NormedLinear(nn.Linear):
    """A linear layer of features and with weights that are normalized."""

    def __init__(
        self,
        features: int,
        outputs: int,
        bias: bool = True,
        tempearture: float = 20,
        power: float = 1,
        eps: float = 1e-6,
    ) -> None:
        super().__init__(features, outputs, bias)
        self.temperature, self.power, self.eps = tempearture, power, eps

    def forward(self, input: Tensor) -> Tensor:
        weight, x = (
            values / (values.norm(dim=1, keepdim=True) ** self.power + self.eps) for values in (self.weight, input)
        )
        return nn.functional.linear(x * self.temperature, weight, self.bias)


class DeformConv(DeformConv2dPack):
    """A deformable convolution that predicts its offsets."""

    # MMDetection 2.0 had the offsets' layer beside the convolution.
    renamed_keys = ((r"_offset\.(weight|bias)$", r".conv_offset.\1"),)


class ModulatedDeformConv(ModulatedDeformConv2dPack):
    """A deformable convolution that predicts its offsets and a weight of each sample."""

    renamed_keys = DeformConv.renamed_keys


_CONVOLUTIONS: dict[str, Any] = {
    "Conv": nn.Conv2d,
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "Conv2dAdaptivePadding": ConvSamePadding,
    "ConvWS": ConvWS,
    "ConvAWS": ConvAWS,
    "DCN": DeformConv,
    "DCNv2": ModulatedDeformConv,
    "NormedConv2d": NormedConv2d,
    "R2Conv": EquivariantConv,
    "deconv": nn.ConvTranspose2d,
}
_LINEARS: dict[str, Any] = {"Linear": nn.Linear, "NormedLinear": NormedLinear}
_ACTIVATIONS: dict[str, Any] = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "LeakyReLU": nn.LeakyReLU,
    "GELU": nn.GELU,
    "Sigmoid": nn.Sigmoid,
    "SiLU": nn.SiLU,
    "Swish": nn.SiLU,
}


def convolution(config: Config | None, *args: Any, **kwargs: Any) -> nn.Module:
    """Build a convolution: a plain one, or that of a ``conv_cfg`` or ``dcn``."""
    options = dict(config or {"type": "Conv2d"})
    kind = require("convolution", options.pop("type"), *_CONVOLUTIONS)
    options.pop("fallback_on_stride", None)
    if "deformable_groups" in options:  # MMCV's name until 1.3
        options["deform_groups"] = options.pop("deformable_groups")
    return _CONVOLUTIONS[kind](*args, **options, **kwargs)


def linear(config: Config, features: int, outputs: int) -> nn.Module:
    """Build the layer of a ``predictor_cfg``."""
    options = dict(config)
    kind = require("linear layer", options.pop("type"), *_LINEARS)
    return _LINEARS[kind](features, outputs, **options)


def normalization(config: Config, channels: int) -> tuple[str, nn.Module]:
    """Build the layer of a ``norm_cfg``; return its short name in a module ("bn", "gn", "ln") too."""
    options = {key: value for key, value in config.items() if key not in ("type", "requires_grad")}
    if config["type"] in ("BN", "BN2d", "SyncBN", "MMSyncBN"):  # the same once trained
        return "bn", nn.BatchNorm2d(channels, **options)
    if config["type"] == "InnerBatchNorm":
        return "bn", FieldBatchNorm(channels)
    if config["type"] == "GN":
        groups = options.pop("num_groups")
        return "gn", nn.GroupNorm(groups, channels, **options)
    if config["type"] == "LN":
        return "ln", nn.LayerNorm(channels, **options)
    raise ValueError(f"detect.build: norm_cfg.type must be 'BN', 'SyncBN', 'GN' or 'LN', got {config['type']!r}")


def activation(config: Config | None) -> nn.Module:
    """Build the layer of an ``act_cfg``; without one, the identity."""
    if config is None:
        return nn.Identity()
    options = dict(config)
    kind = require("activation", options.pop("type"), *_ACTIVATIONS)
    options.pop("inplace", None)  # the same values, and not every activation has it
    return _ACTIVATIONS[kind](**options)


class ConvModule(nn.Module):
    """A convolution, a normalization and an activation, as MMCV's ``ConvModule``.

    By default (`bias` "auto") the convolution has a bias if there is no normalization.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool | str = "auto",
        conv_cfg: Config | None = None,
        norm_cfg: Config | None = None,
        act_cfg: Config | None = _RELU,
        order: Sequence[str] = ("conv", "norm", "act"),
    ) -> None:
        super().__init__()
        self.order = tuple(order)
        self.conv = convolution(
            conv_cfg,
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=norm_cfg is None if bias == "auto" else bias,
        )
        self.norm_name = None
        if norm_cfg is not None:
            first = self.order.index("norm") < self.order.index("conv")
            self.norm_name, norm = normalization(norm_cfg, in_channels if first else out_channels)
            self.add_module(self.norm_name, norm)
        self.activate = activation(act_cfg)

    def forward(self, x: Tensor) -> Tensor:
        for step in self.order:
            if step == "conv":
                x = self.conv(x)
            elif step == "act":
                x = self.activate(x)
            elif self.norm_name is not None:
                x = getattr(self, self.norm_name)(x)
        return x


class DepthwiseSeparableConvModule(nn.Module):
    """A convolution of each channel alone, then a 1x1 convolution, as MMCV's class of this name."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, **layer: Any
    ) -> None:
        super().__init__()
        self.depthwise_conv = ConvModule(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, **layer
        )
        self.pointwise_conv = ConvModule(in_channels, out_channels, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.pointwise_conv(self.depthwise_conv(x))


def tower(
    in_channels: int,
    channels: int,
    count: int,
    kernel_size: int = 3,
    conv_cfg: Config | None = None,
    first_conv_cfg: Config | None = None,
    last_conv_cfg: Config | None = None,
    **layer: Any,
) -> nn.Sequential:
    """Build `count` convolutions in a row that keep the size of their maps; first and last may be of another kind."""
    inputs = [in_channels] + [channels] * (count - 1)
    configs = [conv_cfg] * (count - 1) + [last_conv_cfg or conv_cfg]
    configs[0] = first_conv_cfg or configs[0]
    padding = (kernel_size - 1) // 2
    return nn.Sequential(
        *(
            ConvModule(inner, channels, kernel_size, padding=padding, conv_cfg=config, **layer)
            for inner, config in zip(inputs[:count], configs[:count], strict=True)
        )
    )


def tower_pair(*args: Any, **kwargs: Any) -> tuple[nn.Sequential, nn.Sequential]:
    """Build two towers alike, one for the classes and one for the boxes; the arguments are those of `tower`."""
    return tower(*args, **kwargs), tower(*args, **kwargs)


def multiple_of_8(channels: float) -> int:
    """Return the nearest multiple of 8 (at least 8) that is not below 90 % of `channels`."""
    rounded = max(8, int(channels + 4) // 8 * 8)
    return rounded if rounded >= 0.9 * channels else rounded + 8


def shared_towers(
    levels: int, in_channels: int, channels: int, count: int, shared: bool = True, **layer: Any
) -> nn.ModuleList:
    """Build a tower for each level; those that are `shared` have the same convolutions, but own normalizations."""
    towers = nn.ModuleList(tower(in_channels, channels, count, **layer) for _ in range(levels))
    if shared:
        for layers in zip(*towers, strict=True):
            for own in layers:
                own.conv = layers[0].conv
    return towers
