"""BiFPN: from the coarsest level to the finest and back, several times in a row, with learned weights of the maps.

Source: M. Tan et al., "EfficientDet: Scalable and Efficient Object Detection", CVPR 2020; MMDetection's
``projects/EfficientDet``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, at_least, default
from mmort.detect.parts.layers import missing_pixels, normalization


def separable_convolution(in_channels: int, channels: int, **layers: nn.Module) -> nn.Sequential:
    """Build a 3x3 convolution of each channel alone, a 1x1 convolution, and the layers after them."""
    block = nn.Sequential()
    block.add_module(
        "depthwise_conv", nn.Conv2d(in_channels, in_channels, 3, padding=1, groups=in_channels, bias=False)
    )
    block.add_module("pointwise_conv", nn.Conv2d(in_channels, channels, 1))
    for name, layer in layers.items():
        block.add_module(name, layer)
    return block


class _Pool(nn.Module):
    """The maximum of 3x3 windows at every second location; outside of the map there are zeros."""

    def forward(self, x: Tensor) -> Tensor:
        padding: list[int] = []
        for side in (x.shape[3], x.shape[2]):  # the last is padded first
            missing = missing_pixels(side, 2, 3)
            padding += [missing // 2, missing - missing // 2]
        return F.max_pool2d(F.pad(x, padding), 3, 2)


@PARTS.register("neck", "BiFPN")
class BiFPN(nn.Module):
    """A BiFPN that is given the levels 3 to 5 and returns 3 to 7."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_stages: int = at_least(1)
        in_channels: Sequence[int]
        out_channels: int
        start_level: int = 0
        epsilon: float = 1e-4
        apply_bn_for_resampling: bool = True
        conv_bn_act_pattern: bool = False
        norm_cfg: Config = default({"type": "BN", "eps": 1e-3})

        def check(self, name: str) -> None:
            """Raise a ValueError if there are fewer than three maps."""
            if len(self.in_channels) < 3:
                raise ValueError(
                    f"detect.build: in_channels of {name} must have at least 3 elements, got {len(self.in_channels)}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.start_level = entries.start_level
        self.bifpn = nn.Sequential(*(_Stage(entries, first=index == 0) for index in range(entries.num_stages)))

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        maps = inputs[self.start_level :]
        if len(maps) != 3:
            raise ValueError(f"detect: neck 'BiFPN' needs three maps from start_level on, got {len(maps)}")
        return tuple(self.bifpn(maps))


class _Stage(nn.Module):
    """Once from the coarsest level to the finest and back; the first stage computes its maps from the backbone's."""

    def __init__(self, entries: BiFPN.Entries, first: bool) -> None:
        super().__init__()
        self.first, self.epsilon = first, entries.epsilon
        channels, activate_late = entries.out_channels, entries.conv_bn_act_pattern

        def after() -> dict[str, nn.Module]:
            """Return the layers after a convolution."""
            layers: dict[str, nn.Module] = {}
            if entries.apply_bn_for_resampling:
                layers["bn"] = normalization(entries.norm_cfg, channels)[1]
            if activate_late:
                layers["swish"] = nn.SiLU()
            return layers

        def projection(in_channels: int) -> nn.Sequential:
            block = nn.Sequential()
            block.add_module("down_conv", nn.Conv2d(in_channels, channels, 1))
            for name, layer in after().items():
                block.add_module(name, layer)
            return block

        if first:
            p3, p4, p5 = entries.in_channels[-3:]
            self.p3_down_channel, self.p4_down_channel, self.p5_down_channel = map(projection, (p3, p4, p5))
            self.p4_level_connection, self.p5_level_connection = map(projection, (p4, p5))
            self.p5_to_p6 = nn.Sequential(projection(p5), _Pool())
        self.activate = nn.Identity() if activate_late else nn.SiLU()
        self.pool = _Pool()
        for level in range(3, 7):
            self.register_parameter(f"p{level}_w1", nn.Parameter(torch.ones(2)))
            self.add_module(f"conv{level}_up", separable_convolution(channels, channels, **after()))
        for level in range(4, 8):
            self.register_parameter(f"p{level}_w2", nn.Parameter(torch.ones(3 if level < 7 else 2)))
            self.add_module(f"conv{level}_down", separable_convolution(channels, channels, **after()))

    def forward(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if self.first:
            p3, p4, p5 = inputs
            p6 = self.p5_to_p6(p5)
            p7 = self.pool(p6)
            inputs = [self.p3_down_channel(p3), self.p4_down_channel(p4), self.p5_down_channel(p5), p6, p7]
            again = [self.p4_level_connection(p4), self.p5_level_connection(p5), p6, p7]
        else:
            again = list(inputs[1:])
        x, refined = inputs[-1], []  # coarsest first
        for level in range(6, 2, -1):
            finer = inputs[level - 3]
            # Twice the size, given as the finer level's: so an export need not prove that they are equal.
            x = self.fuse(f"p{level}_w1", f"conv{level}_up", finer, F.interpolate(x, size=finer.shape[2:]))
            refined.append(x)
        outputs = [refined.pop()]
        for level, map in enumerate(again, 4):
            maps = [map, refined.pop()] if refined else [map]  # the coarsest level has not been refined
            outputs.append(self.fuse(f"p{level}_w2", f"conv{level}_down", *maps, self.pool(outputs[-1])))
        return outputs

    def fuse(self, weights: str, convolution: str, *maps: Tensor) -> Tensor:
        """Return the convolution of a weighted mean of maps of one size; the names are those of its parts."""
        shares = self.get_parameter(weights).relu()
        shares = shares / (shares.sum() + self.epsilon)
        total = shares[0] * maps[0]
        for share, map in zip(shares[1:], maps[1:], strict=True):
            total = total + share * map
        return self.get_submodule(convolution)(self.activate(total))
