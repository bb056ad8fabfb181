"""Mask Scoring R-CNN: a Mask R-CNN whose scores are multiplied by how well it expects its masks to fit.

Source: Z. Huang et al., "Mask Scoring R-CNN", CVPR 2019.  Box and mask AP of MMDetection's caffe R-50-FPN model on COCO
val2017: 38.2 and 36.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.entries import PARTS, Schema, part
from mmort.detect.families.two_stage.faster_rcnn import StandardRoIHead
from mmort.detect.parts.heads.box_head import connected, linears
from mmort.detect.parts.heads.mask_head import FCNMaskHead, own_class
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector, to_rows, used_rows


class MaskIoUHead(nn.Module):
    """The overlap of a mask with its object, from the region's features and the mask.

    `convolution` builds a layer, after which there is a ReLU.
    """

    class_layers: ClassVar = {"fc_mask_iou": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_convs: int = 4
        num_fcs: int = 2
        roi_feat_size: int = 14
        in_channels: int = 256
        conv_out_channels: int = 256
        fc_out_channels: int = 1024
        num_classes: int = 80

    def __init__(self, entries: Entries, convolution: Callable[..., nn.Module] = nn.Conv2d) -> None:
        super().__init__()
        channels = [entries.in_channels + 1] + [entries.conv_out_channels] * entries.num_convs
        strides = [1] * (entries.num_convs - 1) + [2]
        self.convs = nn.ModuleList(
            convolution(inner, outer, 3, stride=stride, padding=1)
            for inner, outer, stride in zip(channels[:-1], channels[1:], strides, strict=True)
        )
        pixels = (entries.roi_feat_size // 2) ** 2
        self.fcs, features = linears(entries.num_fcs, channels[-1] * pixels, entries.fc_out_channels)
        self.fc_mask_iou = nn.Linear(features, entries.num_classes)

    def forward(self, features: Tensor, masks: Tensor) -> Tensor:
        """Return overlaps [R, classes] for features [R, C, h, w] and masks [R, 2 * h, 2 * w] of regions."""
        x = torch.cat([features, functional.max_pool2d(masks[:, None], 2)], 1)
        for conv in self.convs:
            x = conv(x).relu()
        return self.fc_mask_iou(connected(self.fcs, x.flatten(1)))


class MaskScoringRoIHead(StandardRoIHead):
    """Mask R-CNN's second stage, and the masks' overlaps."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        mask_head: FCNMaskHead = part("mask_head")
        mask_iou_head: MaskIoUHead = part("mask_iou_head", types={"MaskIoUHead": MaskIoUHead})

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.mask_iou_head = entries.mask_iou_head

    def with_masks(self, features: list[Tensor], dets: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the detections by descending product of score and overlap, and their masks."""
        rows, rois, classes = used_rows(dets, labels)
        pooled = self.shared_head(self.mask_roi_extractor(features, rois))
        probabilities = self.mask_head(pooled, classes).sigmoid()  # [R, h, w]
        overlaps = own_class(self.mask_iou_head(pooled, probabilities), classes)  # [R]
        return rescored(dets, labels, to_rows(overlaps, rows, labels), to_rows(probabilities, rows, labels))


def rescored(dets: Tensor, labels: Tensor, overlaps: Tensor, masks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return detections and masks by descending product of score and overlap [N, K]."""
    scores = dets[..., 4] * overlaps  # [N, K]; a predicted overlap may be negative
    order = torch.where(labels >= 0, scores, -torch.inf).argsort(dim=1, descending=True, stable=True)
    dets = torch.cat([dets[..., :4], scores[..., None]], 2)
    in_order = [
        tensor.gather(1, order.reshape(*order.shape, *[1] * (tensor.ndim - 2)).expand_as(tensor))
        for tensor in (dets, labels, masks)
    ]
    return in_order[0], in_order[1], in_order[2]


@PARTS.register("detector", "MaskScoringRoIHead")
class MaskScoringRCNN(TwoStageDetector):
    """Mask Scoring R-CNN.

    Its scores are MMDetection 3's.  MMDetection 2 gave boxes the score without the overlap, and masks this one.
    """

    family = family_with_masks = "Mask Scoring R-CNN"
    model_types = ("MaskScoringRCNN",)
    head = MaskScoringRoIHead
