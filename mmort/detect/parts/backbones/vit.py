"""ViT: a transformer on patches, whose blocks attend inside windows, and a few of them over the whole map.

Two backbones have this type: that of MMDetection's ``projects/ViTDet``, which learns a bias for each offset of two
tokens, and that of the code of Co-DETR's authors, which rotates queries and keys.

Source: Y. Li et al., "Exploring Plain Vision Transformer Backbones for Object Detection", ECCV 2022; Y. Fang et al.,
"EVA-02: A Visual Representation for Neon Genesis", 2023.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, at_least, default, only, training_only
from mmort.detect.parts.backbones.swin import chunks, map_of, windows_of
from mmort.detect.parts.layers import activation, normalization

_TRAINED_TOKENS = 16
"""Along each side of the map of the first training, whose positions all maps are scaled to."""
_TRAINED_HEAD_CHANNELS = 64


def rotations(rows: int, columns: int, channels: int, like: Tensor) -> Tensor:
    """Return angles [rows * columns, channels] for tokens of a map, half of them by row and half by column."""
    half = channels // 2
    frequencies = 1 / 10000 ** (torch.arange(0, half, 2, dtype=like.dtype, device=like.device) / half)

    def along(count: int) -> Tensor:
        position = torch.arange(count, dtype=like.dtype, device=like.device) / count * _TRAINED_TOKENS
        return (position[:, None] * frequencies).repeat_interleave(2, 1)  # [count, half]

    by_row = along(rows)[:, None].expand(rows, columns, half)
    return torch.cat([by_row, along(columns).expand(rows, columns, half)], 2).flatten(0, 1)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Return features [..., T, C] whose pairs of channels are rotated by angles [T, C]."""
    turned = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * angles.cos() + turned * angles.sin()


