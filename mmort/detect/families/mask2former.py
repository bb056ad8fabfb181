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

from mmort.detect.entries import Schema, default, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.deformable_transformer import DeformableEncoder, Pyramid, sampling_arguments
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.mask_queries import (
    MaskQueryDetector,
    MaskQueryEntries,
    mask_embedding,
    mask_logits,
    sine_encoding,
)
from mmort.detect.parts.transformer import FFN, Attention, layer_arguments
from mmort.detect.versions import Config


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
    class Entries(Schema):
        """The entries of ``panoptic_head.pixel_decoder``."""

        encoder: Config
        num_outs: int = 3
        norm_cfg: Config | None = default({"type": "GN", "num_groups": 32})
        act_cfg: Config | None = default({"type": "ReLU"})
        positional_encoding: Config = default({"num_feats": 128, "normalize": True})

        ignored: ClassVar = {"strides": "only ratios of the maps' sizes matter"}

    def __init__(self, entries: Entries, in_channels: Sequence[int], channels: int, out_channels: int) -> None:
        super().__init__()
        norm, act = entries.norm_cfg, entries.act_cfg
        self.encoder = DeformableEncoder(entries.encoder)
        levels = sampling_arguments("encoder", entries.encoder)["num_levels"]
        self.positional_encoding = sine_encoding(entries.positional_encoding)
        coarse, fine = in_channels[::-1][:levels], in_channels[::-1][levels:]
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
        self.mask_feature = nn.Conv2d(channels, out_channels, 1)
        self.outputs = entries.num_outs

    def forward(self, features: Sequence[Tensor], input: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return the masks' features and the maps for the decoder, coarse first."""
        levels = len(self.input_convs)
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


class DecoderLayer(nn.Module):
    """Every query attends to its mask's pixels, then to the other queries."""

    renamed_keys = (  # before MMDetection 3
        (r"attentions\.0\.", "cross_attn."),
        (r"attentions\.1\.", "self_attn."),
        (r"ffns\.0\.", "ffn."),
    )

    def __init__(self, embed_dims: int, num_heads: int, feedforward_channels: int) -> None:
        super().__init__()
        self.cross_attn = nn.ModuleDict({"attn": Attention(embed_dims, num_heads)})
        self.self_attn = nn.ModuleDict({"attn": Attention(embed_dims, num_heads)})
        self.ffn = FFN(embed_dims, feedforward_channels)
        self.norms = nn.ModuleList(nn.LayerNorm(embed_dims) for _ in range(3))

    def forward(self, x: Tensor, queries: Tensor, memory: Tensor, positions: Tensor, unused: Tensor) -> Tensor:
        cross, own = self.cross_attn["attn"], self.self_attn["attn"]
        x = self.norms[0](x + cross(x + queries, memory + positions, memory, unused))
        x = self.norms[1](x + own(x + queries, x + queries, x))
        last: Tensor = self.norms[2](x + self.ffn(x))
        return last


class Decoder(nn.Module):
    """Decoder layers and a normalization."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        arguments = layer_arguments("decoder", _without_order(config))
        self.layers = nn.ModuleList(DecoderLayer(**arguments) for _ in range(config["num_layers"]))
        self.post_norm = nn.LayerNorm(arguments["embed_dims"])


_ORDER = ("cross_attn", "norm", "self_attn", "norm", "ffn", "norm")


def _without_order(config: Config) -> Config:
    """Return a decoder's config without the order of its steps, which must be `_ORDER`."""
    layer = config.get("transformerlayers")
    if layer is None:
        return config
    if tuple(layer.get("operation_order", _ORDER)) != _ORDER:
        raise ValueError(f"detect.build: transformer_decoder.operation_order must be {_ORDER!r}")
    return {**config, "transformerlayers": {key: layer[key] for key in layer if key != "operation_order"}}


class Mask2FormerHead(nn.Module):
    """For each query the logits of the classes and a mask."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(MaskQueryEntries):
        """The entries of ``panoptic_head``."""

        num_transformer_feat_level: int = 3

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, levels = entries.feat_channels, entries.num_transformer_feat_level
        decoder_entries = read_entries("pixel_decoder", PixelDecoder.Entries, entries.pixel_decoder)
        self.pixel_decoder = PixelDecoder(decoder_entries, entries.in_channels, channels, entries.out_channels)
        self.transformer_decoder = Decoder(entries.transformer_decoder)
        dims: int = self.transformer_decoder.post_norm.normalized_shape[0]
        projected = dims != channels or entries.enforce_decoder_input_project
        self.decoder_input_projs = nn.ModuleList(
            nn.Conv2d(channels, dims, 1) if projected else nn.Identity() for _ in range(levels)
        )
        self.decoder_positional_encoding = sine_encoding(entries.positional_encoding)
        self.query_embed = nn.Embedding(entries.num_queries, channels)
        self.query_feat = nn.Embedding(entries.num_queries, channels)
        self.level_embed = nn.Embedding(levels, channels)
        self.things, self.classes = entries.num_things_classes, entries.num_things_classes + entries.num_stuff_classes
        self.cls_embed = nn.Linear(channels, self.classes + 1)
        self.mask_embed = mask_embedding(channels, entries.out_channels)

    def forward(self, features: Sequence[Tensor], input: Tensor, _: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits [N, Q, C + 1], the background last, and mask logits [N, Q, h, w]."""
        mask_features, maps = self.pixel_decoder(features, input)
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


class Mask2Former(MaskQueryDetector):
    """Mask2Former; padding is not masked in its transformer, as in MMDetection."""

    family = "Mask2Former"
    head = Mask2FormerHead
