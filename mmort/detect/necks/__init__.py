"""Networks from a backbone's feature maps to those that heads read, with the names of MMDetection's."""

from __future__ import annotations

from typing import Any

from torch import nn

from mmort.detect.detector import construct
from mmort.detect.necks.fpn import FPN
from mmort.detect.necks.ssd_neck import SSDNeck
from mmort.detect.necks.yolo_neck import YOLOV3Neck

_NECKS: dict[str, Any] = {
    "FPN": FPN,
    "SSDNeck": SSDNeck,
    "YOLOV3Neck": YOLOV3Neck,
}


def build_neck(config: dict[str, Any] | None) -> nn.Module:
    """Build ``model.neck``: a module from maps to a tuple of maps [N, C, h, w].  None hands them on."""
    if config is None:
        return nn.Identity()
    if not isinstance(config, dict):
        raise ValueError(f"detect.build: model.neck must be one dict, got {type(config).__name__}")
    return construct("neck", config, _NECKS)  # type: ignore[no-any-return]
