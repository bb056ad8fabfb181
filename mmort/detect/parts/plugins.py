"""Layers that a config adds to the blocks of a backbone: attention over the whole map.

Source: Y. Cao et al., "GCNet: Non-local Networks Meet Squeeze-Excitation Networks and Beyond", 2019 (ContextBlock);
X. Zhu et al., "An Empirical Study of Spatial Attention Mechanisms in Deep Networks", ICCV 2019 (GeneralizedAttention);
X. Wang et al., "Non-local Neural Networks", CVPR 2018 (NonLocal2d); MMCV's classes of these names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import Parts, Schema, at_least, only, read_entries, require
from mmort.detect.parts.layers import ConvModule


@dataclass(frozen=True, kw_only=True)
class LayerEntries(Schema):
    """The entries that every plugin's ``cfg`` has."""

    in_channels: int
    postfix: str | int = ""


class Plugin(nn.Module):
    """Base of these layers.

    Attributes
    ----------
    abbreviation : str
        MMCV's short name of the class.
    name : str
        Its name in a block.
    """

    abbreviation: ClassVar[str]

    def __init__(self, entries: LayerEntries) -> None:
        super().__init__()
        self.name = f"{self.abbreviation}{entries.postfix}"


class ContextBlock(Plugin):
    """A weighted mean of the whole map, added to (or multiplied with) every location after two convolutions."""

    abbreviation = "context_block"

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        """The entries of a plugin's ``cfg``."""

        ratio: float
        pooling_type: str = "att"
        fusion_types: Sequence[str] = ("channel_add",)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        channels = entries.in_channels
        pooling = require("ContextBlock.pooling_type", entries.pooling_type, "att", "avg")
        self.conv_mask = nn.Conv2d(channels, 1, 1) if pooling == "att" else None
        kinds = [
            require("ContextBlock.fusion_types", kind, "channel_add", "channel_mul") for kind in entries.fusion_types
        ]
        inner = int(channels * entries.ratio)
        for kind in kinds:
            layers = [
                nn.Conv2d(channels, inner, 1),
                nn.LayerNorm([inner, 1, 1]),
                nn.ReLU(),
                nn.Conv2d(inner, channels, 1),
            ]
            self.add_module(f"{kind}_conv", nn.Sequential(*layers))
        self.multiplies, self.adds = "channel_mul" in kinds, "channel_add" in kinds

    def forward(self, x: Tensor) -> Tensor:
        if self.conv_mask is None:
            context = x.mean((2, 3), keepdim=True)
        else:
            weights = self.conv_mask(x).flatten(2).softmax(2)  # [N, 1, h * w]
            context = (x.flatten(2) @ weights.transpose(1, 2))[..., None]  # [N, C, 1, 1]
        out = x
        if self.multiplies:
            out = out * self.get_submodule("channel_mul_conv")(context).sigmoid()
        if self.adds:
            out = out + self.get_submodule("channel_add_conv")(context)
        return out


