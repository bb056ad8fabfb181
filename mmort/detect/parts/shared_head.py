"""The last stage of a ResNet, run on each region: what "C4" detectors, which have no pyramid, put before their heads.

Source: MMDetection's ``ResLayer``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, training_only
from mmort.detect.parts.backbones.resnet import ResNet


@PARTS.register("shared_head", "ResLayer")
class ResLayer(nn.Module):
    """One stage of a ResNet."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        depth: int
        stage: int = 3
        stride: int = 2
        dilation: int = 1
        style: str = "pytorch"
        norm_cfg: Config = default({"type": "BN"})

        ignored: ClassVar = training_only("norm_eval", "with_cp")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.name = f"layer{entries.stage + 1}"
        whole = ResNet(
            ResNet.Entries(
                depth=entries.depth,
                strides=[entries.stride] * 4,
                dilations=[entries.dilation] * 4,
                style=entries.style,
                norm_cfg=entries.norm_cfg,
            )
        )
        self.add_module(self.name, getattr(whole, self.name))

    def forward(self, features: Tensor) -> Tensor:
        return getattr(self, self.name)(features)
