"""Second stages with one head, which gives rotated boxes."""

from __future__ import annotations

from dataclasses import dataclass

from mmort.detect.entries import Schema, part
from mmort.detect.parts.heads.box_head import BoxHead
from mmort.detect.parts.roi_extractor import RoIExtractor
from mmort.detect.parts.rotated.test_cfg import RotatedRCNNEntries
from mmort.detect.parts.two_stage import RoIHead


class RotatedRoIHead(RoIHead):
    """Base of these second stages; the family says which head they have, and what they detect with it."""

    with_mask = False
    TestCfg = RotatedRCNNEntries
    test_cfg: RotatedRCNNEntries

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        bbox_roi_extractor: RoIExtractor = part("RoI extractor")
        bbox_head: BoxHead = part("bbox_head")

    def __init__(self, entries: Entries, test_cfg: RotatedRCNNEntries) -> None:
        super().__init__(test_cfg)
        self.bbox_roi_extractor, self.bbox_head = entries.bbox_roi_extractor, entries.bbox_head
