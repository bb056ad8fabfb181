"""CentripetalNet: CornerNet whose corners point to the centre of their object, and pair where they point to the same.

Source: Z. Dong et al., "CentripetalNet: Pursuing High-quality Keypoint Pairs for Object Detection", CVPR 2020;
MMDetection's ``CentripetalHead``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS
from mmort.detect.families.dense.cornernet import CornerHead, CornerNet, Corners, branch
from mmort.detect.parts.layers import ConvModule
from mmort.torch import DeformConv2d

MAPS = tuple(
    f"{kind}_{name}" for name in ("heat", "off", "guiding_shift", "centripetal_shift") for kind in ("tl", "br")
)
"""The head's maps, in order."""

LARGE_AREA = 3500
"""The area in pixels above which the centre of a box is relatively larger."""


class CentripetalHead(CornerHead):
    """Heatmaps and offsets of CornerNet; the shift of each corner to the centre, from features sampled around it."""

    embedding_channels: ClassVar = 0

    @dataclass(frozen=True, kw_only=True)
    class Entries(CornerHead.Entries):
        corner_emb_channels: int = 0
        centripetal_shift_channels: int = 2
        guiding_shift_channels: int = 2
        feat_adaption_conv_kernel: int = 3

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        channels, guides, size = entries.in_channels, entries.guiding_shift_channels, entries.feat_adaption_conv_kernel
        levels = range(entries.num_feat_levels)
        for kind in ("tl", "br"):
            layers: dict[str, list[nn.Module]] = {
                "guiding_shift": [branch(channels, guides) for _ in levels],
                "dcn_offset": [ConvModule(guides, size**2 * guides, 1, bias=False, act_cfg=None) for _ in levels],
                "feat_adaption": [DeformConv2d(channels, channels, size, padding=1) for _ in levels],
                "centripetal_shift": [branch(channels, entries.centripetal_shift_channels) for _ in levels],
            }
            for name, of_levels in layers.items():
                self.add_module(f"{kind}_{name}", nn.ModuleList(of_levels))

    def maps(self, x: Tensor, level: int) -> tuple[Tensor, ...]:
        """Return heat [N, C, h, w], offset, guiding and centripetal shift [N, 2, h, w]; top left first."""
        maps: dict[str, Tensor] = {}
        for kind in ("tl", "br"):

            def output(name: str, *inputs: Tensor, kind: str = kind) -> Tensor:
                layers: Any = getattr(self, f"{kind}_{name}")
                return layers[level](*inputs)

            pooled = output("pool", x)
            guide = output("guiding_shift", pooled)
            adapted = output("feat_adaption", pooled, output("dcn_offset", guide))
            maps |= {
                f"{kind}_heat": output("heat", pooled),
                f"{kind}_off": output("off", pooled),
                f"{kind}_guiding_shift": guide,
                f"{kind}_centripetal_shift": output("centripetal_shift", adapted),
            }
        return tuple(maps[name] for name in MAPS)


@PARTS.register("detector", "CentripetalHead")
class CentripetalNet(CornerNet):
    """CentripetalNet."""

    family = "CentripetalNet"
    head = CentripetalHead

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return MAPS

    def pairs(self, maps: tuple[Tensor, ...], size: Tensor, origin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the best pairs as `CornerNet.pairs` does."""
        tl_heat, br_heat, tl_off, br_off, _, _, tl_shift, br_shift = maps
        return super().pairs((tl_heat, br_heat, tl_shift, br_shift, tl_off, br_off), size, origin)

    def apart(self, tl: Corners, br: Corners, pixels: Callable[[Tensor], Tensor]) -> Tensor:
        """Return which pairs of corners do not point into the middle of their box, or not to one point, [N, K, K]."""
        first, last = pixels(tl.points)[:, :, None], pixels(br.points)[:, None]
        ends = (
            pixels(tl.points + tl.features.exp())[:, :, None],
            pixels(br.points - br.features.exp())[:, None],
        )
        centre, extent = (first + last) / 2, last - first  # [N, K, K, 2]
        share = torch.where(extent.prod(-1, keepdim=True).abs() > LARGE_AREA, 1 / 2.1, 1 / 2.4)
        low, high = centre - share * extent / 2, centre + share * extent / 2
        outside = torch.stack([(end <= low) | (end >= high) for end in ends]).any(0).any(-1)
        distance = (ends[1] - ends[0]).prod(-1).abs() / (high - low).prod(-1).abs()
        return outside | (distance > self.test_cfg.distance_threshold)
