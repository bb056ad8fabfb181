"""PAFPN: a feature pyramid whose finer levels are then added to the coarser ones.

Source: S. Liu et al., "Path Aggregation Network for Instance Segmentation", CVPR 2018; MMDetection's ``PAFPN``.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.necks.fpn import FPN


@PARTS.register("neck", "PAFPN")
class PAFPN(FPN):
    """Path aggregation."""

    def __init__(self, entries: FPN.Entries) -> None:
        super().__init__(entries)
        layer = entries.layer
        channels, steps = entries.out_channels, range(len(self.lateral_convs) - 1)
        self.downsample_convs = nn.ModuleList(
            ConvModule(channels, channels, 3, stride=2, padding=1, **layer) for _ in steps
        )
        self.pafpn_convs = nn.ModuleList(ConvModule(channels, channels, 3, padding=1, **layer) for _ in steps)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        inputs = inputs[self.start_level : self.end]
        laterals = self.top_down(inputs)
        maps = [conv(x) for conv, x in zip(self.fpn_convs, laterals, strict=False)]
        for level, conv in enumerate(self.downsample_convs, start=1):
            maps[level] = maps[level] + conv(maps[level - 1])
        refined = [conv(x) for conv, x in zip(self.pafpn_convs, maps[1:], strict=True)]
        return self.with_extra_levels(inputs, laterals, [maps[0], *refined])
