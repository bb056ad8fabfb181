"""Backbones of YOLOv5, YOLOv8, YOLOX and RTMDet in MMYOLO, and the base of all of MMYOLO's.

Sources: ultralytics' documentation of the architectures of YOLOv5 and YOLOv8; MMDetection's ``CSPDarknet`` and
``CSPNeXt``; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, only, training_only
from mmort.detect.parts.backbones.csp_darknet import Focus
from mmort.detect.parts.csp import CSPLayer, CSPNeXtBlock, SPPBottleneck, convolution_block
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.blocks import RepeatedPooling, SplitLayer
from mmort.detect.parts.yolo.scaling import RoundedDown, ScaledEntries


class Stage(NamedTuple):
    """A stage of a full-sized network: its channels and blocks, whether it pools, and whether blocks have shortcuts."""

    channels: int
    blocks: int
    pools: bool = False
    add_identity: bool = True


class YOLOBackbone(nn.Module):
    """A stem and stages, each of which halves the size of its maps.

    Attributes
    ----------
    architectures : dict of str to tuple of Stage
        The stages by ``arch``.
    """

    architectures: ClassVar[Mapping[str, tuple[Any, ...]]]

    @dataclass(frozen=True, kw_only=True)
    class Entries(ScaledEntries):
        arch: str = "P5"
        input_channels: int = 3
        out_indices: Sequence[int] = (2, 3, 4)  # stages, counted from 1; 0 is the stem
        plugins: None = only(None)

        ignored: ClassVar = training_only("frozen_stages", "norm_eval")

    def __init__(self, entries: Any) -> None:
        super().__init__()
        if entries.arch not in self.architectures:
            known = ", ".join(self.architectures)
            raise ValueError(f"detect.build: backbone.arch must be one of {known}, got {entries.arch!r}")
        self.out_indices = tuple(entries.out_indices)
        channels = self.stem_channels(entries)
        self.stem = self.build_stem(entries, channels)
        stages = self.stages(entries)
        self.names = ["stem", *(f"stage{index}" for index in range(1, len(stages) + 1))]
        for name, stage in zip(self.names[1:], stages, strict=True):
            modules, channels = self.build_stage(entries, stage, channels)
            self.add_module(name, nn.Sequential(*modules))

    def stages(self, entries: Any) -> Sequence[Any]:
        """Return the stages of the full-sized network."""
        return self.architectures[entries.arch]

    def stem_channels(self, entries: Any) -> int:
        """Return the channels of the stem's output."""
        channels: int = entries.channels(64)
        return channels

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        """Return the layers that halve the image's size."""
        raise NotImplementedError

    def build_stage(self, entries: Any, stage: Any, in_channels: int) -> tuple[list[nn.Module], int]:
        """Return the layers of a stage, and their channels."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for index, name in enumerate(self.names):
            x = getattr(self, name)(x)  # [N, C, H / 2**(index + 1), W / 2**(index + 1)]
            if index in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


@PARTS.register("backbone", "YOLOv5CSPDarknet")
class YOLOv5CSPDarknet(YOLOBackbone):
    """YOLOv5's backbone."""

    architectures: ClassVar = {
        "P5": (Stage(128, 3), Stage(256, 6), Stage(512, 9), Stage(1024, 3, True)),
        "P6": (Stage(128, 3), Stage(256, 6), Stage(512, 9), Stage(768, 3), Stage(1024, 3, True)),
    }

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        return ConvModule(entries.input_channels, channels, 6, stride=2, padding=2, **entries.layer)

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels, layer = entries.channels(stage.channels), entries.layer
        modules: list[nn.Module] = [
            ConvModule(in_channels, channels, 3, stride=2, padding=1, **layer),
            CSPLayer(channels, channels, entries.blocks(stage.blocks), add_identity=True, **layer),
        ]
        if stage.pools:
            modules.append(RepeatedPooling(channels, channels, **layer))
        return modules, channels


@PARTS.register("backbone", "YOLOv8CSPDarknet")
class YOLOv8CSPDarknet(YOLOBackbone):
    """YOLOv8's backbone; the last stage's channels are an entry."""

    architectures: ClassVar = {"P5": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(1024, 3, True))}

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOBackbone.Entries):
        last_stage_out_channels: int = 1024

    def stages(self, entries: Entries) -> Sequence[Stage]:
        *first, last = self.architectures[entries.arch]
        return *first, last._replace(channels=entries.last_stage_out_channels)

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        return ConvModule(entries.input_channels, channels, 3, stride=2, padding=1, **entries.layer)

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels, layer = entries.channels(stage.channels), entries.layer
        modules: list[nn.Module] = [
            ConvModule(in_channels, channels, 3, stride=2, padding=1, **layer),
            SplitLayer(channels, channels, entries.blocks(stage.blocks), add_identity=True, **layer),
        ]
        if stage.pools:
            modules.append(RepeatedPooling(channels, channels, **layer))
        return modules, channels


@PARTS.register("backbone", "YOLOXCSPDarknet")
class YOLOXCSPDarknet(YOLOBackbone):
    """YOLOX's backbone, in which `use_depthwise` changes the layers between stages only."""

    architectures: ClassVar = {"P5": (Stage(128, 3), Stage(256, 9), Stage(512, 9), Stage(1024, 3, True, False))}

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOBackbone.Entries):
        use_depthwise: bool = False
        spp_kernal_sizes: Sequence[int] = (5, 9, 13)

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        return Focus(entries.input_channels, channels, 3, **entries.layer)

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels, layer = entries.channels(stage.channels), entries.layer
        downsample = convolution_block(entries.use_depthwise)
        modules: list[nn.Module] = [downsample(in_channels, channels, 3, stride=2, padding=1, **layer)]
        if stage.pools:
            modules.append(SPPBottleneck(channels, channels, entries.spp_kernal_sizes, **layer))
        count = entries.blocks(stage.blocks)
        modules.append(CSPLayer(channels, channels, count, add_identity=stage.add_identity, **layer))
        return modules, channels


class CSPNeXt(YOLOBackbone):
    """RTMDet's backbone, of the same type as MMDetection's."""

    architectures: ClassVar = {
        "P5": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(1024, 3, True, False)),
        "P6": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(768, 3), Stage(1024, 3, True, False)),
    }

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, YOLOBackbone.Entries):
        expand_ratio: float = 0.5
        channel_attention: bool = True
        norm_cfg: Config | None = default({"type": "BN"})

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        half, layer = channels // 2, entries.layer
        return nn.Sequential(
            ConvModule(entries.input_channels, half, 3, stride=2, padding=1, **layer),
            ConvModule(half, half, 3, padding=1, **layer),
            ConvModule(half, channels, 3, padding=1, **layer),
        )

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels, layer = entries.channels(stage.channels), entries.layer
        modules: list[nn.Module] = [ConvModule(in_channels, channels, 3, stride=2, padding=1, **layer)]
        if stage.pools:
            modules.append(RepeatedPooling(channels, channels, **layer))
        modules.append(
            CSPLayer(
                channels,
                channels,
                entries.blocks(stage.blocks),
                block=CSPNeXtBlock,
                expand_ratio=entries.expand_ratio,
                add_identity=stage.add_identity,
                channel_attention=entries.channel_attention,
                **layer,
            )
        )
        return modules, channels
