"""YOLOv7's feature pyramid.

Source: C.-Y. Wang et al., "YOLOv7: Trainable bag-of-freebies sets new state-of-the-art for real-time object detectors",
2022; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, nested
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.necks.yolo_pafpn import YOLONeck
from mmort.detect.parts.yolo.elan import ELANEntries, HalvingLayer, PoolingLayer
from mmort.detect.parts.yolo.rep_vgg import RepVGGBlock
from mmort.detect.parts.yolo.scaling import RoundedDown

_BLOCK: Config = {
    "type": "ELANBlock",
    "middle_ratio": 0.5,
    "block_ratio": 0.25,
    "num_blocks": 4,
    "num_convs_in_block": 1,
}


@PARTS.register("neck", "YOLOv7PAFPN")
class YOLOv7PAFPN(YOLONeck):
    """YOLOv7's neck; with four levels its outputs have no layer of their own."""

    LEVELS_WITHOUT_OUTPUT_LAYERS: ClassVar[int] = 4

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, YOLONeck.Entries):
        out_channels: Sequence[int]
        block_cfg: ELANEntries = nested(ELANEntries, default=_BLOCK)
        spp_expand_ratio: float = 0.5
        is_tiny_version: bool = False
        use_maxpool_in_downsample: bool = True
        use_in_channels_in_downsample: bool = False
        use_repconv_outs: bool = True
        upsample_feats_cat_first: bool = False

        def out(self, level: int) -> int:
            """Return the channels of a level before its output."""
            return self.channels(self.out_channels[level])

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.upsampled_first = entries.upsample_feats_cat_first

    def reduce_layer(self, entries: Any, level: int) -> nn.Module:
        inputs, channels, layer = self.channels[level], entries.out(level), entries.layer
        if level < len(self.channels) - 1:
            return ConvModule(inputs, channels, 1, **layer)
        ratio, tiny = entries.spp_expand_ratio, entries.is_tiny_version
        return PoolingLayer(inputs, channels, expand_ratio=ratio, tiny=tiny, **layer)

    def upsample_layer(self, entries: Any, level: int) -> nn.Module:
        return nn.Sequential(ConvModule(entries.out(level), entries.out(level - 1), 1, **entries.layer))

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level - 1)
        return entries.block_cfg.block(channels * 2, channels, **entries.layer)

    def downsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels, coarser, layer = entries.out(level), entries.out(level + 1), entries.layer
        if entries.use_maxpool_in_downsample and not entries.is_tiny_version:
            return HalvingLayer(channels, coarser, keeps_channels=entries.use_in_channels_in_downsample, **layer)
        return ConvModule(channels, coarser, 3, stride=2, padding=1, **layer)

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level + 1)
        return entries.block_cfg.block(channels * 2, channels, **entries.layer)

    def out_layer(self, entries: Any, level: int) -> nn.Module:
        if len(self.channels) == self.LEVELS_WITHOUT_OUTPUT_LAYERS:
            return nn.Identity()
        channels, outputs = entries.out(level), entries.channels(entries.out_channels[level] * 2)
        if entries.use_repconv_outs:
            return RepVGGBlock(channels, outputs, identity=False, **entries.layer)
        return ConvModule(channels, outputs, 3, padding=1, **entries.layer)
