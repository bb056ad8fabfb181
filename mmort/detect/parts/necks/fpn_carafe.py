"""A feature pyramid whose maps are enlarged by `CARAFE`.

Source: J. Wang et al., "CARAFE: Content-Aware ReAssembly of FEatures", ICCV 2019; MMDetection's ``FPN_CARAFE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts, Schema, default
from mmort.detect.parts.carafe import CARAFE
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.necks.fpn import end_of_levels


@PARTS.register("neck", "FPN_CARAFE")
class CARAFEFPN(nn.Module):
    """Feature pyramid; the levels beyond the backbone's take part in the way from coarse to fine too."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        start_level: int = 0
        end_level: int = -1
        norm_cfg: Config | None = None
        act_cfg: Config | None = None
        order: Sequence[str] = ("conv", "norm", "act")
        upsample_cfg: Config = default({"type": "carafe"})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels = entries.out_channels
        self.start_level = entries.start_level
        self.end = end_of_levels(len(entries.in_channels), entries.end_level)
        used = entries.in_channels[self.start_level : self.end]
        extra = [used[-1], *[channels] * entries.num_outs][: entries.num_outs - len(used)]
        layer: dict[str, Any] = {"norm_cfg": entries.norm_cfg, "act_cfg": entries.act_cfg, "order": entries.order}
        self.lateral_convs = nn.ModuleList(
            [
                *(ConvModule(before, channels, 1, **layer) for before in used),
                *(ConvModule(before, channels, 3, stride=2, padding=1, **layer) for before in extra),
            ]
        )
        self.fpn_convs = nn.ModuleList(
            ConvModule(channels, channels, 3, padding=1, **layer) for _ in range(entries.num_outs)
        )
        upsampling = {**entries.upsample_cfg, "channels": channels, "scale_factor": 2}
        parts = Parts({"upsample_cfg of FPN_CARAFE": {"carafe": CARAFE}})
        self.upsample_modules = nn.ModuleList(
            parts.build("upsample_cfg of FPN_CARAFE", upsampling) for _ in range(entries.num_outs - 1)
        )

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        inputs = inputs[self.start_level : self.end]
        maps: list[Tensor] = []
        for level, conv in enumerate(self.lateral_convs):
            # The first level beyond the backbone's is computed from the backbone's map, the next from that level.
            source = inputs[min(level, len(inputs) - 1)] if level <= len(inputs) else maps[-1]
            maps.append(conv(source))
        for level in range(len(maps) - 1, 0, -1):
            height, width = maps[level - 1].shape[2:]
            enlarged = self.upsample_modules[level - 1](maps[level])
            maps[level - 1] = maps[level - 1] + enlarged[:, :, :height, :width]
        return tuple(conv(x) for conv, x in zip(self.fpn_convs, maps, strict=True))
