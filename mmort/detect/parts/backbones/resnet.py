"""ResNet and its relatives.

Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; S. Xie et al., "Aggregated Residual
Transformations for Deep Neural Networks", CVPR 2017; T. He et al., "Bag of Tricks for Image Classification", CVPR 2019
(ResNetV1d); MMDetection's ``ResNet``, ``ResNeXt`` and ``ResNetV1d``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema, default
from mmort.detect.parts.layers import convolution, normalization
from mmort.detect.versions import Config

_BN = {"type": "BN"}


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the block of ResNet-18 and ResNet-34."""

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        conv_cfg: Config | None = None,
        norm_cfg: Config = _BN,
    ) -> None:
        super().__init__()
        self.conv1 = convolution(
            conv_cfg, in_channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, bias=False
        )
        self.norm1_name = _add_norm(self, norm_cfg, channels, 1)
        self.conv2 = convolution(conv_cfg, channels, channels, 3, padding=1, bias=False)
        self.norm2_name = _add_norm(self, norm_cfg, channels, 2)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = getattr(self, self.norm2_name)(self.conv2(x))
        return torch.relu(x + shortcut)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 beside a shortcut: the block of the deeper networks.

    `style` decides which of the first two has the stride: "pytorch" the 3x3, "caffe" the 1x1.
    """

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        dilation: int = 1,
        downsample: nn.Module | None = None,
        conv_cfg: Config | None = None,
        norm_cfg: Config = _BN,
        style: str = "pytorch",
        dcn: Config | None = None,
        *,
        width: int,
        groups: int = 1,
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if style == "caffe" else (1, stride)
        self.conv1 = convolution(conv_cfg, in_channels, width, 1, stride=first, bias=False)
        self.norm1_name = _add_norm(self, norm_cfg, width, 1)
        self.conv2 = convolution(
            dcn if dcn is not None else conv_cfg,
            width,
            width,
            3,
            stride=second,
            padding=dilation,
            dilation=dilation,
            groups=groups,
            bias=False,
        )
        self.norm2_name = _add_norm(self, norm_cfg, width, 2)
        self.conv3 = convolution(conv_cfg, width, channels * self.expansion, 1, bias=False)
        self.norm3_name = _add_norm(self, norm_cfg, channels * self.expansion, 3)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = torch.relu(getattr(self, self.norm2_name)(self.conv2(x)))
        x = getattr(self, self.norm3_name)(self.conv3(x))
        return torch.relu(x + shortcut)


_BLOCKS: dict[int, tuple[Any, tuple[int, ...]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    50: (Bottleneck, (3, 4, 6, 3)),
    101: (Bottleneck, (3, 4, 23, 3)),
    152: (Bottleneck, (3, 8, 36, 3)),
}


class ResNet(nn.Module):
    """ResNet in the styles of PyTorch and Caffe, with deformable convolutions in the stages of `stage_with_dcn`.

    With `groups` it is ResNeXt, with `deep_stem` and `avg_down` ResNetV1d.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``backbone``."""

        depth: int
        in_channels: int = 3
        stem_channels: int | None = None
        base_channels: int = 64
        num_stages: int = 4
        strides: Sequence[int] = (1, 2, 2, 2)
        dilations: Sequence[int] = (1, 1, 1, 1)
        out_indices: Sequence[int] = (0, 1, 2, 3)
        style: str = "pytorch"
        deep_stem: bool = False
        avg_down: bool = False
        conv_cfg: Config | None = None
        norm_cfg: Config = default(_BN)
        dcn: Config | None = None
        stage_with_dcn: Sequence[bool] = (False, False, False, False)
        groups: int = 1
        base_width: int = 4

        ignored: ClassVar = {
            "frozen_stages": "training only",
            "norm_eval": "training only",
            "with_cp": "training only",
            "zero_init_residual": "training only",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        depth, style = entries.depth, entries.style
        if depth not in _BLOCKS:
            raise ValueError(f"detect.build: backbone.depth must be one of {', '.join(map(str, _BLOCKS))}, got {depth}")
        if style not in ("pytorch", "caffe"):
            raise ValueError(f"detect.build: backbone.style must be 'pytorch' or 'caffe', got {style!r}")
        if entries.dcn is not None and _BLOCKS[depth][0] is BasicBlock:
            raise ValueError(f"detect.build: backbone.dcn must be None for depth {depth}: its blocks cannot have it")
        self.out_indices = tuple(entries.out_indices)
        self.stages = entries.num_stages
        self.deep_stem = entries.deep_stem
        channels = entries.base_channels if entries.stem_channels is None else entries.stem_channels
        if self.deep_stem:
            self.stem = _deep_stem(entries.in_channels, channels, entries.conv_cfg, entries.norm_cfg)
        else:
            self.conv1 = convolution(
                entries.conv_cfg, entries.in_channels, channels, 7, stride=2, padding=3, bias=False
            )
            self.norm1_name = _add_norm(self, entries.norm_cfg, channels, 1)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        for stage in range(self.stages):
            layer, channels = _stage(entries, stage, channels)
            self.add_module(f"layer{stage + 1}", layer)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x) if self.deep_stem else torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = self.maxpool(x)  # [N, C, H/4, W/4]
        outputs = []
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)  # [N, C, H/4, W/4], halved with each stage
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


class ResNetV1d(ResNet):
    """A `ResNet` with a deep stem and pooling in its shortcuts, unless the config sets them otherwise."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNet.Entries):
        """The entries of ``backbone``."""

        deep_stem: bool = True
        avg_down: bool = True


