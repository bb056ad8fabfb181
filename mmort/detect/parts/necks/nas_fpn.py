"""NAS-FPN: a pyramid whose connections a search has found, several times in a row.

Source: G. Ghiasi et al., "NAS-FPN: Learning Scalable Feature Pyramid Architecture for Object Detection", CVPR 2019;
MMDetection's ``NASFPN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.merge_cells import resize, weighted_sum
from mmort.detect.parts.necks.fpn import end_of_levels

_CELLS = ("gp_64_4", "sum_44_4", "sum_43_3", "sum_34_4", "gp_43_5", "sum_55_5", "gp_54_7", "sum_77_7", "gp_75_6")
"""In MMDetection's names, the operation, the levels of both inputs, and the level of the result."""

_WITHOUT_CONVOLUTION = ("gp_43_5", "gp_54_7")


@PARTS.register("neck", "NASFPN")
class NASFPN(nn.Module):
    """NAS-FPN with the levels 3 to 7."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        stack_times: int
        start_level: int = 0
        end_level: int = -1
        norm_cfg: Config | None = None

        ignored: ClassVar = {"add_extra_convs": "MMDetection does not read it either"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, norm_cfg = entries.out_channels, entries.norm_cfg
        self.start_level = entries.start_level
        self.end = end_of_levels(len(entries.in_channels), entries.end_level)
        used = entries.in_channels[self.start_level : self.end]
        if entries.num_outs != 5:
            raise ValueError(f"detect.build: neck.num_outs must be 5 for NASFPN, got {entries.num_outs}")
        if len(used) > 5:
            raise ValueError(
                "detect.build: neck.in_channels must have at most 5 levels from start_level to end_level for NASFPN, "
                f"got {len(used)}"
            )
        self.lateral_convs = nn.ModuleList(
            ConvModule(before, channels, 1, norm_cfg=norm_cfg, act_cfg=None) for before in used
        )
        self.extra_downsamples = nn.ModuleList(
            nn.Sequential(ConvModule(channels, channels, 1, norm_cfg=norm_cfg, act_cfg=None), nn.MaxPool2d(2))
            for _ in range(5 - len(used))
        )
        convolution: dict[str, Any] = {"bias": True, "norm_cfg": norm_cfg, "order": ("act", "conv", "norm")}
        self.fpn_stages = nn.ModuleList()
        for _ in range(entries.stack_times):
            stage = nn.ModuleDict()
            for cell in _CELLS:
                stage[cell] = nn.Module()
                if cell not in _WITHOUT_CONVOLUTION:
                    stage[cell].out_conv = ConvModule(channels, channels, 3, padding=1, **convolution)
            self.fpn_stages.append(stage)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        maps = [conv(x) for conv, x in zip(self.lateral_convs, inputs[self.start_level : self.end], strict=True)]
        for downsample in self.extra_downsamples:
            maps.append(downsample(maps[-1]))
        p3, p4, p5, p6, p7 = maps
        for stage in self.fpn_stages:

            def merge(cell: str, first: Tensor, second: Tensor, like: Tensor, stage: nn.Module = stage) -> Tensor:
                """Return a cell's result at the size of the map `like`."""
                operation, levels, level = cell.split("_")
                first, second = (
                    x if source == level else resize(x, like.shape[2:], finer=level < source)
                    for x, source in zip((first, second), levels, strict=True)
                )
                x = first + second if operation == "sum" else weighted_sum(first, second)
                return x if cell in _WITHOUT_CONVOLUTION else stage.get_submodule(f"{cell}.out_conv")(x)

            inner = merge("sum_44_4", merge("gp_64_4", p6, p4, p4), p4, p4)
            p3 = merge("sum_43_3", inner, p3, p3)
            p4 = merge("sum_34_4", p3, inner, p4)
            p5 = merge("sum_55_5", p5, merge("gp_43_5", p4, p3, p5), p5)
            p7 = merge("sum_77_7", p7, merge("gp_54_7", p5, inner, p7), p7)
            p6 = merge("gp_75_6", p7, p5, p6)
        return p3, p4, p5, p6, p7
