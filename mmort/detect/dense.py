"""What detectors with dense heads have in common: a class and a box for every prior of every level, then suppression.

FCOS, FSAF, RetinaNet and SSD are this with different heads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.backbones import build_backbone
from mmort.detect.detector import Config, Detector, construct, image_limits, is_version_3, test_config
from mmort.detect.necks import build_neck
from mmort.detect.selection import best_pairs, best_priors, check_test_cfg, detections, larger, take


class DenseHead(nn.Module):
    """What a head must have.

    Attributes
    ----------
    classes : int
        Without a background.
    softmax : bool
        Classes exclude each other, and the last of them is the background.
    priors, coder : torch.nn.Module
        As `build_priors` and `build_box_coder` return them.
    """

    classes: int
    softmax: bool
    priors: Any
    coder: Any

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return logits of the classes [N, A*C, h, w] by level, then what the coder decodes [N, A*4, h, w] by level.

        Behind them, if the head has it, the logit of a factor of the scores [N, A, h, w] by level.
        """
        raise NotImplementedError


class DenseDetector(Detector):
    """A backbone, a neck and a dense head.

    Parameters
    ----------
    config : dict
        The whole config.
    heads : dict of str to class
        The head's classes by their types.
    """

    def __init__(self, config: Config, heads: dict[str, Any]) -> None:
        super().__init__()
        model = config["model"]
        self.backbone = build_backbone(model["backbone"])
        self.neck = build_neck(model.get("neck"))
        self.bbox_head: DenseHead = construct("bbox_head", model["bbox_head"], heads)
        self.test_cfg = check_test_cfg(test_config(config))
        # Before version 3 MMDetection left dense heads' boxes without area where they were.
        self.min_size: float = self.test_cfg.get("min_bbox_size", -1) if is_version_3(config) else -1

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:  # noqa: D102
        return self.bbox_head(self.neck(self.backbone(input)))  # type: ignore[no-any-return]

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        head, test_cfg = self.bbox_head, self.test_cfg
        maps = self.raw(input)
        levels = len(head.priors.strides)
        chosen: list[tuple[Tensor, Tensor, Tensor]] = []
        for level in range(levels):
            logits, regressed = maps[level], maps[levels + level]
            scores, places = best_priors(logits, head.classes, test_cfg.get("nms_pre", -1), head.softmax)
            scores = best_pairs(scores, test_cfg["score_thr"], test_cfg.get("nms_pre", -1))  # [N, K, C]
            if len(maps) > 2 * levels:
                # Behind the threshold, so a detection's score may be below it.
                scores = scores * take(maps[2 * levels + level], places, 1).sigmoid()
            chosen.append((scores, take(regressed, places, 4), head.priors.level(level, logits)[places]))
        scores, regressed, priors = (torch.cat(each, 1) for each in zip(*chosen, strict=True))  # [N, all K, ...]
        boxes = head.coder.decode(priors, regressed, image_limits(input, img_shape))  # [N, all K, 4]
        if self.min_size >= 0:
            scores = torch.where(larger(boxes, self.min_size), scores, 0)
        return detections(boxes, scores, test_cfg)