def _stage(entries: ResNet.Entries, stage: int, channels: int) -> tuple[nn.Sequential, int]:
    """Build a stage for maps with `channels`; also return the channels of its own maps."""
    block, counts = _BLOCKS[entries.depth]
    width = entries.base_channels * 2**stage
    options: dict[str, Any] = {
        "dilation": entries.dilations[stage],
        "conv_cfg": entries.conv_cfg,
        "norm_cfg": entries.norm_cfg,
    }
    if block is Bottleneck:
        dcn, groups = entries.dcn, entries.groups
        inner = width if groups == 1 else int(width * (entries.base_width / entries.base_channels)) * groups
        deformable = dcn if dcn and entries.stage_with_dcn[stage] and not dcn.get("fallback_on_stride") else None
        options |= {"style": entries.style, "dcn": deformable, "width": inner, "groups": groups}
    out = width * block.expansion
    blocks: list[nn.Module] = []
    for stride in (entries.strides[stage],) + (1,) * (counts[stage] - 1):
        shortcut = None
        if not blocks and (stride != 1 or channels != out):
            shortcut = _shortcut(channels, out, stride, entries.avg_down, entries.conv_cfg, entries.norm_cfg)
        blocks.append(block(channels, width, stride=stride, downsample=shortcut, **options))
        channels = out
    return nn.Sequential(*blocks), out


def _add_norm(module: nn.Module, norm_cfg: Config, channels: int, number: int) -> str:
    """Add a normalization to `module` and return its name, such as "bn1"."""
    name, norm = normalization(norm_cfg, channels)
    module.add_module(f"{name}{number}", norm)
    return f"{name}{number}"


def _deep_stem(in_channels: int, channels: int, conv_cfg: Config | None, norm_cfg: Config) -> nn.Sequential:
    """Build three 3x3 convolutions, the first with stride 2."""
    layers: list[nn.Module] = []
    for out, stride in ((channels // 2, 2), (channels // 2, 1), (channels, 1)):
        layers.append(convolution(conv_cfg, in_channels, out, 3, stride=stride, padding=1, bias=False))
        layers += [normalization(norm_cfg, out)[1], nn.ReLU()]
        in_channels = out
    return nn.Sequential(*layers)


def _shortcut(
    in_channels: int,
    channels: int,
    stride: int,
    average: bool,
    conv_cfg: Config | None,
    norm_cfg: Config,
) -> nn.Sequential:
    """Build the shortcut of a stage's first block; with `average`, a pooling takes the stride."""
    layers: list[nn.Module] = []
    if average:
        layers.append(nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False))
        stride = 1
    layers += [
        convolution(conv_cfg, in_channels, channels, 1, stride=stride, bias=False),
        normalization(norm_cfg, channels)[1],
    ]
    return nn.Sequential(*layers)
