"""YOLOv5 with masks: a mask is a sum of prototypes, with factors that each anchor predicts.

Sources: D. Bolya et al., "YOLACT: Real-time Instance Segmentation", ICCV 2019; ultralytics' documentation of YOLOv5;
MMYOLO's configs, and what it computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.entries import PARTS, Parts, default, only, part, training_only
from mmort.detect.families.yolo.yolov5 import YOLOv5Head, YOLOv5HeadModule
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector, YOLOTestEntries
from mmort.detect.parts.yolo.scaling import BATCH_NORM, SILU


class Prototypes(nn.Module):
    """Maps of twice the size of the finest level, of which masks are made: MMYOLO's ``ProtoModule``."""

    def __init__(self, in_channels: int, channels: int, prototypes: int, **layer: Any) -> None:
        super().__init__()
        self.conv1 = ConvModule(in_channels, channels, 3, padding=1, **layer)
        self.conv2 = ConvModule(channels, channels, 3, padding=1, **layer)
        self.conv3 = ConvModule(channels, prototypes, 1, **layer)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv3(self.conv2(functional.interpolate(self.conv1(x), scale_factor=2)))


class YOLOv5InsHeadModule(YOLOv5HeadModule):
    """YOLOv5's layers, with factors of prototypes for every anchor, and the layers of the prototypes."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv5HeadModule.Entries):
        mask_channels: int = 32
        proto_channels: int = 256
        norm_cfg: Config | None = default(BATCH_NORM)
        act_cfg: Config | None = default(SILU)

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        finest, channels = entries.channels(entries.in_channels[0]), entries.channels(entries.proto_channels)
        layer = {"norm_cfg": entries.norm_cfg, "act_cfg": entries.act_cfg}
        self.proto_pred = Prototypes(finest, channels, entries.mask_channels, **layer)

    def numbers(self, entries: Any) -> int:
        return super().numbers(entries) + self.anchors * entries.mask_channels

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return x, y, w, h, objectness, classes and factors by level, and the prototypes [N, C, H / 4, W / 4]."""
        return *super().forward(features), self.proto_pred(features[0])


class YOLOv5InsHead(YOLOv5Head):
    """Boxes over anchors, and the factors of their masks."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv5Head.Entries):
        head_module: HeadModule = part("head_module", types={"YOLOv5InsHeadModule": YOLOv5InsHeadModule})

        ignored: ClassVar = {**YOLOv5Head.Entries.ignored, **training_only("mask_overlap")}

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        boxes, scores, objectness = super().decoded(level, *maps)
        factors = self.by_anchor(maps[0])[..., 5 + self.head_module.classes :]  # [N, h*w*A, mask_channels]
        # The objectness is a factor of all that follows it, as in ultralytics' YOLOv5.
        return boxes, scores, objectness, factors * objectness


@PARTS.register("detector", "YOLOv5InsHead", model=MODEL)
class YOLOv5Ins(YOLODetector):
    """YOLOv5 of MMYOLO with masks, which are probabilities over the whole input."""

    family = "YOLOv5-Ins"
    head = YOLOv5InsHead

    @dataclass(frozen=True, kw_only=True)
    class TestCfg(YOLOTestEntries):
        mask_thr_binary: float = 0.5
        fast_test: bool = only(True, required=True)  # MMYOLO's default is False, with another interpolation

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        _require_half_pad_param(config)
        stride = self.bbox_head.head_module.strides[0] // 2
        self.output_names = WITH_MASKS
        self.mask_format = MaskFormat("image", self.test_cfg.mask_thr_binary, stride, inside_input_boxes=True)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return *super().raw_names, "mask_proto"

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        *maps, prototypes = self.raw(input)
        boxes, scores, objectness, factors = self.bbox_head.decode(maps)
        dets, labels, indices = self.select(boxes, scores, objectness)
        chosen = take_rows(factors, indices.clamp(min=0))  # [N, K, mask_channels]
        masks = torch.unflatten((chosen @ prototypes.flatten(2)).sigmoid(), 2, prototypes.shape[2:])
        return dets, labels, torch.where(labels[..., None, None] < 0, 0, masks)


def _require_half_pad_param(config: DetectorConfig) -> None:
    """Refuse test pipelines for which MMYOLO cuts its masks elsewhere than its boxes, by whole pixels."""
    steps = config.test_pipeline.steps if config.has_test_pipeline else ()
    if steps and not any(name == "LetterResize" and getattr(step, "half_pad_param", False) for name, step in steps):
        raise ValueError(
            "detect.build: YOLOv5InsHead needs LetterResize with half_pad_param=True in the test pipeline; without it, "
            "MMYOLO's masks are not in the place of its boxes"
        )
