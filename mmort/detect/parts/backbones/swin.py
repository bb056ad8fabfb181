"""Swin Transformer: attention inside windows, which every second block shifts by half a window.

Source: Z. Liu et al., "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows", ICCV 2021;
MMDetection's ``SwinTransformer``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, only, training_only
from mmort.detect.parts.layers import normalization
from mmort.detect.parts.transformer import FFN, FFNEntries

_OTHER_WINDOW = -100.0
"""Added to the logits of two tokens that a shift has brought into one window from different sides of the map."""


class WindowAttention(nn.Module):
    """Attention of the tokens of each window, with a learned bias for each offset of two tokens."""

    def __init__(self, channels: int, heads: int, window: int, qkv_bias: bool, qk_scale: float | None) -> None:
        super().__init__()
        self.heads = heads
        self.scale = qk_scale or (channels // heads) ** -0.5
        side = 2 * window - 1  # offsets along one axis
        self.relative_position_bias_table = nn.Parameter(torch.zeros(side**2, heads))
        y, x = (axis.flatten() for axis in torch.meshgrid(*[torch.arange(window)] * 2, indexing="ij"))
        offsets = (y[:, None] - y + window - 1) * side + x[:, None] - x + window - 1
        self.register_buffer("relative_position_index", offsets)
        self.qkv = nn.Linear(channels, channels * 3, bias=qkv_bias)
        self.proj = nn.Linear(channels, channels)

    def forward(self, windows: Tensor, mask: Tensor | None) -> Tensor:
        """Attend within windows [N, W, T, C], with a mask [W, T, T] that is added to the logits."""
        qkv = torch.unflatten(self.qkv(windows), 3, (3, self.heads, -1))  # [N, W, T, 3, heads, C / heads]
        query, key, value = qkv.permute(3, 0, 1, 4, 2, 5).unbind(0)  # [N, W, heads, T, C / heads]
        index = self.get_buffer("relative_position_index")
        bias = self.relative_position_bias_table[index].permute(2, 0, 1)  # [heads, T, T]
        if mask is not None:
            bias = bias + mask[:, None]  # [W, heads, T, T]
        weights = (query * self.scale @ key.transpose(3, 4) + bias).softmax(4)
        return self.proj((weights @ value).transpose(2, 3).flatten(3))


class ShiftedWindows(nn.Module):
    """Attention in windows of maps that are moved up and left by `shift` before and back after."""

    def __init__(self, window: int, shift: int, attention: WindowAttention) -> None:
        super().__init__()
        self.window, self.shift = window, shift
        self.w_msa = attention

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens [N, H, W, C]."""
        window = self.window
        height, width = x.shape[1:3]
        rows, columns = chunks(height, window), chunks(width, window)
        x = F.pad(x, (0, 0, 0, columns * window - width, 0, rows * window - height))
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = windows_of(x, rows, columns, window)
        windows = self.w_msa(windows, self._mask(rows, columns, x.device) if self.shift else None)
        x = map_of(windows, rows, columns, window)
        if self.shift:
            x = torch.roll(x, (self.shift, self.shift), (1, 2))
        return x[:, :height, :width]

    def _mask(self, rows: int, columns: int, device: torch.device) -> Tensor:
        """Return the mask added to the logits of each window, [rows * columns, window ** 2, window ** 2]."""

        def sides(count: int) -> Tensor:
            """Return for each position of each window which side of the map it is from, [count, window]."""
            position = torch.arange(count * self.window, device=device)
            end = count * self.window
            side = (position >= end - self.window).int() + (position >= end - self.shift).int()
            return torch.unflatten(side, 0, (count, self.window))

        sides_y, sides_x = sides(rows), sides(columns)
        region = sides_y[:, None, :, None] * 3 + sides_x[None, :, None, :]  # [rows, columns, window, window]
        region = region.flatten(2).flatten(0, 1)
        return torch.where(region[:, None] == region[:, :, None], 0.0, _OTHER_WINDOW)


