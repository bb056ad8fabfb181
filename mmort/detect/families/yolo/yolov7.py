"""YOLOv7: YOLOv5's boxes over anchors, from layers with learned numbers that are added and multiplied.

Sources: C.-Y. Wang et al., "YOLOv7: Trainable bag-of-freebies sets new state-of-the-art for real-time object
detectors", 2022; C.-Y. Wang et al., "You Only Learn One Representation", 2021; MMYOLO's configs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, part, training_only
from mmort.detect.families.yolo.yolov5 import YOLOv5Head, YOLOv5HeadModule
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.yolo.detector import MODEL, HeadModule, YOLODetector
from mmort.detect.parts.yolo.scaling import BATCH_NORM, SILU


class Implicit(nn.Module):
    """A learned number for each channel, which is added, or with `multiplies` multiplied."""

    def __init__(self, channels: int, *, multiplies: bool) -> None:
        super().__init__()
        self.multiplies = multiplies
        self.implicit = nn.Parameter(torch.ones(1, channels, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.implicit if self.multiplies else x + self.implicit


class YOLOv7HeadModule(YOLOv5HeadModule):
    """A 1x1 convolution between learned numbers for every level."""

    def predictor(self, channels: int, numbers: int) -> nn.Module:
        return nn.Sequential(
            Implicit(channels, multiplies=False),
            nn.Conv2d(channels, numbers, 1),
            Implicit(numbers, multiplies=True),
        )


class YOLOv7p6HeadModule(HeadModule):
    """The same after a 3x3 convolution."""

    class_layers: ClassVar = {"main_convs_pred": 5}
    unused_keys: ClassVar = (r"\.aux_convs_pred\.",)  # training only

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv5HeadModule.Entries):
        main_out_channels: Sequence[int] = (256, 512, 768, 1024)
        norm_cfg: Config | None = default(BATCH_NORM)
        act_cfg: Config | None = default(SILU)

        ignored: ClassVar = training_only("aux_out_channels", "use_aux")

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        numbers = self.anchors * (5 + self.classes)
        layer = {"norm_cfg": entries.norm_cfg, "act_cfg": entries.act_cfg}
        levels = zip(entries.in_channels, entries.main_out_channels, strict=True)
        channels = [(entries.channels(inputs), outputs) for inputs, outputs in levels]
        self.main_convs_pred = nn.ModuleList(
            nn.Sequential(
                ConvModule(inputs, outputs, 3, padding=1, **layer),
                Implicit(outputs, multiplies=False),
                nn.Conv2d(outputs, numbers, 1),
                Implicit(numbers, multiplies=True),
            )
            for inputs, outputs in channels
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return x, y, w, h, objectness and classes, [N, A * (5 + classes), h, w], by level."""
        return tuple(predict(x) for predict, x in zip(self.main_convs_pred, features, strict=True))


class YOLOv7Head(YOLOv5Head):
    """YOLOv5's head with other layers."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOv5Head.Entries):
        head_module: HeadModule = part(
            "head_module",
            types={"YOLOv7HeadModule": YOLOv7HeadModule, "YOLOv7p6HeadModule": YOLOv7p6HeadModule},
        )

        ignored: ClassVar = {
            **YOLOv5Head.Entries.ignored,
            **training_only("simota_candidate_topk", "simota_iou_weight", "simota_cls_weight", "aux_loss_weights"),
        }


@PARTS.register("detector", "YOLOv7Head", model=MODEL)
class YOLOv7(YOLODetector):
    """YOLOv7 of MMYOLO."""

    family = "YOLOv7"
    head = YOLOv7Head
