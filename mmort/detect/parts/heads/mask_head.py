"""The head that predicts which pixels of a box belong to its object.

Source: K. He et al., "Mask R-CNN", ICCV 2017; MMDetection's ``FCNMaskHead``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Parts, Schema, at_least, default, type_of
from mmort.detect.parts.carafe import CARAFE
from mmort.detect.parts.layers import convolution, tower


class Deconvolution(nn.ConvTranspose2d):
    """A transposed convolution with a ReLU."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int
        out_channels: int
        scale_factor: int = at_least(1)

    def __init__(self, entries: Entries) -> None:
        factor = entries.scale_factor
        super().__init__(entries.in_channels, entries.out_channels, factor, stride=factor)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        return super().forward(input, output_size).relu()


_UPSAMPLING = Parts({"mask_head.upsample_cfg": {"carafe": CARAFE, "deconv": Deconvolution}})


@PARTS.register("mask_head", "FCNMaskHead")
class FCNMaskHead(nn.Module):
    """Convolutions, an upsampling layer, and one mask for each class."""

    class_layers: ClassVar = {"conv_logits": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_convs: int = 4
        in_channels: int = 256
        conv_kernel_size: int = 3
        conv_out_channels: int = 256
        num_classes: int = 80
        class_agnostic: bool = False
        upsample_cfg: Config = default({"type": "deconv", "scale_factor": 2})
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        predictor_cfg: Config = default({"type": "Conv"})

        ignored: ClassVar = {"roi_feat_size": "MMDetection does not read it either: convolutions take any size"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        width = entries.conv_out_channels
        self.convs = tower(
            entries.in_channels,
            width,
            entries.num_convs,
            entries.conv_kernel_size,
            conv_cfg=entries.conv_cfg,
            norm_cfg=entries.norm_cfg,
        )
        channels = width if entries.num_convs else entries.in_channels
        keeps = type_of("mask_head.upsample_cfg", entries.upsample_cfg, ("carafe", "deconv")) == "carafe"
        sizes = {"channels": channels} if keeps else {"in_channels": channels, "out_channels": width}
        self.upsample: nn.Module = _UPSAMPLING.build("mask_head.upsample_cfg", {**entries.upsample_cfg, **sizes})
        channels = channels if keeps else width
        masks = 1 if entries.class_agnostic else entries.num_classes
        self.conv_logits = convolution(entries.predictor_cfg, channels, masks, 1)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """Return the logits of each region's own class, [R, h, w], from features [R, C, h', w'] and classes [R]."""
        return self.masks(self.convs(features), classes)

    def masks(self, x: Tensor, classes: Tensor) -> Tensor:
        """Return the logits of each region's own class, [R, h, w], from what `convs` return."""
        return own_class(self.conv_logits(self.upsample(x)), classes)


def own_class(logits: Tensor, classes: Tensor) -> Tensor:
    """Choose each region's class in logits [R, C, ...], giving [R, ...]; the only one if C is 1."""
    if logits.shape[1] == 1:
        return logits[:, 0]
    index = classes.reshape(-1, *[1] * (logits.ndim - 1)).expand(-1, 1, *logits.shape[2:])
    return logits.gather(1, index)[:, 0]