class RotaryAttention(nn.Module):
    """Attention that compares rotated queries and keys."""

    def __init__(self, channels: int, heads: int, qkv_bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.scale = (channels // heads) ** -0.5
        self.q_proj = nn.Linear(channels, channels, bias=False)
        self.k_proj = nn.Linear(channels, channels, bias=False)
        self.v_proj = nn.Linear(channels, channels, bias=False)
        self.q_bias = nn.Parameter(torch.zeros(channels)) if qkv_bias else None
        self.v_bias = nn.Parameter(torch.zeros(channels)) if qkv_bias else None
        self.proj = nn.Linear(channels, channels)

    def forward(self, windows: Tensor, angles: Tensor) -> Tensor:
        """Attend within windows [N, W, T, C]; `angles` are those of T tokens."""
        query = rotated(self._heads(F.linear(windows, self.q_proj.weight, self.q_bias)), angles)
        key = rotated(self._heads(self.k_proj(windows)), angles)
        value = self._heads(F.linear(windows, self.v_proj.weight, self.v_bias))
        weights = (query * self.scale @ key.transpose(3, 4)).softmax(4)
        return self.proj((weights @ value).transpose(2, 3).flatten(3))

    def _heads(self, x: Tensor) -> Tensor:
        """Return features [N, W, heads, T, C / heads]."""
        return torch.unflatten(x, 3, (self.heads, -1)).transpose(2, 3)


class SwiGLU(nn.Module):
    """Two linear layers, the first of which is scaled by a third, and a normalization between them."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.w1, self.w2 = nn.Linear(channels, inner), nn.Linear(channels, inner)
        self.ffn_ln = nn.LayerNorm(inner, eps=1e-6)
        self.w3 = nn.Linear(inner, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.w3(self.ffn_ln(F.silu(self.w1(x)) * self.w2(x)))


class RelativeAttention(nn.Module):
    """Attention with a learned bias for each offset of two tokens along each side, if `use_rel_pos`."""

    def __init__(self, entries: ViT.Entries, side: int) -> None:
        super().__init__()
        channels, self.heads = entries.embed_dim, entries.num_heads
        self.scale = (channels // self.heads) ** -0.5
        self.qkv = nn.Linear(channels, channels * 3, bias=entries.qkv_bias)
        self.proj = nn.Linear(channels, channels)
        self.use_rel_pos = entries.use_rel_pos
        if self.use_rel_pos:
            self.rel_pos_h = nn.Parameter(torch.zeros(2 * side - 1, channels // self.heads))
            self.rel_pos_w = nn.Parameter(torch.zeros(2 * side - 1, channels // self.heads))

    def forward(self, windows: Tensor, size: tuple[int, int]) -> Tensor:
        """Attend within windows [N, W, T, C] of `size`."""
        qkv = torch.unflatten(self.qkv(windows), 3, (3, self.heads, -1))  # [N, W, T, 3, heads, C / heads]
        query, key, value = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)  # [N, W, heads, T, C / heads]
        logits = query * self.scale @ key.transpose(3, 4)
        if self.use_rel_pos:
            by_row, by_column = (
                of_offsets(table, side) for table, side in zip((self.rel_pos_h, self.rel_pos_w), size, strict=True)
            )
            queries = torch.unflatten(query, 3, size)  # [N, W, heads, rows, columns, C / heads]
            of_rows = (queries @ by_row).flatten(3, 4)  # [N, W, heads, T, rows]
            of_columns = (queries.transpose(3, 4) @ by_column).transpose(3, 4).flatten(3, 4)
            logits = torch.unflatten(logits, 4, size) + of_rows[..., None] + of_columns[..., None, :]
            logits = logits.flatten(4)
        return self.proj((logits.softmax(4) @ value).transpose(2, 3).flatten(3))


def of_offsets(table: Tensor, side: int) -> Tensor:
    """Return rows of a table [offsets, C] for the offsets of positions on a side, [side, C, side]: from, to."""
    resized = F.interpolate(table.T[None], 2 * side - 1, mode="linear")[0]  # [C, 2 * side - 1]
    position = torch.arange(side, device=table.device)
    return resized[:, position[:, None] - position + side - 1].transpose(0, 1)


class MLP(nn.Module):
    """Two linear layers."""

    def __init__(self, channels: int, inner: int, act_cfg: Config) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(channels, inner), activation(act_cfg), nn.Linear(inner, channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class ViTBlock(nn.Module):
    """Attention, inside windows unless `window` is 0, then linear layers, both beside a shortcut."""

    def __init__(self, attention: nn.Module, mlp: nn.Module, norms: tuple[nn.Module, nn.Module], window: int) -> None:
        super().__init__()
        self.window = window
        self.norm1, self.norm2 = norms
        self.attn, self.mlp = attention, mlp

    def forward(self, x: Tensor, positions: Any) -> Tensor:
        """Transform tokens [N, H, W, C]; `positions` are those of a window, or of the map."""
        x = x + self._attend(self.norm1(x), positions)
        return x + self.mlp(self.norm2(x))

    def _attend(self, x: Tensor, positions: Any) -> Tensor:
        """Return the attention's contribution to tokens [N, H, W, C]."""
        height, width = x.shape[1:3]
        if not self.window:
            return torch.unflatten(self.attn(x.flatten(1, 2)[:, None], positions)[:, 0], 1, (height, width))
        window = self.window
        rows, columns = chunks(height, window), chunks(width, window)
        x = F.pad(x, (0, 0, 0, columns * window - width, 0, rows * window - height))
        windows = self.attn(windows_of(x, rows, columns, window), positions)
        return map_of(windows, rows, columns, window)[:, :height, :width]


class Patches(nn.Module):
    """A convolution of patches that do not overlap."""

    def __init__(self, channels: int, embed_dim: int, size: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, embed_dim, size, stride=size)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [N, H / size, W / size, C] of an image [N, 3, H, W]."""
        return self.proj(x).permute(0, 2, 3, 1)


@dataclass(frozen=True, kw_only=True)
class PatchEntries(Schema):
    """The entries of ``backbone`` that both have."""

    patch_size: int = at_least(1, default=16)
    in_chans: int = 3
    embed_dim: int = 768
    depth: int = at_least(1, default=12)
    num_heads: int = at_least(1, default=12)
    mlp_ratio: float = 4.0
    qkv_bias: bool = True
    use_abs_pos: bool = True
    window_size: int = at_least(0, default=0)
    window_block_indexes: Container[int] = ()
    pretrain_img_size: int = at_least(1, default=224)
    pretrain_use_cls_token: bool = True


class PlainTransformer(nn.Module):
    """Base of both: patches with learned positions, and blocks.

    `block` builds one that attends inside windows of a size, or over the map if the size is 0.
    """

    def __init__(self, entries: PatchEntries, block: Callable[[int], ViTBlock]) -> None:
        super().__init__()
        self.window = entries.window_size
        self.patch_embed = Patches(entries.in_chans, entries.embed_dim, entries.patch_size)
        self.side = entries.pretrain_img_size // entries.patch_size
        self.class_tokens = int(entries.pretrain_use_cls_token)
        self.pos_embed = None
        if entries.use_abs_pos:
            self.pos_embed = nn.Parameter(torch.zeros(1, self.class_tokens + self.side**2, entries.embed_dim))
        windows = [self.window if index in entries.window_block_indexes else 0 for index in range(entries.depth)]
        self.blocks = nn.ModuleList(map(block, windows))

    def tokens(self, x: Tensor) -> Tensor:
        """Return the patches [N, H, W, C] of images [N, 3, h, w] with their positions."""
        x = self.patch_embed(x)
        return x if self.pos_embed is None else x + self._positions(self.pos_embed, *x.shape[1:3])

    def _positions(self, embedding: Tensor, height: int, width: int) -> Tensor:
        """Return the position embeddings for the tokens of a map, [1, H, W, C]."""
        learned = torch.unflatten(embedding[:, self.class_tokens :], 1, (self.side, self.side)).permute(0, 3, 1, 2)
        return F.interpolate(learned, (height, width), mode="bicubic").permute(0, 2, 3, 1)


@PARTS.register("backbone", "ViT")
class ViT(PlainTransformer):
    """ViT with biases of relative positions, which returns one map, as MMDetection's ``projects/ViTDet`` has it."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(PatchEntries):
        window_block_indexes: Container[int] = (0, 1, 3, 4, 6, 7, 9, 10)
        img_size: int = at_least(1, default=1024)
        use_rel_pos: bool = False
        norm_cfg: Config = default({"type": "LN", "eps": 1e-6})
        act_cfg: Config = default({"type": "GELU"})

        ignored: ClassVar = training_only("drop_path_rate", "rel_pos_zero_init")

        def check(self, name: str) -> None:
            """Raise a ValueError if the channels cannot be divided among the heads."""
            if self.embed_dim % self.num_heads:
                raise ValueError(
                    f"detect.build: embed_dim of {name} must be a multiple of num_heads = {self.num_heads}, "
                    f"got {self.embed_dim}"
                )

    def __init__(self, entries: Entries) -> None:
        channels = entries.embed_dim

        def block(window: int) -> ViTBlock:
            attention = RelativeAttention(entries, window or entries.img_size // entries.patch_size)
            mlp = MLP(channels, int(channels * entries.mlp_ratio), entries.act_cfg)
            norms = normalization(entries.norm_cfg, channels)[1], normalization(entries.norm_cfg, channels)[1]
            return ViTBlock(attention, mlp, norms, window)

        super().__init__(entries, block)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        x = self.tokens(x)
        of_map, of_window = tuple(x.shape[1:3]), (self.window, self.window)
        for block in self.blocks:
            x = block(x, of_window if block.window else of_map)
        return (x.permute(0, 3, 1, 2),)


class RotaryViT(PlainTransformer):
    """ViT with rotary positions, which returns one map, as the code of Co-DETR's authors has it."""

    unused_keys = (r"\brope(_win|_glb)?\.freqs_(cos|sin)$",)  # sines of the angles

    @dataclass(frozen=True, kw_only=True)
    class Entries(PatchEntries):
        mlp_ratio: float = 4 * 2 / 3
        pt_hw_seq_len: int = only(_TRAINED_TOKENS)
        intp_freq: bool = only(True)
        use_rel_pos: bool = only(False)
        use_lsj: bool = False

        ignored: ClassVar = {
            "img_size": "of the images, which may have any size here",
            "out_feature": "a name that nothing reads",
            "residual_block_indexes": "the authors' code does not read it",
            "rope": "the authors' code does not read it",
            "xattn": "another program that computes the same",
            **training_only("drop_path_rate", "pretrained", "use_act_checkpoint"),
        }

        def check(self, name: str) -> None:
            """Raise a ValueError if the positions do not fit the heads."""
            channels = self.embed_dim // self.num_heads
            if self.embed_dim % self.num_heads or channels % 4:
                raise ValueError(
                    f"detect.build: embed_dim of {name} must be a multiple of 4 num_heads = {4 * self.num_heads}, "
                    f"got {self.embed_dim}"
                )
            whole = [index for index in range(self.depth) if index not in self.window_block_indexes]
            if (whole or not self.window_size) and not self.use_lsj and channels != _TRAINED_HEAD_CHANNELS:
                raise ValueError(
                    f"detect.build: embed_dim of {name} must be {_TRAINED_HEAD_CHANNELS} num_heads = "
                    f"{_TRAINED_HEAD_CHANNELS * self.num_heads} for blocks without windows, got {self.embed_dim}"
                )

    def __init__(self, entries: Entries) -> None:
        channels = entries.embed_dim

        def block(window: int) -> ViTBlock:
            attention = RotaryAttention(channels, entries.num_heads, entries.qkv_bias)
            norms = nn.LayerNorm(channels, eps=1e-6), nn.LayerNorm(channels, eps=1e-6)
            return ViTBlock(attention, SwiGLU(channels, int(channels * entries.mlp_ratio)), norms, window)

        super().__init__(entries, block)
        self.head_channels = channels // entries.num_heads
        self.out_norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        x = self.tokens(x)
        height, width = x.shape[1:3]
        of_map = rotations(height, width, self.head_channels, x)
        of_window = rotations(self.window, self.window, self.head_channels, x) if self.window else of_map
        for block in self.blocks:
            x = block(x, of_window if block.window else of_map)
        return (self.out_norm(x).permute(0, 3, 1, 2),)
