"""ResNet and its relatives, and the blocks that other backbones are made of too.

Source: K. He et al., "Deep Residual Learning for Image Recognition", CVPR 2016; S. Xie et al., "Aggregated Residual
Transformations for Deep Neural Networks", CVPR 2017; T. He et al., "Bag of Tricks for Image Classification", CVPR 2019
(ResNetV1d); Y. Li et al., "Scale-Aware Trident Networks for Object Detection", ICCV 2019; J. Han et al., "ReDet: A
Rotation-equivariant Detector for Aerial Object Detection", CVPR 2021; MMDetection's ``ResNet``, ``ResNeXt``,
``ResNetV1d`` and ``TridentResNet``, MMRotate's ``ReResNet``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, read_entries, training_only
from mmort.detect.parts.layers import DeformEntries, convolution, normalization
from mmort.detect.parts.plugins import PluginEntries, add_plugins, plugins_of_stage

_BN = {"type": "BN"}


@dataclass(frozen=True, kw_only=True)
class BlockSettings:
    """Settings that the blocks of a stage share.

    Attributes
    ----------
    width : int, optional
        Channels between the first and the last convolution, by default those of the block.
    style : "pytorch" or "caffe"
        Which of a `Bottleneck`'s convolutions has the stride: the 3x3 or the first.
    dcn : dict, optional
        The kind of the 3x3 convolution, if it is deformable.
    plugins : list of PluginEntries
        Further layers inside a `Bottleneck`.
    """

    width: int | None = None
    groups: int = 1
    dilation: int = 1
    style: str = "pytorch"
    conv_cfg: Config | None = None
    norm_cfg: Config = default(_BN)
    dcn: Config | None = None
    plugins: Sequence[PluginEntries] = ()


_PLAIN = BlockSettings()


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut: the block of ResNet-18 and ResNet-34."""

    expansion = 1

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        settings: BlockSettings = _PLAIN,
    ) -> None:
        super().__init__()
        if settings.dcn is not None or settings.plugins:
            raise ValueError(
                "detect.build: backbone.dcn and plugins must be None: blocks of two convolutions have none"
            )
        conv_cfg, norm_cfg, dilation = settings.conv_cfg, settings.norm_cfg, settings.dilation
        self.conv1 = convolution(
            conv_cfg, in_channels, channels, 3, stride=stride, padding=dilation, dilation=dilation, bias=False
        )
        self.norm1_name = add_norm(self, norm_cfg, channels, 1)
        self.conv2 = convolution(conv_cfg, channels, channels, 3, padding=1, bias=False)
        self.norm2_name = add_norm(self, norm_cfg, channels, 2)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = getattr(self, self.norm2_name)(self.conv2(x))
        return torch.relu(x + shortcut)


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 beside a shortcut: the block of the deeper networks.

    Subclasses replace the 3x3 convolution: `add_middle` and `middle`.
    """

    expansion = 4

    def __init__(
        self,
        in_channels: int,
        channels: int,
        stride: int = 1,
        downsample: nn.Module | None = None,
        settings: BlockSettings = _PLAIN,
    ) -> None:
        super().__init__()
        first, second = (stride, 1) if settings.style == "caffe" else (1, stride)
        width, out = settings.width or channels, channels * self.expansion
        self.conv1 = convolution(settings.conv_cfg, in_channels, width, 1, stride=first, bias=False)
        self.norm1_name = add_norm(self, settings.norm_cfg, width, 1)
        self.add_middle(width, second, settings)
        self.conv3 = convolution(settings.conv_cfg, width, out, 1, bias=False)
        self.norm3_name = add_norm(self, settings.norm_cfg, out, 3)
        self.downsample = downsample
        sizes = enumerate((width, width, out), start=1)
        self.plugins = [add_plugins(self, settings.plugins, f"after_conv{index}", size) for index, size in sizes]

    def add_middle(self, width: int, stride: int, settings: BlockSettings) -> None:
        """Add the layers that `middle` calls."""
        dilation = settings.dilation
        self.conv2 = convolution(
            settings.conv_cfg if settings.dcn is None else settings.dcn,
            width,
            width,
            3,
            stride=stride,
            padding=dilation,
            dilation=dilation,
            groups=settings.groups,
            bias=False,
        )
        self.norm2_name = add_norm(self, settings.norm_cfg, width, 2)

    def middle(self, x: Tensor) -> Tensor:
        """Apply the layer between the two 1x1 convolutions."""
        return torch.relu(getattr(self, self.norm2_name)(self.conv2(x)))

    def sum(self, x: Tensor) -> Tensor:
        """Return the block's maps before their last ReLU."""
        shortcut = x if self.downsample is None else self.downsample(x)
        x = torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        x = self.middle(self._plugged(0, x))
        x = getattr(self, self.norm3_name)(self.conv3(self._plugged(1, x)))
        return self._plugged(2, x) + shortcut

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.sum(x))

    def _plugged(self, position: int, x: Tensor) -> Tensor:
        """Apply the plugins that follow a convolution to its maps."""
        for name in self.plugins[position]:
            x = self.get_submodule(name)(x)
        return x