class GeneralizedAttention(Plugin):
    """Attention whose logits are any sum of four terms.

    These are, by the characters of ``attention_type``: query and key, query and relative position, key alone, and
    relative position alone.
    """

    abbreviation = "gen_attention_block"

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        """The entries of a plugin's ``cfg``."""

        spatial_range: int = -1
        num_heads: int = 9
        position_embedding_dim: int = -1
        position_magnitude: float = 1
        kv_stride: int = at_least(1, default=2)
        q_stride: int = at_least(1, default=1)
        attention_type: str = "1111"

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        if entries.spatial_range >= 0:
            raise ValueError(
                "detect.build: GeneralizedAttention.spatial_range must be negative: a limit is not supported"
            )
        channels, heads = entries.in_channels, entries.num_heads
        self.heads, self.magnitude = heads, entries.position_magnitude
        self.query_stride, self.key_stride = entries.q_stride, entries.kv_stride
        self.terms = tuple(character == "1" for character in entries.attention_type)
        both, by_position, key_alone, position_alone = self.terms
        width = channels // heads * heads
        if both or by_position:
            self.query_conv = nn.Conv2d(channels, width, 1, bias=False)
        if both or key_alone:
            self.key_conv = nn.Conv2d(channels, width, 1, bias=False)
        self.value_conv = nn.Conv2d(channels, width, 1, bias=False)
        if by_position or position_alone:
            size = entries.position_embedding_dim if entries.position_embedding_dim > 0 else channels
            self.appr_geom_fc_x = nn.Linear(size // 2, width, bias=False)
            self.appr_geom_fc_y = nn.Linear(size // 2, width, bias=False)
        if key_alone:
            self.appr_bias = nn.Parameter(torch.zeros(width))
        if position_alone:
            self.geom_bias = nn.Parameter(torch.zeros(width))
        self.proj_conv = nn.Conv2d(width, channels, 1)
        self.gamma = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        queries, keys = (x[:, :, ::stride, ::stride] for stride in (self.query_stride, self.key_stride))
        weights = self._logits(queries, keys).softmax(3)  # [N, heads, h * w or 1, h' * w']
        values = self.value_conv(keys).unflatten(1, (self.heads, -1)).flatten(3)  # [N, heads, D, h' * w']
        out = (values @ weights.transpose(2, 3)).flatten(1, 2)  # [N, heads * D, h * w or 1]
        by_query = self.terms[0] or self.terms[1] or self.terms[3]
        out = self.proj_conv(out.unflatten(2, queries.shape[2:]) if by_query else out[..., None])
        if self.query_stride > 1:
            out = nn.functional.interpolate(out, size=x.shape[2:], mode="bilinear", align_corners=False)
        return self.gamma * out + x

    def _logits(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return the sum of the terms, [N, heads, h * w, h' * w']; one row if no term depends on the query."""
        both, by_position, key_alone, position_alone = self.terms
        heads = self.heads
        content = queries.new_zeros(1, 1, 1, 1, 1)
        if both or by_position:
            content = torch.unflatten(self.query_conv(queries), 1, (heads, -1)).permute(
                0, 1, 3, 4, 2
            )  # [N, heads, h, w, D]
        terms = []
        if both or key_alone:
            left = content if both else queries.new_zeros(1)
            if key_alone:
                left = left + self.appr_bias.reshape(heads, 1, 1, -1)
            key = self.key_conv(keys).unflatten(1, (heads, -1)).flatten(3)  # [N, heads, D, h' * w']
            terms.append(left.flatten(-3, -2) @ key)
        if by_position or position_alone:
            left = content if by_position else queries.new_zeros(1)
            if position_alone:
                left = left + self.geom_bias.reshape(heads, 1, 1, -1)
            x = self._offsets(self.appr_geom_fc_x, queries.shape[3], keys.shape[3])  # [heads, w, D, w']
            y = self._offsets(self.appr_geom_fc_y, queries.shape[2], keys.shape[2])  # [heads, h, D, h']
            by_x = (left.transpose(-3, -2) @ x).transpose(-3, -2)  # [..., heads, h or 1, w, w']
            if not position_alone:  # as MMCV computes it, which needs square maps
                left = left.transpose(-3, -2)
            by_y = left @ y  # [..., heads, h, w or 1, h']
            terms.append((by_x[..., None, :] + by_y[..., None]).flatten(-2).flatten(-3, -2))
        return sum(terms[1:], terms[0]).expand(queries.shape[0], -1, -1, -1)

    def _offsets(self, layer: nn.Linear, queries: int, keys: int) -> Tensor:
        """Return the embedded offsets from keys to queries along an axis, [heads, queries, D, keys]."""
        device = layer.weight.device
        position = torch.arange(queries, device=device)[:, None] * self.query_stride
        offset = (position - torch.arange(keys, device=device) * self.key_stride) * self.magnitude
        count = layer.in_features // 2
        wave = 1000 ** (torch.arange(count, device=device, dtype=layer.weight.dtype) / count)
        angle = offset[..., None] / wave
        embedded = layer(torch.cat([angle.sin(), angle.cos()], 2)) / 2**0.5
        return embedded.unflatten(2, (self.heads, -1)).permute(2, 0, 3, 1)


class NonLocal2d(Plugin):
    """Attention of every location over the whole map, between two 1x1 convolutions beside a shortcut."""

    abbreviation = "nonlocal_block"

    @dataclass(frozen=True, kw_only=True)
    class Entries(LayerEntries):
        """The entries of a plugin's ``cfg``."""

        reduction: int = 2
        use_scale: bool = True
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        mode: str = only("embedded_gaussian")
        sub_sample: bool = only(False)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        channels, conv_cfg = entries.in_channels, entries.conv_cfg
        inner = max(channels // entries.reduction, 1)
        self.scale = inner**-0.5 if entries.use_scale else 1.0
        self.g, self.theta, self.phi = (
            ConvModule(channels, inner, 1, conv_cfg=conv_cfg, act_cfg=None) for _ in range(3)
        )
        self.conv_out = ConvModule(inner, channels, 1, conv_cfg=conv_cfg, norm_cfg=entries.norm_cfg, act_cfg=None)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (layer(x).flatten(2) for layer in (self.theta, self.phi, self.g))  # [N, C, h * w]
        weights = (query.transpose(1, 2) @ key * self.scale).softmax(2)
        return x + self.conv_out((value @ weights.transpose(1, 2)).unflatten(2, x.shape[2:]))


_PLUGINS: dict[str, type[Plugin]] = {
    "ContextBlock": ContextBlock,
    "GeneralizedAttention": GeneralizedAttention,
    "NonLocal2d": NonLocal2d,
}


_POSITIONS = ("after_conv1", "after_conv2", "after_conv3")


@dataclass(frozen=True, kw_only=True)
class PluginEntries(Schema):
    """The entries of one of a backbone's ``plugins``."""

    cfg: Config
    position: str
    stages: Sequence[bool] | None = None

    def __post_init__(self) -> None:
        require("position of a plugin", self.position, *_POSITIONS)


def plugins_of_stage(configs: Sequence[Config] | None, stage: int) -> list[PluginEntries]:
    """Return those of a backbone's ``plugins`` that its stage, counted from 0, has."""
    plugins = [read_entries("backbone.plugins", PluginEntries, config) for config in configs or ()]
    return [plugin for plugin in plugins if plugin.stages is None or plugin.stages[stage]]


def add_plugins(block: nn.Module, plugins: Sequence[PluginEntries], position: str, channels: int) -> list[str]:
    """Add the plugins of one position ("after_conv1" to 3) to a block for maps with `channels`; return their names."""
    names = []
    for entries in plugins:
        if entries.position != position:
            continue
        plugin: Plugin = Parts({"plugin": _PLUGINS}).build("plugin", {**entries.cfg, "in_channels": channels})
        names.append(plugin.name)
        block.add_module(plugin.name, plugin)
    return names
