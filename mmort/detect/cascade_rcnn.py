"""Cascade R-CNN, and Cascade Mask R-CNN: several second stages, each working on the boxes of the one before.

Source: Z. Cai and N. Vasconcelos, "Cascade R-CNN", CVPR 2018.  Box AP (and mask AP) of MMDetection's R-50-FPN models
on COCO val2017: 40.3; 41.2 (35.9).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor, nn

from mmort.detect.box_head import build_box_head
from mmort.detect.detector import Config
from mmort.detect.faster_rcnn import FasterRCNN, StandardRoIHead
from mmort.detect.mask_head import build_mask_head
from mmort.detect.roi_extractor import build_roi_extractor, regions


class CascadeRoIHead(StandardRoIHead):
    """One head of each kind for every stage.

    The arguments are the entries of the config's ``roi_head`` and, as `test_cfg`, its ``test_cfg.rcnn``.
    """

    def __init__(
        self,
        num_stages: int,
        bbox_roi_extractor: Config | list[Config],
        bbox_head: Config | list[Config],
        test_cfg: Config,
        mask_roi_extractor: Config | list[Config] | None = None,
        mask_head: Config | list[Config] | None = None,
    ) -> None:
        nn.Module.__init__(self)
        self.family = "Cascade R-CNN" if mask_head is None else "Cascade Mask R-CNN"
        self.test_cfg = test_cfg
        self.with_mask = mask_head is not None
        self.bbox_roi_extractor = _for_each(num_stages, build_roi_extractor, bbox_roi_extractor)
        self.bbox_head = _for_each(num_stages, build_box_head, bbox_head)
        if mask_head is not None:
            extractors = mask_roi_extractor or bbox_roi_extractor
            self.mask_roi_extractor = _for_each(num_stages, build_roi_extractor, extractors)
            self.mask_head = _for_each(num_stages, build_mask_head, mask_head)

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets and labels as `StandardRoIHead` does; the classes are those of the mean of all stages' logits."""
        batch = proposals.shape[:2]
        boxes, all_logits = proposals, []
        last = len(self.bbox_head) - 1
        for stage, (extractor, head) in enumerate(zip(self.bbox_roi_extractor, self.bbox_head, strict=True)):
            logits, deltas = (output.reshape(*batch, -1) for output in head(extractor(features, regions(boxes))))
            all_logits.append(logits)  # [N, P, classes + 1]
            if stage < last:
                boxes = head.refine(boxes, logits, deltas, limits)  # [N, P, 4]
        logits = _mean(all_logits)
        return self.bbox_head[last].detect(  # type: ignore[no-any-return]
            boxes, used, logits, deltas, limits, self.test_cfg
        )

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the mean of the stages' masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        heads = zip(self.mask_roi_extractor, self.mask_head, strict=True)
        return _mean([head(extractor(features, rois), classes).sigmoid() for extractor, head in heads])


class CascadeRCNN(FasterRCNN):
    """Cascade R-CNN, or Cascade Mask R-CNN if the config has mask heads."""

    roi_heads: ClassVar[dict[str, Any]] = {"CascadeRoIHead": CascadeRoIHead}


def _for_each(stages: int, build: Callable[[Config], nn.Module], config: Config | list[Config]) -> nn.ModuleList:
    """Build one module for each stage, of its own config or of one for all."""
    configs = config if isinstance(config, list) else [config] * stages
    return nn.ModuleList(build(each) for each in configs)


def _mean(tensors: list[Tensor]) -> Tensor:
    return sum(tensors[1:], tensors[0]) / len(tensors)
