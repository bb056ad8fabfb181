"""YOLOv7's backbones.

Source: C.-Y. Wang et al., "YOLOv7: Trainable bag-of-freebies sets new state-of-the-art for real-time object detectors",
2022; MMYOLO's configs and the shapes of its weights, whose names the layers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from torch import nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.backbones.csp_darknet import Focus
from mmort.detect.parts.backbones.yolo import YOLOBackbone
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.elan import ELAN, HalvingLayer, SummedELAN, TinyELAN
from mmort.detect.parts.yolo.scaling import RoundedDown

Halving = Literal["none", "pooling", "convolution", "both", "both of all channels"]


class Stage(NamedTuple):
    """A stage of a full-sized network.

    Attributes
    ----------
    halving : str
        What halves the maps first: nothing, maxima, a convolution, or both side by side; see `HalvingLayer`.
    halved : int
        The channels after it.
    ratio : float
        Of the channels within the block to these.
    channels : int
        Of the block's output.
    """

    halving: Halving
    halved: int
    ratio: float
    channels: int


class Architecture(NamedTuple):
    """A full-sized network.

    Attributes
    ----------
    stem : int
        Channels of its output.
    blocks : int
        Of an `ELAN`; 0 of the smallest model, which has none.
    summed : int
        How many `ELAN` of a stage are added up.
    stages : tuple of Stage
    """

    stem: int
    blocks: int
    summed: int
    stages: tuple[Stage, ...]


def _large(stem: int, halving: Halving, blocks: int, ratio: float, channels: Sequence[int], summed: int = 1) -> Any:
    """Return a model of five stages."""
    return Architecture(stem, blocks, summed, tuple(Stage(halving, number, ratio, number) for number in channels))


@PARTS.register("backbone", "YOLOv7Backbone")
class YOLOv7Backbone(YOLOBackbone):
    """YOLOv7's backbone; no block depends on `deepen_factor`."""

    architectures: ClassVar[dict[str, Architecture]] = {
        "Tiny": Architecture(
            64,
            0,
            1,
            (
                Stage("none", 64, 0.5, 64),
                Stage("pooling", 64, 1.0, 128),
                Stage("pooling", 128, 1.0, 256),
                Stage("pooling", 256, 1.0, 512),
            ),
        ),
        "L": Architecture(
            64,
            2,
            1,
            (
                Stage("convolution", 128, 0.5, 256),
                Stage("both", 256, 0.5, 512),
                Stage("both", 512, 0.5, 1024),
                Stage("both", 1024, 0.25, 1024),
            ),
        ),
        "X": Architecture(
            80,
            3,
            1,
            (
                Stage("convolution", 160, 0.4, 320),
                Stage("both", 320, 0.4, 640),
                Stage("both", 640, 0.4, 1280),
                Stage("both", 1280, 0.2, 1280),
            ),
        ),
        "W": _large(64, "convolution", 2, 0.5, [128, 256, 512, 768, 1024]),
        "E": _large(80, "both of all channels", 3, 0.4, [160, 320, 640, 960, 1280]),
        "D": _large(96, "both of all channels", 4, 1 / 3, [192, 384, 768, 1152, 1536]),
        "E2E": _large(80, "both of all channels", 3, 0.4, [160, 320, 640, 960, 1280], summed=2),
    }

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, YOLOBackbone.Entries):
        arch: str = "L"

    def stages(self, entries: Any) -> Sequence[Stage]:
        return self.architectures[entries.arch].stages

    def stem_channels(self, entries: Any) -> int:
        channels: int = entries.channels(self.architectures[entries.arch].stem)
        return channels

    def build_stem(self, entries: Any, channels: int) -> nn.Module:
        inputs, layer, half = entries.input_channels, entries.layer, channels // 2
        if entries.arch == "Tiny":
            return nn.Sequential(
                ConvModule(inputs, half, 3, stride=2, padding=1, **layer),
                ConvModule(half, channels, 3, stride=2, padding=1, **layer),
            )
        if entries.arch in ("L", "X"):
            return nn.Sequential(
                ConvModule(inputs, half, 3, padding=1, **layer),
                ConvModule(half, channels, 3, stride=2, padding=1, **layer),
                ConvModule(channels, channels, 3, padding=1, **layer),
            )
        return Focus(inputs, channels, 3, **layer)

    def build_stage(self, entries: Any, stage: Stage, in_channels: int) -> tuple[list[nn.Module], int]:
        halved, channels = entries.channels(stage.halved), entries.channels(stage.channels)
        layer = entries.layer
        modules: list[nn.Module] = []
        if stage.halving == "pooling":
            modules.append(nn.MaxPool2d(2, 2))
        elif stage.halving == "convolution":
            modules.append(ConvModule(in_channels, halved, 3, stride=2, padding=1, **layer))
        elif stage.halving != "none":
            keeps_channels = stage.halving == "both of all channels"
            modules.append(HalvingLayer(in_channels, halved, keeps_channels=keeps_channels, **layer))
        return [*modules, self.build_block(entries, stage, halved, channels)], channels

    def build_block(self, entries: Any, stage: Stage, in_channels: int, channels: int) -> nn.Module:
        """Return the block of a stage."""
        architecture = self.architectures[entries.arch]
        if architecture.blocks == 0:
            return TinyELAN(in_channels, channels, middle_ratio=stage.ratio, **entries.layer)
        options = {
            "middle_ratio": stage.ratio,
            "block_ratio": stage.ratio,
            "num_blocks": architecture.blocks,
            "num_convs_in_block": 2,
            **entries.layer,
        }
        if architecture.summed > 1:
            return SummedELAN(in_channels, channels, count=architecture.summed, **options)
        return ELAN(in_channels, channels, **options)
