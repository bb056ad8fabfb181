"""Layers that every network here is made of, with the names that MMCV's have in a ``state_dict``."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from mmort.detect.detector import choose
from mmort.torch import DeformConv2dPack, ModulatedDeformConv2dPack


class ConvWS(nn.Conv2d):
    """A convolution whose weights are standardized for each output channel, as MMCV's ``ConvWS2d``.

    Source: S. Qiao et al., "Weight Standardization", 2019.
    """

    def forward(self, input: Tensor) -> Tensor:  # noqa: D102
        weight = self.weight
        mean, deviation = weight.mean((1, 2, 3), keepdim=True), weight.std((1, 2, 3), keepdim=True)
        return self._conv_forward(input, (weight - mean) / (deviation + 1e-5), self.bias)  # type: ignore[no-any-return]


_CONVOLUTIONS: dict[str, Any] = {
    "Conv": nn.Conv2d,
    "Conv1d": nn.Conv1d,
    "Conv2d": nn.Conv2d,
    "ConvWS": ConvWS,
    "DCN": DeformConv2dPack,
    "DCNv2": ModulatedDeformConv2dPack,
}
_ACTIVATIONS: dict[str, Any] = {
    "ReLU": nn.ReLU,
    "ReLU6": nn.ReLU6,
    "LeakyReLU": nn.LeakyReLU,
    "SiLU": nn.SiLU,
    "Swish": nn.SiLU,
}


def convolution(config: dict[str, Any] | None, *args: Any, **kwargs: Any) -> nn.Module:
    """Build a convolution: plain, or what ``conv_cfg`` or ``dcn`` says."""
    kind, others = choose("convolution", config or {"type": "Conv2d"}, _CONVOLUTIONS)
    others.pop("fallback_on_stride", None)
    return kind(*args, **others, **kwargs)  # type: ignore[no-any-return]


def normalization(config: dict[str, Any], channels: int) -> tuple[str, nn.Module]:
    """Build what ``norm_cfg`` says; also return the short name ("bn", "gn") that such a layer has in a module."""
    others = {key: value for key, value in config.items() if key not in ("type", "requires_grad")}
    if config["type"] in ("BN", "BN2d", "SyncBN", "MMSyncBN"):  # the same once trained
        return "bn", nn.BatchNorm2d(channels, **others)
    if config["type"] == "GN":
        groups = others.pop("num_groups")
        return "gn", nn.GroupNorm(groups, channels, **others)
    raise ValueError(f"detect.build: norm_cfg.type must be 'BN', 'SyncBN' or 'GN', got {config['type']!r}")


def activation(config: dict[str, Any] | None) -> nn.Module:
    """Build what ``act_cfg`` says; None is none."""
    if config is None:
        return nn.Identity()
    kind, others = choose("activation", config, _ACTIVATIONS)
    return kind(**{**others, "inplace": False})  # type: ignore[no-any-return]


class ConvModule(nn.Module):
    """A convolution, a normalization and an activation, as MMCV's of that name.

    The convolution has a bias if there is no normalization, unless `bias` says otherwise.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool | str = "auto",
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] | None = None,
        act_cfg: dict[str, Any] | None = {"type": "ReLU"},  # noqa: B006 - never written to
    ) -> None:
        super().__init__()
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
            self.norm_name, norm = normalization(norm_cfg, out_channels)
            self.add_module(self.norm_name, norm)
        self.activate = activation(act_cfg)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        x = self.conv(x)
        if self.norm_name is not None:
            x = getattr(self, self.norm_name)(x)
        return self.activate(x)  # type: ignore[no-any-return]


class DepthwiseSeparableConvModule(nn.Module):
    """A convolution of each channel alone, then a 1x1 convolution, as MMCV's of that name."""

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, stride: int = 1, padding: int = 0, **common: Any
    ) -> None:
        super().__init__()
        self.depthwise_conv = ConvModule(
            in_channels, in_channels, kernel_size, stride=stride, padding=padding, groups=in_channels, **common
        )
        self.pointwise_conv = ConvModule(in_channels, out_channels, 1, **common)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.pointwise_conv(self.depthwise_conv(x))  # type: ignore[no-any-return]


def tower(
    in_channels: int,
    channels: int,
    count: int,
    kernel_size: int = 3,
    conv_cfg: dict[str, Any] | None = None,
    last_conv_cfg: dict[str, Any] | None = None,
    **common: Any,
) -> nn.Sequential:
    """Build `count` convolutions that keep the size, one after another; the last may be of another kind."""
    inputs = [in_channels] + [channels] * (count - 1)
    kinds = [conv_cfg] * (count - 1) + [last_conv_cfg or conv_cfg]
    padding = (kernel_size - 1) // 2
    return nn.Sequential(
        *(
            ConvModule(each, channels, kernel_size, padding=padding, conv_cfg=kind, **common)
            for each, kind in zip(inputs[:count], kinds[:count], strict=True)
        )
    )
