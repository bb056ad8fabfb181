"""CenterNet's neck: the last level alone, enlarged by transposed convolutions.

Source: X. Zhou et al., "Objects as Points", 2019; MMDetection's ``CTResNetNeck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema
from mmort.detect.parts.layers import ConvModule


@PARTS.register("neck", "CTResNetNeck")
class CTResNetNeck(nn.Module):
    """CenterNet's neck."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``neck``; MMDetection 2 has ``in_channel``."""

        num_deconv_filters: Sequence[int]
        num_deconv_kernels: Sequence[int]
        in_channels: int | None = None
        in_channel: int | None = None
        use_dcn: bool = True

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels = entries.in_channels or entries.in_channel
        if channels is None:
            raise ValueError("detect.build: neck 'CTResNetNeck' must have in_channels")
        conv_cfg: Config | None = {"type": "DCNv2"} if entries.use_dcn else None
        norm_cfg: Config = {"type": "BN"}
        layers = []
        for filters, kernel in zip(entries.num_deconv_filters, entries.num_deconv_kernels, strict=True):
            layers.append(ConvModule(channels, filters, 3, padding=1, conv_cfg=conv_cfg, norm_cfg=norm_cfg))
            deconv: Config = {"type": "deconv"}
            layers.append(ConvModule(filters, filters, kernel, 2, 1, conv_cfg=deconv, norm_cfg=norm_cfg))
            channels = filters
        self.deconv_layers = nn.Sequential(*layers)

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return (self.deconv_layers(inputs[-1]),)
