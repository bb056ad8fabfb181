"""YOLOv6's backbones: EfficientRep, and CSPBep of the larger models.

Sources: C. Li et al., "YOLOv6: A Single-Stage Object Detection Framework for Industrial Applications", 2022; C. Li et
al., "YOLOv6 v3.0: A Full-Scale Reloading", 2023; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, nested
from mmort.detect.parts.backbones.yolo import Stage, YOLOBackbone
from mmort.detect.parts.yolo.blocks import RepeatedPooling
from mmort.detect.parts.yolo.rep_vgg import BepLayer, BlockEntries, RepStage, SplitPooling
from mmort.detect.parts.yolo.scaling import RELU, SILU


@PARTS.register("backbone", "YOLOv6EfficientRep")
class YOLOv6EfficientRep(YOLOBackbone):
    """Blocks of RepVGG in a row."""

    architectures: ClassVar = {"P5": (Stage(128, 6), Stage(256, 12), Stage(512, 18), Stage(1024, 6, True))}

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOBackbone.Entries):
        use_cspsppf: bool = False  # read by YOLOv6EfficientRep alone
        block_cfg: BlockEntries = nested(BlockEntries, default={"type": "RepVGGBlock"})
        act_cfg: Config | None = default(RELU)

    def stem_channels(self, entries: Any) -> int:
        return int(64 * entries.widen_factor)

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        return entries.block_cfg.block(entries.input_channels, channels, 2)

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels = entries.channels(stage.channels)
        downsample = entries.block_cfg.block(in_channels, channels, 2)
        blocks = self.build_blocks(entries, channels, entries.blocks(stage.blocks))
        modules: list[nn.Module] = [nn.Sequential(downsample, blocks)]
        if stage.pools:
            modules.append(self.pooling(entries)(channels, channels, **entries.layer))
        return modules, channels

    def build_blocks(self, entries: Any, channels: int, count: int) -> nn.Module:
        """Return the layers of a stage after the one that halves its maps."""
        return RepStage(channels, channels, count, entries.block_cfg.block)

    def pooling(self, entries: Any) -> type[RepeatedPooling | SplitPooling]:
        """Return the class of the last layer."""
        return SplitPooling if entries.use_cspsppf else RepeatedPooling


@PARTS.register("backbone", "YOLOv6CSPBep")
class YOLOv6CSPBep(YOLOv6EfficientRep):
    """Pairs of blocks on a part of the channels."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv6EfficientRep.Entries):
        hidden_ratio: float = 0.5
        block_cfg: BlockEntries = nested(BlockEntries, default={"type": "ConvWrapper"})
        act_cfg: Config | None = default(SILU)

    def pooling(self, entries: Any) -> type[RepeatedPooling | SplitPooling]:
        return RepeatedPooling

    def build_blocks(self, entries: Any, channels: int, count: int) -> nn.Module:
        return BepLayer(channels, channels, count, entries.block_cfg.block, entries.hidden_ratio, **entries.layer)
