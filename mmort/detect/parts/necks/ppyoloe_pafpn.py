"""PP-YOLOE's feature pyramid.

Source: S. Xu et al., "PP-YOLOE: An evolved version of YOLO", 2022; MMYOLO's configs.  Layers have MMYOLO's names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, nested, only
from mmort.detect.parts.backbones.ppyoloe import PLAIN_NORM
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.necks.yolo_pafpn import YOLONeck
from mmort.detect.parts.yolo.csp_res import BasicBlockEntries, CSPResLayer, block_count
from mmort.detect.parts.yolo.scaling import RoundedDown


@PARTS.register("neck", "PPYOLOECSPPAFPN")
class PPYOLOECSPPAFPN(YOLONeck):
    """PP-YOLOE's neck: a level's map is reduced to half of its channels before it is enlarged."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, YOLONeck.Entries):
        in_channels: Sequence[int] = (256, 512, 1024)
        out_channels: Sequence[int] = (256, 512, 1024)
        num_csplayer: int = 1
        num_blocks_per_layer: int = 3
        block_cfg: BasicBlockEntries = nested(BasicBlockEntries, default={"shortcut": False})
        norm_cfg: Config | None = default(PLAIN_NORM)
        drop_block_cfg: None = only(None)
        use_spp: bool = False

        def out(self, level: int) -> int:
            """Return the channels of an output."""
            return self.channels(self.out_channels[level])

    def block(self, entries: Any, in_channels: int, out_channels: int, *, pools: bool = False) -> nn.Module:
        """Return the layers of a level."""
        count = block_count(entries.num_blocks_per_layer, entries.deepen_factor)
        inputs = [in_channels] + [out_channels] * (entries.num_csplayer - 1)
        return nn.Sequential(
            *(
                CSPResLayer(inner, out_channels, count, entries.block_cfg, pools=pools, **entries.layer)
                for inner in inputs
            )
        )

    def reduce_layer(self, entries: Any, level: int) -> nn.Module:
        if level < len(self.channels) - 1:
            return nn.Identity()
        return self.block(entries, self.channels[level], entries.out(level), pools=entries.use_spp)

    def upsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level)
        return nn.Sequential(ConvModule(channels, channels // 2, 1, **entries.layer))

    def top_down_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, self.channels[level - 1] + entries.out(level) // 2, entries.out(level - 1))

    def downsample_layer(self, entries: Any, level: int) -> nn.Module:
        channels = entries.out(level)
        return ConvModule(channels, channels, 3, stride=2, padding=1, **entries.layer)

    def bottom_up_layer(self, entries: Any, level: int) -> nn.Module:
        return self.block(entries, entries.out(level) + entries.out(level + 1), entries.out(level + 1))
