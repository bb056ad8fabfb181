"""Layers that every network here is made of, with the names that MMCV gives them in a ``state_dict``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, default, read_values, training_only, type_of
from mmort.detect.parts.equivariant import EquivariantConv, FieldBatchNorm
from mmort.torch import DeformConv2d, DeformConv2dPack, ModulatedDeformConv2dPack

_RELU: Config = {"type": "ReLU"}


@dataclass(frozen=True, kw_only=True)
class LayerEntries(Schema):
    """The entries of parts whose convolutions, normalizations and activations can be chosen."""

    conv_cfg: Config | None = None
    norm_cfg: Config | None = None
    act_cfg: Config | None = default(_RELU)

    @property
    def layer(self) -> dict[str, Any]:
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
            padding += self.padding_of(input.shape[axis + 2], axis)
        return super().forward(nn.functional.pad(input, padding))

    def padding_of(self, side: int, axis: int) -> tuple[int, int]:
        """Return how many zeros come before and after a side of the input."""
        stride, extent = self.stride[axis], (self.kernel_size[axis] - 1) * self.dilation[axis] + 1
        missing = missing_pixels(side, stride, extent)
        if extent < stride:
            missing = torch.sym_max(missing, 0)  # type: ignore[no-untyped-call]
        return missing // 2, missing - missing // 2


class Conv2dSamePadding(ConvSamePadding):
    """The convolution of MMDetection's ``projects/EfficientDet``, whose padding does not take a dilation into account.

    Where the kernel is smaller than the stride, rows and columns may be cut off instead.
    """

    def padding_of(self, side: int, axis: int) -> tuple[int, int]:
        stride = self.stride[axis]
        missing = missing_pixels(side, stride, self.kernel_size[axis])
        before = (missing + 2 * stride) // 2 - stride  # of a positive number: ONNX rounds quotients towards 0
        return before, missing - before


def missing_pixels(side: int, stride: int, extent: int) -> int:
    """Return how far windows of an extent reach out of a side if there is one at every multiple of the stride."""
    return ((side + stride - 1) // stride - 1) * stride + extent - side


class NormedConv2d(nn.Conv2d):
    """A convolution of features and with weights that are normalized over their channels."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias: bool = True,
        temperature: float = 20,
        power: float = 1,
        eps: float = 1e-6,
        norm_over_kernel: bool = False,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, bias=bias)
        self.temperature, self.power, self.eps = temperature, power, eps
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


class BatchNorm(nn.BatchNorm2d):
    """A batch normalization, also over a number of boxes that torch.export does not know."""

    def forward(self, input: Tensor) -> Tensor:
        # torch.batch_norm asks whether there are any elements; the legacy exporter knows no other.
        if self.training or not torch.compiler.is_exporting():
            return super().forward(input)
        result, _, _ = torch.native_batch_norm(
            input, self.weight, self.bias, self.running_mean, self.running_var, False, 0.0, self.eps
        )
        return result


class ChannelNorm(nn.LayerNorm):
    """A layer normalization over the channels of maps [N, C, H, W]."""

    def __init__(self, channels: int, eps: float = 1e-5) -> None:
        super().__init__(channels, eps=eps)

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class NormedLinear(nn.Linear):
    """A linear layer of features and with weights that are normalized."""

    def __init__(
        self,
        features: int,
        outputs: int,
        bias: bool = True,
        temperature: float = 20,
        power: float = 1,
        eps: float = 1e-6,
    ) -> None:
        super().__init__(features, outputs, bias)
        self.temperature, self.power, self.eps = temperature, power, eps

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


class FeatureAdaption(nn.Module):
    """A deformable convolution whose offsets follow from what was predicted of the box at each location."""

    def __init__(self, predicted: int, in_channels: int, out_channels: int, deform_groups: int) -> None:
        super().__init__()
        self.conv_offset = nn.Conv2d(predicted, deform_groups * 18, 1, bias=False)
        self.conv_adaption = DeformConv2d(in_channels, out_channels, 3, padding=1, deform_groups=deform_groups)

    def forward(self, x: Tensor, predicted: Tensor) -> Tensor:
        return self.conv_adaption(x, self.conv_offset(predicted)).relu()