class SwinBlock(nn.Module):
    """Attention, then two linear layers, each after a normalization and beside a shortcut."""

    def __init__(self, entries: SwinTransformer.Entries, channels: int, heads: int, shifted: bool) -> None:
        super().__init__()
        window = entries.window_size
        attention = WindowAttention(channels, heads, window, entries.qkv_bias, entries.qk_scale)
        self.norm1 = normalization(entries.norm_cfg, channels)[1]
        self.attn = ShiftedWindows(window, window // 2 if shifted else 0, attention)
        self.norm2 = normalization(entries.norm_cfg, channels)[1]
        inner = int(entries.mlp_ratio * channels)
        self.ffn = FFN(FFNEntries(embed_dims=channels, feedforward_channels=inner, act_cfg=entries.act_cfg))

    def forward(self, x: Tensor) -> Tensor:
        """Transform tokens [N, H, W, C]."""
        x = x + self.attn(self.norm1(x))
        return self.ffn(self.norm2(x), x)


class PatchEmbedding(nn.Module):
    """A convolution of patches that do not overlap; the map is padded to whole patches."""

    def __init__(self, entries: SwinTransformer.Entries) -> None:
        super().__init__()
        self.size = entries.patch_size
        self.projection = nn.Conv2d(entries.in_channels, entries.embed_dims, self.size, stride=self.size)
        self.norm = normalization(entries.norm_cfg, entries.embed_dims)[1] if entries.patch_norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [N, H / size, W / size, C] of an image [N, 3, H, W]."""
        height, width = x.shape[2:]
        rows, columns = chunks(height, self.size), chunks(width, self.size)
        x = F.pad(x, (0, columns * self.size - width, 0, rows * self.size - height))
        return self.norm(self.projection(x).permute(0, 2, 3, 1))


def in_channel_order(values: Tensor) -> Tensor:
    """Return weights [..., 4 * C] of 2 x 2 tokens, which the authors' code reads by column, in MMDetection's order."""
    by_token = torch.unflatten(values, -1, (2, 2, -1))  # column, row, channel
    return by_token.movedim(-1, -3).transpose(-1, -2).flatten(-3)


class PatchMerging(nn.Module):
    """A linear layer of every 2 x 2 tokens; the map is padded to even sides."""

    converted_keys = (
        (r"\blayers\.(\d+)\.downsample\.(reduction|norm)\.", r"stages.\1.downsample.\2.", in_channel_order),
    )

    def __init__(self, entries: SwinTransformer.Entries, channels: int) -> None:
        super().__init__()
        self.norm = normalization(entries.norm_cfg, 4 * channels)[1] if entries.patch_norm else nn.Identity()
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return tokens [N, H / 2, W / 2, 2 * C] of tokens [N, H, W, C]."""
        rows, columns = chunks(x.shape[1], 2), chunks(x.shape[2], 2)
        x = F.pad(x, (0, 0, 0, 2 * columns - x.shape[2], 0, 2 * rows - x.shape[1]))
        x = torch.unflatten(torch.unflatten(x, 1, (rows, 2)), 3, (columns, 2))  # [N, rows, 2, columns, 2, C]
        return self.reduction(self.norm(x.permute(0, 1, 3, 5, 2, 4).flatten(3)))


class SwinStage(nn.Module):
    """Blocks on maps of one size, and the merging that precedes the next stage."""

    def __init__(self, entries: SwinTransformer.Entries, stage: int, channels: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            *(
                SwinBlock(entries, channels, entries.num_heads[stage], shifted=index % 2 == 1)
                for index in range(entries.depths[stage])
            )
        )
        last = stage == len(entries.depths) - 1
        self.downsample = nn.Identity() if last else PatchMerging(entries, channels)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the tokens of this stage and those for the next."""
        x = self.blocks(x)
        return x, self.downsample(x)


@PARTS.register("backbone", "SwinTransformer")
class SwinTransformer(nn.Module):
    """Swin Transformer; its weights may have the names of its authors' code."""

    renamed_keys = (
        (r"\bpatch_embed\.proj\.", "patch_embed.projection."),
        (r"\blayers\.(\d+\.blocks\.\d+)\.attn\.", r"stages.\1.attn.w_msa."),
        (r"\blayers\.(\d+\.blocks\.\d+)\.mlp\.fc1\.", r"stages.\1.ffn.layers.0.0."),
        (r"\blayers\.(\d+\.blocks\.\d+)\.mlp\.fc2\.", r"stages.\1.ffn.layers.1."),
        (r"\blayers\.(\d+\.blocks\.\d+\.norm\d)\.", r"stages.\1."),
    )

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int = 3
        embed_dims: int = 96
        patch_size: int = 4
        window_size: int = 7
        mlp_ratio: float = 4
        depths: Sequence[int] = (2, 2, 6, 2)
        num_heads: Sequence[int] = (3, 6, 12, 24)
        strides: Sequence[int] | None = None
        out_indices: Sequence[int] = (0, 1, 2, 3)
        qkv_bias: bool = True
        qk_scale: float | None = None
        patch_norm: bool = True
        use_abs_pos_embed: bool = only(False)  # no image size fits the embedding
        act_cfg: Config = default({"type": "GELU"})
        norm_cfg: Config = default({"type": "LN"})

        ignored: ClassVar = {
            "pretrain_img_size": "of position embeddings, which are not supported",
            "convert_weights": "of pretrained weights; the names in a checkpoint tell",
            **training_only("drop_rate", "attn_drop_rate", "drop_path_rate", "frozen_stages", "with_cp"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        strides = [entries.patch_size] + [2] * (len(entries.depths) - 1)
        if entries.strides is not None and [*entries.strides] != strides:
            raise ValueError(f"detect.build: backbone.strides must be {strides}, got {[*entries.strides]}")
        self.out_indices = tuple(entries.out_indices)
        self.patch_embed = PatchEmbedding(entries)
        widths = [entries.embed_dims * 2**stage for stage in range(len(entries.depths))]
        self.stages = nn.ModuleList(SwinStage(entries, stage, width) for stage, width in enumerate(widths))
        for stage in self.out_indices:
            self.add_module(f"norm{stage}", normalization(entries.norm_cfg, widths[stage])[1])

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        x = self.patch_embed(x)
        outputs = []
        for index, stage in enumerate(self.stages):
            tokens, x = stage(x)
            if index in self.out_indices:
                outputs.append(getattr(self, f"norm{index}")(tokens).permute(0, 3, 1, 2))
        return tuple(outputs)


_NAMES_OF_1 = {"in_chans": "in_channels", "embed_dim": "embed_dims", "ape": "use_abs_pos_embed"}


@PARTS.register("backbone", "SwinTransformerV1")
class SwinTransformerV1(SwinTransformer):
    """The same with its authors' names of entries, as Co-DETR's code has it."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(SwinTransformer.Entries):
        patch_norm: bool = only(True)  # which normalizes before merging too, as theirs always does

        ignored: ClassVar = {**SwinTransformer.Entries.ignored, **training_only("use_checkpoint", "pretrained")}

        @classmethod
        def respelled(cls, name: str, config: Config) -> Config:
            """Rename entries."""
            return {_NAMES_OF_1.get(key, key): value for key, value in config.items()}


def chunks(side: int, size: int) -> int:
    """Return how many chunks of `size` a side has, the last perhaps padded."""
    return (side + size - 1) // size


def windows_of(x: Tensor, rows: int, columns: int, window: int) -> Tensor:
    """Return windows [N, rows * columns, window ** 2, C] of a map [N, rows * window, columns * window, C]."""
    x = torch.unflatten(torch.unflatten(x, 1, (rows, window)), 3, (columns, window)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)


def map_of(windows: Tensor, rows: int, columns: int, window: int) -> Tensor:
    """Return the map of windows; see `windows_of`."""
    x = torch.unflatten(torch.unflatten(windows, 1, (rows, columns)), 3, (window, window)).transpose(2, 3)
    return x.flatten(3, 4).flatten(1, 2)
