"""Mask2Former of MMSegmentation, whose head is MMDetection's, and computes with sizes that torch cannot trace."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.detect.entries import PARTS
from mmort.detect.families.masks.mask2former import PixelDecoder
from mmort.original.adapters import Segmentation
from mmort.original.building import Original, described
from mmort.original.cut import replaced
from mmort.original.known import KnownMetas, UnknownSamples


class Mask2Former(Segmentation):
    """The original, but for its deformable encoder over maps: that one is mmort's own, with the original's weights.

    ``mmdet/models/layers/msdeformattn_pixel_decoder.py:168`` makes a tensor of each map's size, and :226 splits by it.
    """

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        self.head: Any = self.model.decode_head
        entries = described(DetectorConfig(original.config).outer_model["decode_head"])
        names = "in_channels", "feat_channels", "out_channels"
        config = {name: entries[name] for name in names} | entries["pixel_decoder"]
        self.pixel_decoder = PARTS.build(
            "decode_head.pixel_decoder", config, {"MSDeformAttnPixelDecoder": PixelDecoder}
        )
        self.pixel_decoder.load_state_dict(self.head.pixel_decoder.state_dict())
        self.eval()

    def forward(self, input: Tensor) -> Tensor:
        """Return the logits of each class in each pixel, (N, K, H, W)."""

        def decoded(features: Any) -> Any:
            return self.pixel_decoder(features, input)

        def predicted(features: Any, metas: KnownMetas, _: Any) -> Tensor:
            # mmseg/models/decode_heads/mask2former_head.py:144 makes data samples; MMDetection's head reads none.
            scores, masks = (outputs[-1] for outputs in self.head(features, UnknownSamples()))
            masks = functional.interpolate(masks, metas[0]["pad_shape"], mode="bilinear", align_corners=False)
            return torch.einsum("bqc, bqhw->bchw", functional.softmax(scores, dim=-1)[..., :-1], masks.sigmoid())

        with replaced(self.head.pixel_decoder, "forward", decoded), replaced(self.head, "predict", predicted):
            return super().forward(input)


def segmentation_adapter(original: Original) -> Segmentation:
    """Return the adapter of a model of MMSegmentation."""
    kind = type(getattr(original.model, "decode_head", None)).__name__
    return Mask2Former(original) if kind == "Mask2FormerHead" else Segmentation(original)
