"""Dynamic R-CNN: a Faster R-CNN trained with thresholds that rise.

Source: H. Zhang et al., "Dynamic R-CNN", ECCV 2020.  Box AP of MMDetection's R-50-FPN model on COCO val2017: 38.9.
"""

from __future__ import annotations

from mmort.detect.families.faster_rcnn import FasterRCNN


class DynamicRCNN(FasterRCNN):
    """Dynamic R-CNN: what differs from Faster R-CNN is the training."""

    family = family_with_masks = "Dynamic R-CNN"