@dataclass(frozen=True, kw_only=True)
class PlainEntries(Schema):
    """The entries of layers that have no settings beside `bias`."""

    bias: bool = True


@dataclass(frozen=True, kw_only=True)
class DeformEntries(PlainEntries):
    """The entries of deformable convolutions."""

    groups: int = 1
    deform_groups: int = 1

    ignored: ClassVar = {"fallback_on_stride": "read by the backbone", "im2col_step": "how MMCV divides the work"}

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Rename ``deformable_groups``, MMCV's name until 1.3."""
        if config.get("deformable_groups") is None:
            return config
        return {("deform_groups" if key == "deformable_groups" else key): value for key, value in config.items()}


@dataclass(frozen=True, kw_only=True)
class NormedEntries(PlainEntries):
    """The entries of layers with normalized weights."""

    temperature: float = 20
    power: float = 1
    eps: float = 1e-6

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Rename ``tempearture``, MMDetection's spelling."""
        if "tempearture" not in config or "temperature" in config:
            return config
        return {("temperature" if key == "tempearture" else key): value for key, value in config.items()}


@dataclass(frozen=True, kw_only=True)
class NormedConvEntries(NormedEntries):
    """The entries of `NormedConv2d`."""

    norm_over_kernel: bool = False


@dataclass(frozen=True, kw_only=True)
class BatchNormEntries(Schema):
    """The entries of batch normalizations."""

    eps: float = 1e-5
    affine: bool = True

    ignored: ClassVar = training_only("momentum", "requires_grad")


@dataclass(frozen=True, kw_only=True)
class EpsEntries(Schema):
    """The entries of normalizations that have no settings beside `eps`."""

    eps: float = 1e-5

    ignored: ClassVar = training_only("requires_grad")


@dataclass(frozen=True, kw_only=True)
class FieldNormEntries(Schema):
    """The entries of normalizations of equivariant fields, which have e2cnn's settings."""

    ignored: ClassVar = BatchNormEntries.ignored


@dataclass(frozen=True, kw_only=True)
class GroupNormEntries(Schema):
    """The entries of group normalizations."""

    num_groups: int
    eps: float = 1e-5
    affine: bool = True

    ignored: ClassVar = training_only("requires_grad")


@dataclass(frozen=True, kw_only=True)
class LayerNormEntries(Schema):
    """The entries of layer normalizations."""

    eps: float = 1e-5
    elementwise_affine: bool = True
    bias: bool = True

    ignored: ClassVar = training_only("requires_grad")


@dataclass(frozen=True, kw_only=True)
class ActivationEntries(Schema):
    """The entries of activations without settings."""

    ignored: ClassVar = {"inplace": "the same values"}


@dataclass(frozen=True, kw_only=True)
class LeakyReLUEntries(ActivationEntries):
    """The entries of ``LeakyReLU``."""

    negative_slope: float = 0.01


@dataclass(frozen=True, kw_only=True)
class PReLUEntries(ActivationEntries):
    """The entries of ``PReLU``."""

    num_parameters: int = 1

    ignored: ClassVar = {**ActivationEntries.ignored, "init": "weights come from the checkpoint"}


@dataclass(frozen=True, kw_only=True)
class GELUEntries(ActivationEntries):
    """The entries of ``GELU``."""

    approximate: str = "none"


def _group_norm(channels: int, num_groups: int, **options: Any) -> nn.GroupNorm:
    """Return the layer, whose channels torch takes after the groups."""
    return nn.GroupNorm(num_groups, channels, **options)


