"""PP-YOLOE's backbone.

Source: S. Xu et al., "PP-YOLOE: An evolved version of YOLO", 2022; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, nested
from mmort.detect.parts.backbones.yolo import Stage, YOLOBackbone
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.csp_res import BasicBlockEntries, CSPResLayer, block_count

PLAIN_NORM: Config = {"type": "BN", "momentum": 0.1, "eps": 1e-5}


@dataclass(frozen=True, kw_only=True)
class HSigmoidEntries(Schema):
    """The entries of the activation of ``attention_cfg``, which has only its type."""

    types: ClassVar = ("HSigmoid",)


@dataclass(frozen=True, kw_only=True)
class AttentionEntries(Schema):
    """The entries of ``attention_cfg``."""

    types: ClassVar = ("EffectiveSELayer",)

    act_cfg: HSigmoidEntries = nested(HSigmoidEntries, default={})


@PARTS.register("backbone", "PPYOLOECSPResNet")
class PPYOLOECSPResNet(YOLOBackbone):
    """A cross stage partial layer a stage."""

    architectures: ClassVar = {"P5": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(1024, 3))}

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOBackbone.Entries):
        use_large_stem: bool = False
        block_cfg: BasicBlockEntries = nested(BasicBlockEntries, default={"shortcut": True, "use_alpha": True})
        attention_cfg: AttentionEntries = nested(AttentionEntries, default={})
        norm_cfg: Config | None = default(PLAIN_NORM)

    def stem_channels(self, entries: Any) -> int:
        return int(64 * entries.widen_factor)

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        half, layer = channels // 2, entries.layer
        large = [ConvModule(half, half, 3, padding=1, **layer)] if entries.use_large_stem else []
        return nn.Sequential(
            ConvModule(entries.input_channels, half, 3, stride=2, padding=1, **layer),
            *large,
            ConvModule(half, channels, 3, padding=1, **layer),
        )

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        channels, count = entries.channels(stage.channels), block_count(stage.blocks, entries.deepen_factor)
        layer = CSPResLayer(in_channels, channels, count, entries.block_cfg, of_backbone=True, **entries.layer)
        return [layer], channels
