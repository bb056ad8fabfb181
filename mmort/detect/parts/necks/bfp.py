"""BFP: the mean of all levels of a pyramid, refined, and added to each of them.

Source: J. Pang et al., "Libra R-CNN: Towards Balanced Learning for Object Detection", CVPR 2019; MMDetection's ``BFP``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, require
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.plugins import NonLocal2d


@PARTS.register("neck", "BFP")
class BFP(nn.Module):
    """Balanced feature pyramid, after another neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int
        num_levels: int
        refine_level: int = 2
        refine_type: str | None = None
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.levels, self.refine_level = entries.num_levels, entries.refine_level
        channels, conv_cfg, norm_cfg = entries.in_channels, entries.conv_cfg, entries.norm_cfg
        self.refine: nn.Module = nn.Identity()
        if entries.refine_type is None:
            return
        if require("neck.refine_type", entries.refine_type, "conv", "non_local") == "conv":
            self.refine = ConvModule(channels, channels, 3, padding=1, conv_cfg=conv_cfg, norm_cfg=norm_cfg)
        else:
            settings = NonLocal2d.Entries(
                in_channels=channels, reduction=1, use_scale=False, conv_cfg=conv_cfg, norm_cfg=norm_cfg
            )
            self.refine = NonLocal2d(settings)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        middle = self.refine_level
        size = inputs[middle].shape[2:]
        gathered = [
            max_pool_to(x, size) if level < middle else F.interpolate(x, size=size) for level, x in enumerate(inputs)
        ]
        mean = self.refine(sum(gathered[1:], gathered[0]) / self.levels)
        scattered = [
            max_pool_to(mean, x.shape[2:]) if level > middle else F.interpolate(mean, size=x.shape[2:])
            for level, x in enumerate(inputs)
        ]
        return tuple(x + change for x, change in zip(inputs, scattered, strict=True))


def max_pool_to(x: Tensor, size: Sequence[int]) -> Tensor:
    """Return torch's adaptive max pooling, which exports to a fixed size only, by other operators.

    Parameters
    ----------
    x : Tensor, [N, C, H, W]
    size : sequence of int
        Height and width.

    Returns
    -------
    Tensor, [N, C, *size]
    """
    for axis, target in zip((2, 3), size, strict=True):
        side = x.shape[axis]
        position = torch.arange(target, device=x.device)
        begin, end = position * side // target, ((position + 1) * side + target - 1) // target  # of each window
        longest = (side + target - 1) // target + 1  # at least the longest of them
        index = torch.minimum(begin[:, None] + torch.arange(longest, device=x.device), end[:, None] - 1)
        x = torch.unflatten(x.index_select(axis, index.flatten()), axis, (target, longest)).amax(axis + 1)
    return x
