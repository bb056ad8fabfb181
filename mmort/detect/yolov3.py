"""YOLOv3: a class, an objectness and a box for every anchor of three levels.

Source: J. Redmon, A. Farhadi, "YOLOv3: An Incremental Improvement", 2018; MMDetection's ``YOLOV3Head``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.backbones import build_backbone
from mmort.detect.detector import Config, Detector, construct, is_version_3, plain_type, test_config
from mmort.detect.layers import ConvModule
from mmort.detect.necks import build_neck
from mmort.detect.priors import build_priors
from mmort.detect.selection import best_pairs, check_test_cfg, detections, larger

_ANCHORS = {
    "type": "YOLOAnchorGenerator",
    "base_sizes": [
        [(116, 90), (156, 198), (373, 326)],
        [(30, 61), (62, 45), (59, 119)],
        [(10, 13), (16, 30), (33, 23)],
    ],
    "strides": [32, 16, 8],
}


class YOLOV3Head(nn.Module):
    """Parameters have the names of the config's entries."""

    def __init__(
        self,
        num_classes: int,
        in_channels: Sequence[int],
        out_channels: Sequence[int] = (1024, 512, 256),
        anchor_generator: dict[str, Any] = _ANCHORS,
        bbox_coder: dict[str, Any] = {"type": "YOLOBBoxCoder"},  # noqa: B006 - never written to
        featmap_strides: Sequence[int] = (32, 16, 8),
        conv_cfg: dict[str, Any] | None = None,
        norm_cfg: dict[str, Any] = {"type": "BN"},  # noqa: B006
        act_cfg: dict[str, Any] = {"type": "LeakyReLU", "negative_slope": 0.1},  # noqa: B006
    ) -> None:
        super().__init__()
        if plain_type(bbox_coder["type"]) != "YOLOBBoxCoder":
            raise ValueError(f"detect.build: bbox_head.bbox_coder.type must be 'YOLOBBoxCoder', got {bbox_coder!r}")
        self.classes = num_classes
        self.strides = list(featmap_strides)
        self.priors = build_priors(anchor_generator)
        common: dict[str, Any] = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg, "act_cfg": act_cfg}
        numbers = self.priors.num_base_priors[0] * (5 + num_classes)
        self.convs_bridge = nn.ModuleList(
            ConvModule(before, channels, 3, padding=1, **common)
            for before, channels in zip(in_channels, out_channels, strict=True)
        )
        self.convs_pred = nn.ModuleList(nn.Conv2d(channels, numbers, 1) for channels in out_channels)

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return x, y, w, h, objectness and classes, [N, A * (5 + classes), h, w], by level, coarsest first."""
        levels = zip(self.convs_bridge, self.convs_pred, features, strict=True)
        return tuple(predict(bridge(x)) for bridge, predict, x in levels)

    def decode(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes [N, P, 4], not clipped, and probabilities: objectness [N, P, 1], classes [N, P, C]."""
        boxes, objectness, scores = [], [], []
        for level, (map, stride) in enumerate(zip(maps, self.strides, strict=True)):
            flat = torch.unflatten(map.permute(0, 2, 3, 1), 3, (-1, 5 + self.classes)).flatten(
                1, 3
            )  # [N, h*w*A, 5 + C]
            priors = self.priors.level(level, map)  # [h*w*A, 4]
            centre = (priors[:, :2] + priors[:, 2:]) * 0.5 + (flat[..., :2].sigmoid() - 0.5) * stride
            half = (priors[:, 2:] - priors[:, :2]) * 0.5 * flat[..., 2:4].exp()
            boxes.append(torch.cat([centre - half, centre + half], -1))
            objectness.append(flat[..., 4:5].sigmoid())
            scores.append(flat[..., 5:].sigmoid())
        return torch.cat(boxes, 1), torch.cat(objectness, 1), torch.cat(scores, 1)


class YOLOv3(Detector):
    """YOLOv3."""

    family = "YOLOv3"

    def __init__(self, config: Config) -> None:
        super().__init__()
        model = config["model"]
        self.backbone = build_backbone(model["backbone"])
        self.neck = build_neck(model.get("neck"))
        self.bbox_head = construct("bbox_head", model["bbox_head"], {"YOLOV3Head": YOLOV3Head})
        self.test_cfg = check_test_cfg(test_config(config))
        self.version_3 = is_version_3(config)

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        return self.bbox_head(self.neck(self.backbone(input)))  # type: ignore[no-any-return]

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        # Nothing here is clipped to the image, so its shape does not matter.
        test_cfg = self.test_cfg
        boxes, objectness, scores = self.bbox_head.decode(self.raw(input))
        if test_cfg.get("conf_thr", -1) > 0:
            scores = torch.where(objectness >= test_cfg["conf_thr"], scores, 0)
        # Only MMDetection 3 reads nms_pre here, and min_bbox_size.
        scores = best_pairs(scores, test_cfg["score_thr"], test_cfg.get("nms_pre", -1) if self.version_3 else -1)
        scores = scores * objectness
        if self.version_3 and test_cfg.get("min_bbox_size", -1) >= 0:
            scores = torch.where(larger(boxes, test_cfg["min_bbox_size"]), scores, 0)
        return detections(boxes, scores, test_cfg)
