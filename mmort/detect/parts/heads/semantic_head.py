"""The head that fuses all levels of a pyramid into one map, from which second stages read the surroundings of regions.

Source: K. Chen et al., "Hybrid Task Cascade for Instance Segmentation", CVPR 2019; MMDetection's ``FusedSemanticHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, training_only
from mmort.detect.parts.layers import ConvModule, tower


class FusedSemanticHead(nn.Module):
    """The sum of all levels at the size of one, then convolutions."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_ins: int
        fusion_level: int
        num_convs: int = 4
        in_channels: int = 256
        conv_out_channels: int = 256
        num_classes: int = 183
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None

        ignored: ClassVar = training_only("seg_scale_factor", "ignore_label")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, width = entries.in_channels, entries.conv_out_channels
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.level = entries.fusion_level
        self.lateral_convs = nn.ModuleList(ConvModule(channels, channels, 1, **layer) for _ in range(entries.num_ins))
        self.convs: nn.Module = tower(channels, width, entries.num_convs, **layer)
        self.conv_embedding = ConvModule(width, width, 1, **layer)
        self.conv_logits = nn.Conv2d(width, entries.num_classes, 1)  # of the surroundings; only training reads them

    def forward(self, features: list[Tensor]) -> Tensor:
        """Return a map [N, C, h, w] of the size of one level."""
        if len(features) > len(self.lateral_convs):
            raise ValueError(
                f"detect: num_ins of semantic_head must be at least the number of levels, the neck's num_outs, "
                f"{len(features)}, got {len(self.lateral_convs)}"
            )
        x = self.lateral_convs[self.level](features[self.level])
        for index, level in enumerate(features):
            if index != self.level:
                level = functional.interpolate(level, size=x.shape[2:], mode="bilinear", align_corners=True)
                x = x + self.lateral_convs[index](level)
        return self.conv_embedding(self.convs(x))


def with_surroundings(pooled: Tensor, around: Tensor) -> Tensor:
    """Return features of regions [R, C, h, w] plus those of their surroundings, [R, C, h', w'], at the same size."""
    if around.shape[2:] != pooled.shape[2:]:
        around = functional.adaptive_avg_pool2d(around, (pooled.shape[2], pooled.shape[3]))
    return pooled + around
