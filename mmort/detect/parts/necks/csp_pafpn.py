"""Feature pyramids of cross stage partial layers, from the coarsest level to the finest and back.

Source: Z. Ge et al., "YOLOX", 2021; C. Lyu et al., "RTMDet", 2022; MMDetection's ``YOLOXPAFPN`` and ``CSPNeXtPAFPN``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default
from mmort.detect.parts.csp import CSPLayer, CSPNeXtBlock, DarknetBottleneck, convolution_block
from mmort.detect.parts.layers import ConvModule, LayerEntries


@PARTS.register("neck", "YOLOXPAFPN")
class YOLOXPAFPN(nn.Module):
    """YOLOX's neck."""

    block: ClassVar[type[nn.Module]] = DarknetBottleneck
    out_kernel: ClassVar[int] = 1

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        in_channels: Sequence[int]
        out_channels: int
        num_csp_blocks: int = 3
        use_depthwise: bool = False
        upsample_cfg: Config = default({"scale_factor": 2, "mode": "nearest"})
        norm_cfg: Config | None = default({"type": "BN", "momentum": 0.03, "eps": 0.001})
        act_cfg: Config | None = default({"type": "Swish"})

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if entries.upsample_cfg != {"scale_factor": 2, "mode": "nearest"}:
            raise ValueError(
                "detect.build: neck.upsample_cfg must be {'scale_factor': 2, 'mode': 'nearest'}, "
                f"got {entries.upsample_cfg}"
            )
        channels = list(entries.in_channels)
        layer = entries.layer
        downsample = convolution_block(entries.use_depthwise)
        options = {"block": self.block, "use_depthwise": entries.use_depthwise, **self.csp_options(entries), **layer}
        pairs = list(itertools.pairwise(channels))  # of a level and the next, finest first
        self.reduce_layers = nn.ModuleList(ConvModule(coarse, fine, 1, **layer) for fine, coarse in reversed(pairs))
        self.top_down_blocks = nn.ModuleList(
            CSPLayer(fine * 2, fine, entries.num_csp_blocks, **options) for fine, _ in reversed(pairs)
        )
        self.downsamples = nn.ModuleList(downsample(fine, fine, 3, stride=2, padding=1, **layer) for fine, _ in pairs)
        self.bottom_up_blocks = nn.ModuleList(
            CSPLayer(fine * 2, coarse, entries.num_csp_blocks, **options) for fine, coarse in pairs
        )
        padding = self.out_kernel // 2
        self.out_convs = nn.ModuleList(
            ConvModule(inputs, entries.out_channels, self.out_kernel, padding=padding, **layer) for inputs in channels
        )

    def csp_options(self, entries: Any) -> dict[str, Any]:
        """Return further arguments of `CSPLayer`."""
        return {}

    def forward(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        x, reduced = inputs[-1], []  # coarsest first
        for finer, reduce, block in zip(reversed(inputs[:-1]), self.reduce_layers, self.top_down_blocks, strict=True):
            reduced.append(reduce(x))
            # Twice the size, given as the finer level's: so an export need not prove that they are equal.
            x = block(torch.cat([functional.interpolate(reduced[-1], size=finer.shape[2:]), finer], 1))
        outputs = [x]
        for coarser, down, block in zip(reversed(reduced), self.downsamples, self.bottom_up_blocks, strict=True):
            outputs.append(block(torch.cat([down(outputs[-1]), coarser], 1)))
        return tuple(conv(output) for conv, output in zip(self.out_convs, outputs, strict=True))


@PARTS.register("neck", "CSPNeXtPAFPN")
class CSPNeXtPAFPN(YOLOXPAFPN):
    """RTMDet's neck."""

    block = CSPNeXtBlock
    out_kernel = 3

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOXPAFPN.Entries):
        expand_ratio: float = 0.5

    def csp_options(self, entries: Entries) -> dict[str, Any]:
        """Return further arguments of `CSPLayer`."""
        return {"expand_ratio": entries.expand_ratio}