_Layers = dict[str, tuple[Any, type[Schema]]]
_CONVOLUTIONS: _Layers = {
    "Conv": (nn.Conv2d, PlainEntries),
    "Conv1d": (nn.Conv1d, PlainEntries),
    "Conv2d": (nn.Conv2d, PlainEntries),
    "Conv2dAdaptivePadding": (ConvSamePadding, PlainEntries),
    "Conv2dSamePadding": (Conv2dSamePadding, PlainEntries),
    "ConvWS": (ConvWS, PlainEntries),
    "ConvAWS": (ConvAWS, PlainEntries),
    "DCN": (DeformConv, DeformEntries),
    "DCNv2": (ModulatedDeformConv, DeformEntries),
    "NormedConv2d": (NormedConv2d, NormedConvEntries),
    "R2Conv": (EquivariantConv, PlainEntries),
    "deconv": (nn.ConvTranspose2d, PlainEntries),
}
_LINEARS: _Layers = {"Linear": (nn.Linear, PlainEntries), "NormedLinear": (NormedLinear, NormedEntries)}
_NORMALIZATIONS: _Layers = {
    "BN": (BatchNorm, BatchNormEntries),
    "BN2d": (BatchNorm, BatchNormEntries),
    "FrozenBN": (BatchNorm, EpsEntries),
    "GN": (_group_norm, GroupNormEntries),
    "InnerBatchNorm": (FieldBatchNorm, FieldNormEntries),
    "LN": (nn.LayerNorm, LayerNormEntries),
    "LN2d": (ChannelNorm, EpsEntries),
    "MMSyncBN": (BatchNorm, BatchNormEntries),  # the same once trained
    "SyncBN": (BatchNorm, BatchNormEntries),
}
_SHORT_NAMES = {
    BatchNorm: "bn",
    FieldBatchNorm: "bn",
    nn.GroupNorm: "gn",
    nn.LayerNorm: "ln",
    ChannelNorm: "norm_layer",
}
"""By class, the beginning of a normalization's name in a module."""
_ACTIVATIONS: _Layers = {
    "ReLU": (nn.ReLU, ActivationEntries),
    "ReLU6": (nn.ReLU6, ActivationEntries),
    "PReLU": (nn.PReLU, PReLUEntries),
    "LeakyReLU": (nn.LeakyReLU, LeakyReLUEntries),
    "GELU": (nn.GELU, GELUEntries),
    "Sigmoid": (nn.Sigmoid, ActivationEntries),
    "SiLU": (nn.SiLU, ActivationEntries),
    "Swish": (nn.SiLU, ActivationEntries),
}


def convolution(config: Config | None, *args: Any, groups: int | None = None, **kwargs: Any) -> nn.Module:
    """Build a convolution: a plain one, or that of a ``conv_cfg`` or ``dcn``."""
    layer, options = _layer("conv_cfg", _CONVOLUTIONS, config or {"type": "Conv2d"})
    if groups is not None:
        kwargs["groups"] = groups
    built = layer(*args, **{**kwargs, **options})
    if groups not in (None, 1) and built.groups != groups:
        raise ValueError(f"detect.build: conv_cfg.groups must be that of the layer, {groups}, got {built.groups}")
    return built


def linear(config: Config, features: int, outputs: int) -> nn.Module:
    """Build the layer of a ``predictor_cfg``."""
    layer, options = _layer("predictor_cfg", _LINEARS, config)
    return layer(features, outputs, **options)


def normalization(config: Config, channels: int) -> tuple[str, nn.Module]:
    """Build the layer of a ``norm_cfg``; return its short name in a module ("bn", "gn", "ln") too."""
    layer, options = _layer("norm_cfg", _NORMALIZATIONS, config)
    norm = layer(channels, **options)
    return _SHORT_NAMES[type(norm)], norm


def activation(config: Config | None) -> nn.Module:
    """Build the layer of an ``act_cfg``; without one, the identity."""
    if config is None:
        return nn.Identity()
    layer, options = _layer("act_cfg", _ACTIVATIONS, config)
    return layer(**options)


def _layer(name: str, layers: _Layers, config: Any) -> tuple[Any, dict[str, Any]]:
    """Return the class of a layer that a config describes, and those of its arguments that the config has."""
    kind = type_of(name, config, layers)
    layer, schema = layers[kind]
    return layer, read_values(f"{name} {kind!r}", schema, config)


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
            for conv_module in layers:
                conv_module.conv = layers[0].conv
    return towers