@dataclass(frozen=True)
class StagePlan:
    """The plan of a stage: `count` blocks of a class, which keep `channels` times its ``expansion``."""

    block: type[Any]
    count: int
    channels: int
    settings: BlockSettings


@dataclass(frozen=True, kw_only=True)
class ResNetEntries(Schema):
    """The entries that all relatives of ResNet have."""

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
    plugins: Sequence[Config] | None = None

    ignored: ClassVar = training_only("frozen_stages", "norm_eval", "with_cp", "zero_init_residual")


@dataclass(frozen=True, kw_only=True)
class DeformableStageEntries(DeformEntries):
    """The entries of ``dcn``, which is a ``conv_cfg`` besides."""

    types = ("DCN", "DCNv2")
    ignored: ClassVar = {key: why for key, why in DeformEntries.ignored.items() if key != "fallback_on_stride"}

    type: str
    fallback_on_stride: bool = False


class ResNetBase(nn.Module):
    """A stem and the stages that a subclass plans."""

    def __init__(self, entries: ResNetEntries, stages: Sequence[StagePlan]) -> None:
        super().__init__()
        if entries.style not in ("pytorch", "caffe"):
            raise ValueError(f"detect.build: backbone.style must be 'pytorch' or 'caffe', got {entries.style!r}")
        self.out_indices = tuple(entries.out_indices)
        self.stages = len(stages)
        channels = self.add_stem(entries)
        for stage, (plan, stride) in enumerate(zip(stages, entries.strides, strict=False), start=1):
            out = plan.channels * plan.block.expansion
            first = _shortcut(entries, channels, out, stride) if stride != 1 or channels != out else None
            blocks = [plan.block(channels, plan.channels, stride, first, plan.settings)]
            blocks += [plan.block(out, plan.channels, settings=plan.settings) for _ in range(plan.count - 1)]
            self.add_module(f"layer{stage}", nn.Sequential(*blocks))
            channels = out

    def add_stem(self, entries: ResNetEntries) -> int:
        """Add the layers that `stem_maps` calls; return the channels of their maps."""
        conv_cfg, norm_cfg = entries.conv_cfg, entries.norm_cfg
        channels = entries.base_channels if entries.stem_channels is None else entries.stem_channels
        self.deep_stem = entries.deep_stem
        if self.deep_stem:
            self.stem = _deep_stem(entries.in_channels, channels, conv_cfg, norm_cfg)
        else:
            self.conv1 = convolution(conv_cfg, entries.in_channels, channels, 7, stride=2, padding=3, bias=False)
            self.norm1_name = add_norm(self, norm_cfg, channels, 1)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        return channels

    def stem_maps(self, x: Tensor) -> Tensor:
        """Return the maps [N, C, H/4, W/4] that the first stage reads."""
        x = self.stem(x) if self.deep_stem else torch.relu(getattr(self, self.norm1_name)(self.conv1(x)))
        return self.maxpool(x)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem_maps(x)
        outputs = []
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)  # [N, C, H/4, W/4], halved with each stage
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


BLOCK_COUNTS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
"""By depth, the number of blocks in each stage of the networks with bottlenecks."""

_BLOCKS: dict[int, tuple[type[Any], Sequence[int]]] = {
    18: (BasicBlock, (2, 2, 2, 2)),
    34: (BasicBlock, (3, 4, 6, 3)),
    **{depth: (Bottleneck, counts) for depth, counts in BLOCK_COUNTS.items()},
}


