"""Faster R-CNN, and Mask R-CNN, which adds a mask head.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015; K. He et al., "Mask R-CNN", ICCV 2017.  Box AP (and mask AP) of
MMDetection's R-50-FPN models on COCO val2017: 37.4; 38.2 (34.7).
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.backbones import build_backbone
from mmort.detect.box_head import build_box_head
from mmort.detect.detector import Config, Detector, construct, image_limits, require, test_config
from mmort.detect.mask_head import build_mask_head
from mmort.detect.necks import build_neck
from mmort.detect.roi_extractor import build_roi_extractor, regions
from mmort.detect.rpn import build_rpn_head
from mmort.detect.selection import check_test_cfg
from mmort.detect.shared_head import build_shared_head


class StandardRoIHead(nn.Module):
    """The second stage: what is in the proposals.

    The arguments are the entries of the config's ``roi_head`` and, as `test_cfg`, its ``test_cfg.rcnn``.
    """

    # Modules; lists of them, one for each stage, in a cascade.
    bbox_roi_extractor: Any
    bbox_head: Any
    mask_roi_extractor: Any
    mask_head: Any

    def __init__(
        self,
        bbox_roi_extractor: Config,
        bbox_head: Config,
        test_cfg: Config,
        mask_roi_extractor: Config | None = None,
        mask_head: Config | None = None,
        shared_head: Config | None = None,
    ) -> None:
        super().__init__()
        self.family = "Faster R-CNN" if mask_head is None else "Mask R-CNN"
        self.test_cfg = test_cfg
        self.with_mask = mask_head is not None
        self.shared_head = build_shared_head(shared_head)
        self.bbox_roi_extractor = build_roi_extractor(bbox_roi_extractor)
        self.bbox_head = build_box_head(bbox_head)
        if mask_head is not None:
            self.mask_roi_extractor = build_roi_extractor(mask_roi_extractor or bbox_roi_extractor)
            self.mask_head = build_mask_head(mask_head)

    def detect(self, features: list[Tensor], proposals: Tensor, used: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return dets [N, K, 5] and labels [N, K] of proposals [N, P, 4], of which `used` [N, P] says which count."""
        logits, deltas = self.bbox_head(self.shared_head(self.bbox_roi_extractor(features, regions(proposals))))
        batch = proposals.shape[:2]
        return self.bbox_head.detect(  # type: ignore[no-any-return]
            proposals, used, logits.reshape(*batch, -1), deltas.reshape(*batch, -1), limits, self.test_cfg
        )

    def mask(self, features: list[Tensor], dets: Tensor, labels: Tensor) -> Tensor:
        """Return the masks of detections, [N, K, h, w]: probabilities over the area of each box, zeros if not used."""
        batch = labels.shape
        labels = labels.flatten()
        # Only detections are worth the time.  The first row always takes part: no tensor below is ever empty.
        rows = torch.nonzero((labels >= 0) | (torch.arange(labels.shape[0], device=labels.device) == 0))[:, 0]  # [R]
        classes = labels.index_select(0, rows)
        rois = regions(dets[..., :4]).index_select(0, rows)  # [R, 5]
        found = self.probabilities(features, rois, classes.clamp(min=0))  # [R, h, w]
        found = torch.where(classes[:, None, None] >= 0, found, 0)
        masks = found.new_zeros(labels.shape[0], *found.shape[1:]).index_put((rows,), found)
        return masks.reshape(*batch, *found.shape[1:])

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        pooled = self.shared_head(self.mask_roi_extractor(features, rois))
        return self.mask_head(pooled, classes).sigmoid()  # type: ignore[no-any-return]


class FasterRCNN(Detector):
    """Proposals, then what is in them: the frame of all two-stage detectors.

    With `StandardRoIHead` it is Faster R-CNN, or Mask R-CNN if the config has a mask head.
    """

    roi_heads: ClassVar[dict[str, Any]] = {"StandardRoIHead": StandardRoIHead}

    def __init__(self, config: Config) -> None:
        super().__init__()
        model, test_cfg = config["model"], test_config(config)
        require("model.type", model["type"], "FasterRCNN", "MaskRCNN", "CascadeRCNN", "PointRend", "TwoStageDetector")
        self.backbone = build_backbone(model["backbone"])
        self.neck = build_neck(model.get("neck"))
        self.rpn_head = build_rpn_head(model["rpn_head"], test_cfg["rpn"])
        roi_head = {**model["roi_head"], "test_cfg": check_test_cfg(test_cfg["rcnn"])}
        self.roi_head = construct("roi_head", roi_head, self.roi_heads)
        self.family = self.roi_head.family

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the first stage's objectness logits, [N, A, h, w] of each level, and then its deltas, [N, A*4, h, w].

        The second stage has no outputs without proposals, and they are post-processing.
        """
        logits, deltas = self.rpn_head.raw(self.neck(self.backbone(input)))
        return *logits, *deltas

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:  # noqa: D102
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        features = self.neck(self.backbone(input))  # by level, [N, C, h, w]
        proposals, used = self.rpn_head(features, limits)  # [N, P, 4], [N, P]
        dets, labels = self.roi_head.detect(features, proposals, used, limits)  # [N, K, 5], [N, K]
        if not self.roi_head.with_mask:
            return dets, labels
        return dets, labels, self.roi_head.mask(features, dets, labels)  # [N, K, h, w]
