"""MaskFormer: queries that attend to the image as DETR's do, each with a class and a mask; its instances.

Source: B. Cheng et al., "Per-Pixel Classification is Not All You Need for Semantic Segmentation", NeurIPS 2021.
Panoptic quality of MMDetection's R-50 model on COCO val2017: 46.9.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.entries import Schema, default, read_entries, require
from mmort.detect.families.detr import Decoder, Encoder
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.mask_queries import (
    MaskQueryDetector,
    MaskQueryEntries,
    mask_embedding,
    mask_logits,
    sine_encoding,
)
from mmort.detect.parts.positions import image_cells, padding_cells
from mmort.detect.versions import Config


@dataclass(frozen=True)
class Cells:
    """The cells of the coarsest map: their positions [N, h*w, D], and which are padding [N, h*w]."""

    positions: Tensor
    padding: Tensor

    @classmethod
    def of(cls, map: Tensor, encoding: nn.Module, input: Tensor, limits: Tensor) -> Cells:
        """Return the cells of a map, for images that end at `limits`, [N, 1, 4]."""
        rows, columns = image_cells(map, input, limits)
        return cls(encoding(rows, columns), padding_cells(rows, columns))


class PixelDecoder(nn.Module):
    """A pyramid from coarse to fine, whose finest map has the features that masks are made of."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``panoptic_head.pixel_decoder``."""

        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        act_cfg: Config | None = default({"type": "ReLU"})

    def __init__(self, entries: Entries, in_channels: Sequence[int], channels: int, out_channels: int) -> None:
        super().__init__()
        norm, act = entries.norm_cfg, entries.act_cfg
        self.lateral_convs = nn.ModuleList(
            ConvModule(count, channels, 1, norm_cfg=norm, act_cfg=None) for count in in_channels[:-1]
        )
        self.output_convs = nn.ModuleList(
            ConvModule(channels, channels, 3, padding=1, norm_cfg=norm, act_cfg=act) for _ in in_channels[:-1]
        )
        self.mask_feature = nn.Conv2d(channels, out_channels, 3, padding=1)
        self.build_last(entries, in_channels[-1], channels)

    def build_last(self, entries: Entries, in_channels: int, channels: int) -> None:
        """Build the layers of the coarsest map."""
        self.last_feat_conv = ConvModule(
            in_channels, channels, 3, padding=1, norm_cfg=entries.norm_cfg, act_cfg=entries.act_cfg
        )

    def forward(self, features: Sequence[Tensor], input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the masks' features, and the map that the queries attend to."""
        x, memory = self.coarsest(features[-1], input, limits)
        for lateral, conv, map in reversed(
            list(zip(self.lateral_convs, self.output_convs, features[:-1], strict=True))
        ):
            x = conv(lateral(map) + functional.interpolate(x, map.shape[2:]))
        return self.mask_feature(x), memory

    def coarsest(self, map: Tensor, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pyramid's coarsest map, and the map that the queries attend to."""
        return self.last_feat_conv(map), map


class TransformerEncoderPixelDecoder(PixelDecoder):
    """A pixel decoder that begins with a transformer's encoder over the coarsest map."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(PixelDecoder.Entries):
        """The entries of ``panoptic_head.pixel_decoder``."""

        encoder: Config
        positional_encoding: Config = default({"num_feats": 128, "normalize": True})

    def build_last(self, entries: PixelDecoder.Entries, in_channels: int, channels: int) -> None:
        """Build the encoder."""
        assert isinstance(entries, self.Entries)
        self.encoder = Encoder(entries.encoder)
        self.positional_encoding = sine_encoding(entries.positional_encoding)
        self.encoder_in_proj = nn.Conv2d(in_channels, channels, 1)
        self.encoder_out_proj = ConvModule(
            channels, channels, 3, padding=1, norm_cfg=entries.norm_cfg, act_cfg=entries.act_cfg
        )

    def coarsest(self, map: Tensor, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the pyramid's coarsest map, and the map that the queries attend to."""
        x = self.encoder_in_proj(map)
        cells = Cells.of(map, self.positional_encoding, input, limits)
        memory = self.encoder(x.flatten(2).transpose(1, 2), cells.positions, cells.padding)
        memory = torch.unflatten(memory.transpose(1, 2), 2, map.shape[2:])
        return self.encoder_out_proj(memory), memory


_PIXEL_DECODERS = {
    "PixelDecoder": PixelDecoder,
    "TransformerEncoderPixelDecoder": TransformerEncoderPixelDecoder,
}


class MaskFormerHead(nn.Module):
    """For each query the logits of the classes and a mask."""

    renamed_keys = (  # MMDetection 3
        (r"(coder\.layers\.\d+)\.self_attn\.", r"\1.attentions.0."),
        (r"(coder\.layers\.\d+)\.cross_attn\.", r"\1.attentions.1."),
        (r"(coder\.layers\.\d+)\.ffn\.", r"\1.ffns.0."),
    )

    Entries = MaskQueryEntries

    def __init__(self, entries: MaskQueryEntries) -> None:
        super().__init__()
        channels, last = entries.feat_channels, entries.in_channels[-1]
        config = entries.pixel_decoder
        decoder = _PIXEL_DECODERS[require("panoptic_head.pixel_decoder", config.get("type"), *_PIXEL_DECODERS)]
        decoder_entries = read_entries("panoptic_head.pixel_decoder", decoder.Entries, config)
        self.pixel_decoder = decoder(decoder_entries, entries.in_channels, channels, entries.out_channels)
        self.transformer_decoder = Decoder(entries.transformer_decoder)
        dims: int = self.transformer_decoder.post_norm.normalized_shape[0]
        projected = decoder is PixelDecoder and (dims != last or entries.enforce_decoder_input_project)
        self.decoder_input_proj = nn.Conv2d(last, dims, 1) if projected else nn.Identity()
        self.decoder_pe = sine_encoding(entries.positional_encoding)
        self.query_embed = nn.Embedding(entries.num_queries, entries.out_channels)
        self.things, self.classes = entries.num_things_classes, entries.num_things_classes + entries.num_stuff_classes
        self.cls_embed = nn.Linear(channels, self.classes + 1)
        self.mask_embed = mask_embedding(channels, entries.out_channels)

    def forward(self, features: Sequence[Tensor], input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C + 1], the background last, and mask logits [N, Q, h, w]."""
        mask_features, memory = self.pixel_decoder(features, input, limits)
        cells = Cells.of(memory, self.decoder_pe, input, limits)
        memory = self.decoder_input_proj(memory).flatten(2).transpose(1, 2)  # [N, h*w, D]
        queries = self.query_embed.weight.expand(input.shape[0], -1, -1)
        x = self.transformer_decoder(queries, memory, cells.positions, cells.padding)
        return self.cls_embed(x), mask_logits(self.mask_embed(x), mask_features)


class MaskFormer(MaskQueryDetector):
    """MaskFormer."""

    family = "MaskFormer"
    head = MaskFormerHead
