"""TridentNet's ResNet, whose last stage runs at several dilations with the same weights.

Source: Y. Li et al., "Scale-Aware Trident Networks for Object Detection", ICCV 2019; MMDetection's ``TridentResNet``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from mmort.detect.entries import PARTS
from mmort.detect.parts.backbones.resnet import (
    BLOCK_COUNTS,
    Bottleneck,
    ResNetBase,
    ResNetEntries,
    StagePlan,
    block_settings,
    known_depth,
    stage_widths,
)


@PARTS.register("backbone", "TridentResNet")
class TridentResNet(ResNetBase):
    """ResNet with the one branch of its last stage that detects."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(ResNetEntries):
        """The entries of ``backbone``."""

        depth: int
        num_branch: int
        test_branch_idx: int
        trident_dilations: Sequence[int]

    def __init__(self, entries: Entries) -> None:
        branch = entries.test_branch_idx
        if not 0 <= branch < entries.num_branch == len(entries.trident_dilations):
            raise ValueError(
                f"detect.build: backbone.test_branch_idx must be one of the {entries.num_branch} branches, got {branch}"
            )
        counts = BLOCK_COUNTS[known_depth(entries.depth, BLOCK_COUNTS)]
        plans = []
        for stage, channels in enumerate(stage_widths(entries)):
            settings = block_settings(entries, stage)
            if stage == entries.num_stages - 1:
                settings = dataclasses.replace(settings, dilation=entries.trident_dilations[branch], dcn=None)
            plans.append(StagePlan(Bottleneck, counts[stage], channels, settings))
        super().__init__(entries, plans)
