"""Entries of networks that come in several sizes: factors of the channels and of the number of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, default

BATCH_NORM: Config = {"type": "BN", "momentum": 0.03, "eps": 0.001}
SILU: Config = {"type": "SiLU"}
RELU: Config = {"type": "ReLU"}


@dataclass(frozen=True, kw_only=True)
class WidenedEntries(Schema):
    """The entries of parts whose channels are scaled."""

    widen_factor: float = 1.0
    norm_cfg: Config | None = default(BATCH_NORM)
    act_cfg: Config | None = default(SILU)

    @property
    def layer(self) -> dict[str, Any]:
        """Normalization and activation as arguments of `ConvModule`."""
        return {"norm_cfg": self.norm_cfg, "act_cfg": self.act_cfg}

    def channels(self, full: int) -> int:
        """Return the channels of a layer that has `full` in the full-sized network."""
        return scaled_channels(full, self.widen_factor)


class RoundedDown:
    """Before the base of a schema: channels are rounded down, to any number, as MMYOLO's RTMDet has them."""

    widen_factor: float

    def channels(self, full: int) -> int:
        """Return the channels of a layer that has `full` in the full-sized network."""
        return int(full * self.widen_factor)


@dataclass(frozen=True, kw_only=True)
class ScaledEntries(WidenedEntries):
    """The entries of parts whose channels and blocks are scaled."""

    deepen_factor: float = 1.0

    def blocks(self, full: int) -> int:
        """Return the blocks of a layer that has `full` in the full-sized network."""
        return max(round(full * self.deepen_factor), 1) if full > 1 else full


def scaled_channels(full: int, factor: float) -> int:
    """Return the product, rounded up to a multiple of 8."""
    return math.ceil(full * factor / 8) * 8
