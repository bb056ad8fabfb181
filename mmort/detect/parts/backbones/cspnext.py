"""CSPNeXt: CSPDarknet with larger kernels and channel attention.

Source: C. Lyu et al., "RTMDet: An Empirical Study of Designing Real-Time Object Detectors", 2022; MMDetection's
``CSPNeXt``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default
from mmort.detect.parts.backbones.csp_darknet import Architectures, CSPDarknet, Stage
from mmort.detect.parts.csp import CSPNeXtBlock
from mmort.detect.parts.layers import ConvModule


@PARTS.register("backbone", "CSPNeXt")
class CSPNeXt(CSPDarknet):
    """CSPNeXt; see `CSPDarknet`."""

    architectures: ClassVar[Architectures] = {
        "P5": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(1024, 3, False, True)),
        "P6": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(768, 3), Stage(1024, 3, False, True)),
    }
    block = CSPNeXtBlock

    @dataclass(frozen=True, kw_only=True)
    class Entries(CSPDarknet.Entries):
        """The entries of ``backbone``."""

        expand_ratio: float = 0.5
        channel_attention: bool = True
        act_cfg: Config | None = default({"type": "SiLU"})

    def build_stem(self, channels: int, layer: dict[str, Any]) -> nn.Module:
        """Return the layers that halve the image's size."""
        half = channels // 2
        layer = {**layer, "conv_cfg": None}  # as in MMDetection
        return nn.Sequential(
            ConvModule(3, half, 3, stride=2, padding=1, **layer),
            ConvModule(half, half, 3, padding=1, **layer),
            ConvModule(half, channels, 3, padding=1, **layer),
        )

    def csp_options(self, entries: Entries) -> dict[str, Any]:
        """Return further arguments of `CSPLayer`."""
        return {"expand_ratio": entries.expand_ratio, "channel_attention": entries.channel_attention}
