"""YOLOX of MMYOLO: MMDetection's head, whose layers are a module of their own, with MMYOLO's selection.

Source: Z. Ge et al., "YOLOX: Exceeding YOLO Series in 2021"; MMYOLO's configs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, default, nested, part
from mmort.detect.families.dense.yolox import YOLOXLayers, decoded_boxes
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector, YOLOHead
from mmort.detect.parts.yolo.distances import points
from mmort.detect.parts.yolo.scaling import BATCH_NORM, SILU, RoundedDown


@dataclass(frozen=True, kw_only=True)
class YOLOXCoderEntries(Schema):
    """The entries of ``bbox_coder``."""

    types: ClassVar = ("YOLOXBBoxCoder",)
    ignored: ClassVar = {"use_box_type": "a wrapper around the same numbers"}


class YOLOXHeadModule(YOLOXLayers, HeadModule):
    """The layers of YOLOX's head."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RoundedDown, HeadModule.Entries):
        in_channels: int
        feat_channels: int = 256
        stacked_convs: int = 2
        use_depthwise: bool = False
        norm_cfg: Config | None = default(BATCH_NORM)
        act_cfg: Config | None = default(SILU)

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.add_layers(
            entries.channels(entries.in_channels),
            entries.channels(entries.feat_channels),
            self.classes,
            levels=len(self.strides),
            stacked_convs=entries.stacked_convs,
            use_depthwise=entries.use_depthwise,
            norm_cfg=entries.norm_cfg,
            act_cfg=entries.act_cfg,
        )


class YOLOXHead(YOLOHead):
    """Centres and sizes by location, with an objectness."""

    raw_kinds = YOLOXLayers.raw_kinds

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOHead.Entries):
        head_module: HeadModule = part("head_module", types={"YOLOXHeadModule": YOLOXHeadModule})
        prior_generator: Priors = part("prior generator", default=points(0))
        bbox_coder: YOLOXCoderEntries = nested(YOLOXCoderEntries, default={})

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        # [N, h*w, C], [N, h*w, 4], [N, h*w, 1]
        logits, regressed, objectness = (map.flatten(2).transpose(1, 2) for map in maps)
        boxes = decoded_boxes(regressed, self.priors.level(level, maps[0]), self.head_module.strides[level])
        return boxes, logits.sigmoid(), objectness.sigmoid()


@PARTS.register("detector", "YOLOXHead", model=MODEL)
class YOLOXOfMMYOLO(YOLODetector):
    """YOLOX of MMYOLO."""

    family = "YOLOX"
    head = YOLOXHead
