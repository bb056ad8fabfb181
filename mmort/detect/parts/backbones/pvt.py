"""Pyramid Vision Transformer, versions 1 and 2: attention whose keys are a smaller map than its queries.

Source: W. Wang et al., "Pyramid Vision Transformer", ICCV 2021, and "PVT v2", 2022; MMDetection's
``PyramidVisionTransformer`` and ``PyramidVisionTransformerV2``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, training_only
from mmort.detect.parts.layers import activation, normalization


class SpatialReductionAttention(nn.Module):
    """Attention to keys of a map that a convolution has made smaller.

    It has torch's names; ``attn`` is what MMCV puts around torch's layer.
    """

    def __init__(self, entries: PyramidVisionTransformer.Entries, stage: int, channels: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(channels, entries.num_heads[stage], bias=entries.qkv_bias)
        ratio = entries.sr_ratios[stage]
        self.reduces = ratio > 1
        if self.reduces:
            self.sr = nn.Conv2d(channels, channels, ratio, stride=ratio)
            self.norm = normalization(entries.norm_cfg, channels)[1]

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens [N, H, W, C]."""
        keys = self.norm(self.sr(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)) if self.reduces else x
        return torch.unflatten(self.attend(x.flatten(1, 2), keys.flatten(1, 2)), 1, x.shape[1:3])

    def attend(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Attend from queries [N, L, C] to keys [N, S, C]."""
        attention, channels = self.attn, queries.shape[2]
        weight, bias = attention.in_proj_weight, attention.in_proj_bias
        first, second = (None, None) if bias is None else (bias[:channels], bias[channels:])
        query = F.linear(queries, weight[:channels], first)
        both = F.linear(keys, weight[channels:], second)
        by_head = (attention.num_heads, -1)
        query = torch.unflatten(query, 2, by_head).transpose(1, 2)  # [N, heads, L, D]
        key, value = torch.unflatten(both, 2, (2, *by_head)).permute(2, 0, 3, 1, 4).unbind(0)  # [N, heads, S, D]
        weights = (query * query.shape[3] ** -0.5 @ key.transpose(2, 3)).softmax(3)
        return attention.out_proj((weights @ value).transpose(1, 2).flatten(2))


class MixFeedForward(nn.Module):
    """Two 1x1 convolutions, in version 2 with a 3x3 of each channel alone after the first."""

    def __init__(self, channels: int, inner: int, act_cfg: Config, depthwise: bool) -> None:
        super().__init__()
        middle = [nn.Conv2d(inner, inner, 3, padding=1, groups=inner)] if depthwise else []
        first, last = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)
        # MMDetection has a dropout before and after the last, which counts in the names.
        self.layers = nn.Sequential(first, *middle, activation(act_cfg), nn.Identity(), last)

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens [N, H, W, C]."""
        return self.layers(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)


class EncoderLayer(nn.Module):
    """Attention, then a feed-forward network, each after a normalization and beside a shortcut."""

    def __init__(self, entries: PyramidVisionTransformer.Entries, stage: int, channels: int) -> None:
        super().__init__()
        self.norm1 = normalization(entries.norm_cfg, channels)[1]
        self.attn = SpatialReductionAttention(entries, stage, channels)
        self.norm2 = normalization(entries.norm_cfg, channels)[1]
        inner = entries.mlp_ratios[stage] * channels
        self.ffn = MixFeedForward(channels, inner, entries.act_cfg, entries.use_conv_ffn)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.ffn(self.norm2(x))


class PatchEmbedding(nn.Module):
    """A convolution with stride, and a normalization."""

    def __init__(self, entries: PyramidVisionTransformer.Entries, stage: int, before: int, channels: int) -> None:
        super().__init__()
        size, stride, padding = entries.patch_sizes[stage], entries.strides[stage], entries.paddings[stage]
        self.projection = nn.Conv2d(before, channels, size, stride=stride, padding=padding)
        self.norm = normalization(entries.norm_cfg, channels)[1]

    def forward(self, maps: Tensor) -> Tensor:
        """Return tokens [N, H', W', C'] of maps [N, C, H, W]."""
        return self.norm(self.projection(maps).permute(0, 2, 3, 1))


class PositionEmbedding(nn.Module):
    """A learned map, resized to the tokens and added."""

    def __init__(self, side: int, channels: int) -> None:
        super().__init__()
        self.side = side
        self.pos_embed = nn.Parameter(torch.zeros(1, side**2, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [N, H, W, C] with their positions."""
        table = torch.unflatten(self.pos_embed, 1, (self.side, self.side)).permute(0, 3, 1, 2)
        return x + F.interpolate(table, size=x.shape[1:3], mode="bilinear", align_corners=False).permute(0, 2, 3, 1)


@PARTS.register("backbone", "PyramidVisionTransformer")
class PyramidVisionTransformer(nn.Module):
    """Pyramid Vision Transformer."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        pretrain_img_size: int = 224
        in_channels: int = 3
        embed_dims: int = 64
        num_stages: int = 4
        num_layers: Sequence[int] = (3, 4, 6, 3)
        num_heads: Sequence[int] = (1, 2, 5, 8)
        patch_sizes: Sequence[int] = (4, 2, 2, 2)
        strides: Sequence[int] = (4, 2, 2, 2)
        paddings: Sequence[int] = (0, 0, 0, 0)
        sr_ratios: Sequence[int] = (8, 4, 2, 1)
        out_indices: Sequence[int] = (0, 1, 2, 3)
        mlp_ratios: Sequence[int] = (8, 8, 4, 4)
        qkv_bias: bool = True
        use_abs_pos_embed: bool = True
        norm_after_stage: bool = False
        use_conv_ffn: bool = False
        act_cfg: Config = default({"type": "GELU"})
        norm_cfg: Config = default({"type": "LN", "eps": 1e-6})

        ignored: ClassVar = {
            "convert_weights": "of pretrained weights; MMDetection's checkpoints have its own names",
            **training_only("drop_rate", "attn_drop_rate", "drop_path_rate"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.out_indices = tuple(entries.out_indices)
        self.layers = nn.ModuleList()
        before = entries.in_channels
        for stage, count in enumerate(entries.num_layers[: entries.num_stages]):
            channels = entries.embed_dims * entries.num_heads[stage]
            blocks: list[nn.Module] = [EncoderLayer(entries, stage, channels) for _ in range(count)]
            if entries.use_abs_pos_embed:
                side = entries.pretrain_img_size // math.prod(entries.patch_sizes[: stage + 1])
                blocks.insert(0, PositionEmbedding(side, channels))
            norm = normalization(entries.norm_cfg, channels)[1] if entries.norm_after_stage else nn.Identity()
            embedding = PatchEmbedding(entries, stage, before, channels)
            self.layers.append(nn.Sequential(embedding, nn.Sequential(*blocks), norm))
            before = channels

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        outputs = []
        for stage, layers in enumerate(self.layers):
            x = layers(x).permute(0, 3, 1, 2)  # [N, C, H', W']
            if stage in self.out_indices:
                outputs.append(x)
        return tuple(outputs)


@PARTS.register("backbone", "PyramidVisionTransformerV2")
class PyramidVisionTransformerV2(PyramidVisionTransformer):
    """Version 2: patches that overlap, positions from a convolution in each block."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(PyramidVisionTransformer.Entries):
        patch_sizes: Sequence[int] = (7, 3, 3, 3)
        paddings: Sequence[int] = (3, 1, 1, 1)
        use_abs_pos_embed: bool = False
        norm_after_stage: bool = True
        use_conv_ffn: bool = True