@PARTS.register("backbone", "ResNet", "ResNeXt")
class ResNet(ResNetBase):
    """ResNet in the styles of PyTorch and Caffe, with deformable convolutions in the stages of `stage_with_dcn`.

    With `groups` it is ResNeXt, with `deep_stem` and `avg_down` ResNetV1d.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        depth: int
        groups: int = 1
        base_width: int = 4

    def __init__(self, entries: Entries) -> None:
        depth, groups = entries.depth, entries.groups
        block, counts = _BLOCKS[known_depth(depth, _BLOCKS)]
        super().__init__(
            entries,
            [
                StagePlan(
                    block, counts[stage], width, block_settings(entries, stage, group_width(entries, width), groups)
                )
                for stage, width in enumerate(stage_widths(entries))
            ],
        )


@PARTS.register("backbone", "ResNetV1d")
class ResNetV1d(ResNet):
    """A `ResNet` with a deep stem and pooling in its shortcuts, unless the config sets them otherwise."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNet.Entries):
        deep_stem: bool = True
        avg_down: bool = True


def stage_widths(entries: ResNetEntries) -> list[int]:
    """Return the channels of each stage's blocks."""
    return [entries.base_channels * 2**stage for stage in range(entries.num_stages)]


def group_width(entries: ResNet.Entries, channels: int) -> int:
    """Return the channels of a block's 3x3 convolution."""
    if entries.groups == 1:
        return channels
    return int(channels * (entries.base_width / entries.base_channels)) * entries.groups


def block_settings(entries: ResNetEntries, stage: int, width: int | None = None, groups: int = 1) -> BlockSettings:
    """Return the settings shared by the blocks of a stage, counted from 0."""
    dcn = entries.dcn if entries.stage_with_dcn[stage] else None
    if dcn and read_entries("backbone.dcn", DeformableStageEntries, dcn).fallback_on_stride:
        dcn = None
    return BlockSettings(
        width=width,
        groups=groups,
        dilation=entries.dilations[stage],
        style=entries.style,
        conv_cfg=entries.conv_cfg,
        norm_cfg=entries.norm_cfg,
        dcn=dcn or None,
        plugins=plugins_of_stage(entries.plugins, stage),
    )


def known_depth(depth: int, depths: Iterable[int]) -> int:
    """Return a backbone's depth; ValueError if it is not one of `depths`."""
    if depth not in depths:
        raise ValueError(f"detect.build: backbone.depth must be one of {', '.join(map(str, depths))}, got {depth}")
    return depth


def add_norm(module: nn.Module, norm_cfg: Config, channels: int, number: int) -> str:
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


def _shortcut(entries: ResNetEntries, in_channels: int, channels: int, stride: int) -> nn.Sequential:
    """Build the shortcut of a stage's first block; with `avg_down`, a pooling takes the stride."""
    layers: list[nn.Module] = []
    if entries.avg_down:
        layers.append(nn.AvgPool2d(stride, stride, ceil_mode=True, count_include_pad=False))
        stride = 1
    layers += [
        convolution(entries.conv_cfg, in_channels, channels, 1, stride=stride, bias=False),
        normalization(entries.norm_cfg, channels)[1],
    ]
    return nn.Sequential(*layers)


@PARTS.register("backbone", "TridentResNet")
class TridentResNet(ResNetBase):
    """TridentNet's ResNet, whose last stage runs at several dilations with the same weights: its branch for tests."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        depth: int
        num_branch: int
        test_branch_idx: int
        trident_dilations: Sequence[int]

        def check(self, name: str) -> None:
            """Raise a ValueError if a branch has no dilation, or none is that for tests."""
            branches, branch = self.num_branch, self.test_branch_idx
            if len(self.trident_dilations) != branches:
                raise ValueError(
                    f"detect.build: trident_dilations of {name} must have num_branch = {branches} entries, got "
                    f"{len(self.trident_dilations)}"
                )
            if not 0 <= branch < branches:
                raise ValueError(
                    f"detect.build: test_branch_idx of {name} must be one of the {branches} branches, got {branch}"
                )

    def __init__(self, entries: Entries) -> None:
        counts = BLOCK_COUNTS[known_depth(entries.depth, BLOCK_COUNTS)]
        plans = []
        for stage, channels in enumerate(stage_widths(entries)):
            settings = block_settings(entries, stage)
            if stage == entries.num_stages - 1:
                settings = replace(settings, dilation=entries.trident_dilations[entries.test_branch_idx], dcn=None)
            plans.append(StagePlan(Bottleneck, counts[stage], channels, settings))
        super().__init__(entries, plans)


@PARTS.register("backbone", "ReResNet")
class ReResNet(ResNet):
    """A `ResNet` whose convolutions are equivariant to rotations; its layers have no other settings, as in MMRotate."""

    def __init__(self, entries: ResNet.Entries) -> None:
        super().__init__(replace(entries, conv_cfg={"type": "R2Conv"}, norm_cfg={"type": "InnerBatchNorm"}))
