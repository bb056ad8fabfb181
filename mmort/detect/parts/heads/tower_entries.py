"""The entries that heads with a tower for the classes and a tower for the boxes have."""

from __future__ import annotations

from dataclasses import dataclass

from mmort.configs.schema import Config
from mmort.detect.entries import Schema


@dataclass(frozen=True, kw_only=True)
class TowerEntries(Schema):
    """The entries of ``bbox_head`` that say what the towers are."""

    num_classes: int
    in_channels: int
    feat_channels: int = 256
    stacked_convs: int = 4
    conv_cfg: Config | None = None
    norm_cfg: Config | None = None
