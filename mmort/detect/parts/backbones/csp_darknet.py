"""CSPDarknet: Darknet with cross stage partial layers.

Sources: Z. Ge et al., "YOLOX: Exceeding YOLO Series in 2021"; C. Lyu et al., "RTMDet: An Empirical Study of Designing
Real-Time Object Detectors", 2022; MMDetection's ``CSPDarknet`` and ``CSPNeXt``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, training_only
from mmort.detect.parts.csp import CSPLayer, CSPNeXtBlock, DarknetBottleneck, SPPBottleneck, convolution_block
from mmort.detect.parts.layers import ConvModule, LayerEntries


class Stage(NamedTuple):
    """A stage of a full-sized network: its channels, its blocks, and whether these have shortcuts or it pools."""

    channels: int
    blocks: int
    add_identity: bool = True
    pools: bool = False


Architectures = dict[str, tuple[Stage, ...]]


class Focus(nn.Module):
    """A convolution of the four pixels of each 2x2 square, as channels."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int, **layer: Any) -> None:
        super().__init__()
        self.conv = ConvModule(in_channels * 4, out_channels, kernel_size, padding=(kernel_size - 1) // 2, **layer)

    def forward(self, x: Tensor) -> Tensor:
        top, bottom = x[..., ::2, :], x[..., 1::2, :]
        return self.conv(torch.cat([top[..., ::2], bottom[..., ::2], top[..., 1::2], bottom[..., 1::2]], 1))


@PARTS.register("backbone", "CSPDarknet")
class CSPDarknet(nn.Module):
    """CSPDarknet; `deepen_factor` and `widen_factor` scale the blocks of each stage and the channels."""

    architectures: ClassVar[Architectures] = {
        "P5": (Stage(128, 3), Stage(256, 9), Stage(512, 9), Stage(1024, 3, False, True)),
        "P6": (Stage(128, 3), Stage(256, 9), Stage(512, 9), Stage(768, 3), Stage(1024, 3, False, True)),
    }
    block: ClassVar[type[nn.Module]] = DarknetBottleneck

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        arch: str = "P5"
        deepen_factor: float = 1.0
        widen_factor: float = 1.0
        out_indices: Sequence[int] = (2, 3, 4)  # stages, counted from 1; 0 is the stem
        use_depthwise: bool = False
        spp_kernal_sizes: Sequence[int] = (5, 9, 13)
        norm_cfg: Config | None = default({"type": "BN", "momentum": 0.03, "eps": 0.001})
        act_cfg: Config | None = default({"type": "Swish"})

        ignored: ClassVar = training_only("frozen_stages", "norm_eval")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        if entries.arch not in self.architectures:
            known = ", ".join(self.architectures)
            raise ValueError(f"detect.build: backbone.arch must be one of {known}, got {entries.arch!r}")
        stages = self.architectures[entries.arch]
        self.out_indices, self.count = tuple(entries.out_indices), len(stages)
        layer = entries.layer
        downsample = convolution_block(entries.use_depthwise)
        channels = int(stages[0].channels // 2 * entries.widen_factor)
        self.stem = self.build_stem(channels, layer)
        for index, stage in enumerate(stages, start=1):
            inputs, channels = channels, int(stage.channels * entries.widen_factor)
            modules: list[nn.Module] = [downsample(inputs, channels, 3, stride=2, padding=1, **layer)]
            if stage.pools:
                modules.append(SPPBottleneck(channels, channels, entries.spp_kernal_sizes, **layer))
            modules.append(
                CSPLayer(
                    channels,
                    channels,
                    max(round(stage.blocks * entries.deepen_factor), 1),
                    block=self.block,
                    add_identity=stage.add_identity,
                    use_depthwise=entries.use_depthwise,
                    **self.csp_options(entries),
                    **layer,
                )
            )
            self.add_module(f"stage{index}", nn.Sequential(*modules))

    def build_stem(self, channels: int, layer: dict[str, Any]) -> nn.Module:
        """Return the layers that halve the image's size."""
        return Focus(3, channels, 3, **layer)

    def csp_options(self, entries: Any) -> dict[str, Any]:
        """Return further arguments of `CSPLayer`."""
        return {}

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.stem(x)  # [N, C, H / 2, W / 2]
        outputs = [x] if 0 in self.out_indices else []
        for index in range(1, self.count + 1):
            x = getattr(self, f"stage{index}")(x)  # [N, C, H / 2**(index + 1), W / 2**(index + 1)]
            if index in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


@PARTS.register("backbone", "CSPNeXt")
class CSPNeXt(CSPDarknet):
    """CSPDarknet with larger kernels and channel attention."""

    architectures: ClassVar[Architectures] = {
        "P5": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(1024, 3, False, True)),
        "P6": (Stage(128, 3), Stage(256, 6), Stage(512, 6), Stage(768, 3), Stage(1024, 3, False, True)),
    }
    block = CSPNeXtBlock

    @dataclass(frozen=True, kw_only=True)
    class Entries(CSPDarknet.Entries):
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
