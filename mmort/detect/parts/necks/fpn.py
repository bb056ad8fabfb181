"""The feature pyramid: every level is added to the coarser one, enlarged.

Sources: T.-Y. Lin et al., "Feature Pyramid Networks for Object Detection", CVPR 2017; S. Liu et al., "Path Aggregation
Network for Instance Segmentation", CVPR 2018; J. Han et al., "ReDet: A Rotation-equivariant Detector for Aerial Object
Detection", CVPR 2021; MMDetection's ``FPN`` and ``PAFPN``, MMRotate's ``ReFPN``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, nested, training_only
from mmort.detect.parts.equivariant import ORIENTATIONS
from mmort.detect.parts.layers import ConvModule, LayerEntries


@dataclass(frozen=True, kw_only=True)
class UpsampleEntries(Schema):
    """The entries of ``upsample_cfg``, which are arguments of torch's ``interpolate``."""

    mode: str = "nearest"
    scale_factor: float | None = None
    align_corners: bool | None = None

    def __post_init__(self) -> None:
        if self.mode not in ("nearest", "bilinear"):
            raise ValueError(f"detect.build: neck.upsample_cfg.mode must be 'nearest' or 'bilinear', got {self.mode!r}")
        if self.mode == "nearest" and self.align_corners is not None:
            raise ValueError("detect.build: neck.upsample_cfg.align_corners must be left out with mode 'nearest'")


def end_of_levels(levels: int, end_level: int) -> int:
    """Return the index after the last level that a neck reads; its ``end_level`` -1 means the last of all `levels`."""
    return levels if end_level == -1 else end_level + 1


@PARTS.register("neck", "FPN")
class FPN(nn.Module):
    """Feature pyramid.

    Levels beyond the backbone's come from convolutions with stride 2 (`add_extra_convs`: "on_input", which True means
    too, "on_lateral" or "on_output"); without these, from every second row and column of the last level.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int
        start_level: int = 0
        end_level: int = -1
        add_extra_convs: bool | str = False
        relu_before_extra_convs: bool = False
        no_norm_on_lateral: bool = False
        act_cfg: Config | None = None
        upsample_cfg: UpsampleEntries = nested(UpsampleEntries, "neck.upsample_cfg", default={})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        in_channels, out_channels, start_level = entries.in_channels, entries.out_channels, entries.start_level
        source = "on_input" if entries.add_extra_convs is True else entries.add_extra_convs
        if source not in (False, "on_input", "on_lateral", "on_output"):
            raise ValueError(
                "detect.build: neck.add_extra_convs must be a bool, 'on_input', 'on_lateral' or 'on_output', "
                f"got {entries.add_extra_convs!r}"
            )
        levels = len(in_channels)
        end = end_of_levels(levels, entries.end_level)
        extra = entries.num_outs - (end - start_level)
        if extra < 0 or (extra and end < levels):
            raise ValueError(
                f"detect.build: neck.num_outs must be the number of levels from start_level to end_level, or more if "
                f"these reach the last, got {entries.num_outs}"
            )
        self.start_level, self.end, self.extra, self.source = start_level, end, extra, source
        self.relu_before_extra_convs = entries.relu_before_extra_convs
        self.upsampling = entries.upsample_cfg
        layer = entries.layer
        lateral = {**layer, "norm_cfg": None} if entries.no_norm_on_lateral else layer
        used = in_channels[start_level:end]
        self.lateral_convs = nn.ModuleList(ConvModule(channels, out_channels, 1, **lateral) for channels in used)
        self.fpn_convs = nn.ModuleList(ConvModule(out_channels, out_channels, 3, padding=1, **layer) for _ in used)
        for level in range(extra if source else 0):
            channels = used[-1] if level == 0 and source == "on_input" else out_channels
            self.fpn_convs.append(ConvModule(channels, out_channels, 3, stride=2, padding=1, **layer))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        inputs = inputs[self.start_level : self.end]
        laterals = self.top_down(inputs)
        outputs = [conv(x) for conv, x in zip(self.fpn_convs, laterals, strict=False)]
        return self.with_extra_levels(inputs, laterals, outputs)

    def top_down(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return for each level the sum of its own map and of the coarser ones, enlarged, [N, C, h, w]."""
        laterals = [conv(x) for conv, x in zip(self.lateral_convs, inputs, strict=True)]
        for level in range(len(laterals) - 1, 0, -1):
            size = None if self.upsampling.scale_factor else laterals[level - 1].shape[2:]
            laterals[level - 1] = laterals[level - 1] + F.interpolate(laterals[level], size, **vars(self.upsampling))
        return laterals

    def with_extra_levels(
        self, inputs: Sequence[Tensor], laterals: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Return `outputs` and the levels beyond the backbone's."""
        outputs = list(outputs)
        for level in range(self.extra):
            if not self.source:
                outputs.append(F.max_pool2d(outputs[-1], 1, stride=2))
                continue
            if level == 0:
                x = {"on_input": inputs[-1], "on_lateral": laterals[-1], "on_output": outputs[-1]}[self.source]
            else:
                x = F.relu(outputs[-1]) if self.relu_before_extra_convs else outputs[-1]
            outputs.append(self.fpn_convs[len(laterals) + level](x))
        return tuple(outputs)


@PARTS.register("neck", "FPN_DropBlock")
class DropBlockFPN(FPN):
    """An `FPN` whose training leaves out blocks of its maps."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(FPN.Entries):
        ignored: ClassVar = training_only("plugin")


@PARTS.register("neck", "PAFPN")
class PAFPN(FPN):
    """Path aggregation: an `FPN` whose finer levels are then added to the coarser ones."""

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


@PARTS.register("neck", "ReFPN")
class ReFPN(FPN):
    """An `FPN` whose convolutions are equivariant to rotations, without further ones."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: Sequence[int]
        out_channels: int
        num_outs: int

        def check(self, name: str) -> None:
            """Raise a ValueError if channels cannot be divided among the orientations."""
            for channels in self.in_channels:
                if channels % ORIENTATIONS:
                    raise ValueError(
                        f"detect.build: in_channels of {name} must be multiples of {ORIENTATIONS}, the orientations, "
                        f"got {[*self.in_channels]}"
                    )
            if self.out_channels % ORIENTATIONS:
                raise ValueError(
                    f"detect.build: out_channels of {name} must be a multiple of {ORIENTATIONS}, the orientations, "
                    f"got {self.out_channels}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__(
            FPN.Entries(
                in_channels=entries.in_channels,
                out_channels=entries.out_channels,
                num_outs=entries.num_outs,
                conv_cfg={"type": "R2Conv"},
                upsample_cfg=UpsampleEntries(),
            )
        )
