"""RPN: the first stage of Faster R-CNN alone, which finds objects without telling their classes.

Source: S. Ren et al., "Faster R-CNN", NeurIPS 2015.  Average recall of 1000 proposals of MMDetection's R-50-FPN
model on COCO val2017: 58.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import PARTS, Parts, Schema
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.heads.rpn_head import ProposalHead
from mmort.detect.parts.test_cfg import check_size_of_original


@dataclass(frozen=True, kw_only=True)
class RPNTestCfg(Schema):
    """The entries of ``test_cfg``."""

    rpn: Config


@PARTS.register("detector", "RPNHead", "GARPNHead", "CascadeRPNHead")
class RPN(Detector):
    """RPN: all detections have the label 0."""

    family = "RPN"
    head_entries, earlier_heads = ("rpn_head",), ()
    renamed_keys = ((r"^bbox_head\.", "rpn_head."),)  # the head's name in MMDetection 3

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        types = ("RPN",)

        type: str
        rpn_head: Config

    entries: Model
    TestCfg = RPNTestCfg
    test_cfg: RPNTestCfg

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.rpn_head: ProposalHead = parts.build("rpn_head", self.entries.rpn_head, test_cfg=self.test_cfg.rpn)
        check_size_of_original("test_cfg.rpn.min_bbox_size", self.rpn_head.test_cfg.min_bbox_size)
        check_size_of_original("test_cfg.rpn.nms.offset", self.rpn_head.test_cfg.nms.offset)

    def name_classes(self, names: Sequence[str]) -> None:
        """Ignore the names of the data set's classes: label 0 of proposals is not one of them."""

    @property
    def heads(self) -> tuple[str, ...]:
        """The layers whose outputs are compared where there are few detections."""
        return tuple(f"rpn_head.{layer}" for layer in self.rpn_head.outputs)

    @property
    def level_counts(self) -> Mapping[str, int]:
        """That of the head's priors."""
        return {"rpn_head": len(self.rpn_head.priors.strides)}

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return level_names(("rpn_cls_score", "rpn_bbox_pred"), len(self.rpn_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the objectness logits, [N, A, h, w] of each level, and then the deltas, [N, A*4, h, w]."""
        return self.rpn_head.raw(self.levels(input), image_limits(input, None))

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        dets, used = self.rpn_head.proposals(self.levels(input), image_limits(input, img_shape))
        scores = dets[..., 4].sigmoid() if self.rpn_head.ranks else dets[..., 4]
        scores = torch.where(used, scores, 0)
        return torch.cat([dets[..., :4], scores[..., None]], 2), torch.where(used, 0, -1)
