"""Mask2Former: queries that attend to the pixels of their masks, layer by layer; its instances.

Source: B. Cheng et al., "Masked-attention Mask Transformer for Universal Image Segmentation", CVPR 2022.  Mask AP of
MMDetection's R-50 model on COCO val2017: 42.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.entries import PARTS, at_least, nested, part
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import DeformableEncoder, DeformableEncoderEntries, Pyramid
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.mask_queries import (
    EncoderPixelDecoderEntries,
    MaskQueryDetector,
    MaskQueryEntries,
    MaskQueryModelEntries,
    mask_embedding,
    mask_logits,
    used_maps,
)
from mmort.detect.parts.positions import SinePositionalEncoding
from mmort.detect.parts.transformer import DecoderEntries, DecoderLayerEntries, TransformerLayer


def everything(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return true for each row and for each column of a map, [N, h] and [N, w]."""
    return torch.ones_like(x[:, 0, :, 0], dtype=torch.bool), torch.ones_like(x[:, 0, 0], dtype=torch.bool)


class PixelDecoder(nn.Module):
    """A deformable encoder over the coarser maps, and the features that masks are made of."""

    renamed_keys = (  # before MMDetection 3
        (r"(encoder\.layers\.\d+)\.attentions\.0\.", r"\1.self_attn."),
        (r"(encoder\.layers\.\d+)\.ffns\.0\.", r"\1.ffn."),
    )

    @dataclass(frozen=True, kw_only=True)
    class Entries(EncoderPixelDecoderEntries):
        encoder: DeformableEncoderEntries = nested(DeformableEncoderEntries, "pixel_decoder.encoder")
        num_outs: int = at_least(1, default=3)

        ignored: ClassVar = {"strides": "only ratios of the maps' sizes matter"}

        @property
        def levels(self) -> int:
            """The number of maps that the encoder reads."""
            return self.encoder.layer_cfg.self_attn_cfg.num_levels

        def check(self, name: str) -> None:
            """Raise a ValueError if the encoder has other channels, or more levels than there are maps."""
            super().check(name)
            if self.levels > len(self.in_channels):
                raise ValueError(
                    "detect.build: num_levels of pixel_decoder.encoder.layer_cfg.self_attn_cfg must be at most the "
                    f"number of in_channels, {len(self.in_channels)}, got {self.levels}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, norm, act, levels = entries.feat_channels, entries.norm_cfg, entries.act_cfg, entries.levels
        self.encoder = DeformableEncoder(entries.encoder)
        self.positional_encoding = SinePositionalEncoding(entries.positional_encoding)
        coarse, fine = entries.in_channels[::-1][:levels], entries.in_channels[::-1][levels:]
        self.input_convs = nn.ModuleList(
            ConvModule(count, channels, 1, bias=True, norm_cfg=norm, act_cfg=None) for count in coarse
        )
        self.level_encoding = nn.Embedding(levels, channels)
        self.lateral_convs = nn.ModuleList(
            ConvModule(count, channels, 1, norm_cfg=norm, act_cfg=None) for count in fine
        )
        self.output_convs = nn.ModuleList(
            ConvModule(channels, channels, 3, padding=1, norm_cfg=norm, act_cfg=act) for _ in fine
        )
        self.mask_feature = nn.Conv2d(channels, entries.out_channels, 1)
        self.inputs, self.levels = len(entries.in_channels), levels
        self.outputs = min(entries.num_outs, len(entries.in_channels))

    def forward(self, features: Sequence[Tensor], input: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the masks' features and the maps for the decoder, coarse first."""
        features, levels = used_maps(features, self.inputs), self.levels
        maps = [conv(x) for conv, x in zip(self.input_convs, features[::-1][:levels], strict=True)]
        # Padding is not masked, so the whole input is the image.
        pyramid = Pyramid.of(
            maps, input, image_limits(input, None), self.positional_encoding, self.level_encoding.weight
        )
        memory = self.encoder(pyramid).transpose(1, 2)
        sizes = [x.shape[2] * x.shape[3] for x in maps]
        outputs = [
            torch.unflatten(part, 2, x.shape[2:]) for part, x in zip(torch.split(memory, sizes, 2), maps, strict=True)
        ]
        for lateral, conv, x in zip(self.lateral_convs, self.output_convs, features[::-1][levels:], strict=True):
            x = lateral(x)
            outputs.append(conv(x + functional.interpolate(outputs[-1], x.shape[2:], mode="bilinear")))
        return self.mask_feature(outputs[-1]), outputs[: self.outputs]


class DecoderLayer(TransformerLayer):
    """Every query attends to its mask's pixels, then to the other queries."""

    renamed_keys = (  # before MMDetection 3
        (r"attentions\.0\.", "cross_attn."),
        (r"attentions\.1\.", "self_attn."),
        (r"ffns\.0\.", "ffn."),
    )

    def forward(self, x: Tensor, queries: Tensor, memory: Tensor, positions: Tensor, unused: Tensor) -> Tensor:
        x = self.norms[0](self.cross_attn(x, x + queries, memory + positions, memory, unused))
        x = self.norms[1](self.self_attn(x, x + queries, x + queries, x))
        return self.norms[2](self.ffn(x))


@dataclass(frozen=True, kw_only=True)
class MaskDecoderLayerEntries(DecoderLayerEntries):
    """The entries of ``transformer_decoder.layer_cfg``."""

    attentions = ("cross_attn", "self_attn")


@dataclass(frozen=True, kw_only=True)
class MaskDecoderEntries(DecoderEntries):
    """The entries of ``transformer_decoder``."""

    layer_cfg: MaskDecoderLayerEntries = nested(MaskDecoderLayerEntries)


class Decoder(nn.Module):
    """Decoder layers and a normalization."""

    def __init__(self, entries: MaskDecoderEntries) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(entries.layer_cfg) for _ in range(entries.num_layers))
        self.post_norm = entries.post_norm()


class Mask2FormerHead(nn.Module):
    """For each query the logits of the classes and a mask."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(MaskQueryEntries):
        num_transformer_feat_level: int = at_least(1, default=3)
        pixel_decoder: PixelDecoder = part(
            "panoptic_head.pixel_decoder", types={"MSDeformAttnPixelDecoder": PixelDecoder}
        )
        transformer_decoder: MaskDecoderEntries = nested(MaskDecoderEntries, "panoptic_head.transformer_decoder")

        def check(self, name: str) -> None:
            """Raise a ValueError if channels or levels do not fit each other."""
            super().check(name)
            levels, decoder = self.num_transformer_feat_level, self.pixel_decoder
            if decoder.levels != levels:
                raise ValueError(
                    "detect.build: num_levels of pixel_decoder.encoder.layer_cfg.self_attn_cfg must be "
                    f"num_transformer_feat_level of panoptic_head, {levels}, got {decoder.levels}"
                )
            if decoder.outputs < levels:
                raise ValueError(
                    "detect.build: num_outs of pixel_decoder must be at least num_transformer_feat_level of "
                    f"panoptic_head, {levels}, got {decoder.outputs}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, levels = entries.feat_channels, entries.num_transformer_feat_level
        self.pixel_decoder = entries.pixel_decoder
        self.transformer_decoder = Decoder(entries.transformer_decoder)
        self.decoder_input_projs = nn.ModuleList(
            nn.Conv2d(channels, channels, 1) if entries.enforce_decoder_input_project else nn.Identity()
            for _ in range(levels)
        )
        self.decoder_positional_encoding = SinePositionalEncoding(entries.positional_encoding)
        self.query_embed = nn.Embedding(entries.num_queries, channels)
        self.query_feat = nn.Embedding(entries.num_queries, channels)
        self.level_embed = nn.Embedding(levels, channels)
        self.things, self.classes = entries.num_things_classes, entries.num_things_classes + entries.num_stuff_classes
        self.cls_embed = nn.Linear(channels, self.classes + 1)
        self.mask_embed = mask_embedding(channels, entries.out_channels)

    def forward(self, features: Sequence[Tensor], input: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C + 1], the background last, and mask logits [N, Q, h, w]."""
        mask_features, maps = self.pixel_decoder(features, input)
        maps = maps[: len(self.decoder_input_projs)]
        memories, positions = [], []
        for level, (project, x) in enumerate(zip(self.decoder_input_projs, maps, strict=True)):
            memories.append(project(x).flatten(2).transpose(1, 2) + self.level_embed.weight[level])
            positions.append(self.decoder_positional_encoding(*everything(x)))
        batch = input.shape[0]
        queries = self.query_embed.weight.expand(batch, -1, -1)
        x = self.query_feat.weight.expand(batch, -1, -1)
        for index, layer in enumerate(self.transformer_decoder.layers):
            level = index % len(maps)
            masks = mask_logits(self.mask_embed(self.transformer_decoder.post_norm(x)), mask_features)
            resized = functional.interpolate(masks, maps[level].shape[2:], mode="bilinear").flatten(2)
            outside = resized.sigmoid() < 0.5  # [N, Q, P]
            # A query without any pixels attends to all.
            x = layer(x, queries, memories[level], positions[level], outside & ~outside.all(2, keepdim=True))
        x = self.transformer_decoder.post_norm(x)
        return self.cls_embed(x), mask_logits(self.mask_embed(x), mask_features)


@PARTS.register("detector", "Mask2FormerHead")
class Mask2Former(MaskQueryDetector):
    """Mask2Former; padding is not masked in its transformer, as in MMDetection."""

    family = "Mask2Former"

    @dataclass(frozen=True, kw_only=True)
    class Model(MaskQueryModelEntries):
        panoptic_head: Mask2FormerHead = part("panoptic_head", types={"Mask2FormerHead": Mask2FormerHead})
