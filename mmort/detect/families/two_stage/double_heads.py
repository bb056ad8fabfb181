"""Double-Head R-CNN: a Faster R-CNN that classifies by linear layers and corrects boxes by convolutions.

Source: Y. Wu et al., "Rethinking Classification and Localization for Object Detection", CVPR 2020.  Box AP of
MMDetection's R-50-FPN model on COCO val2017: 40.0.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, default, only, part
from mmort.detect.families.two_stage.faster_rcnn import StandardRoIHead
from mmort.detect.parts.backbones.resnet import BlockSettings, Bottleneck
from mmort.detect.parts.heads.box_head import RegionHead, connected, linears
from mmort.detect.parts.layers import ConvModule
from mmort.detect.parts.test_cfg import RCNNEntries
from mmort.detect.parts.two_stage import TwoStageDetector

_BN: Config = {"type": "BN"}


class Widening(nn.Module):
    """A residual block with more channels after it than before."""

    def __init__(self, in_channels: int, channels: int) -> None:
        super().__init__()
        self.conv1 = ConvModule(in_channels, in_channels, 3, padding=1, norm_cfg=_BN)
        self.conv2 = ConvModule(in_channels, channels, 1, norm_cfg=_BN, act_cfg=None)
        self.conv_identity = ConvModule(in_channels, channels, 1, norm_cfg=_BN, act_cfg=None)

    def forward(self, x: Tensor) -> Tensor:
        return (self.conv2(self.conv1(x)) + self.conv_identity(x)).relu()


class DoubleConvFCBBoxHead(RegionHead):
    """Linear layers for the classes, residual blocks for the boxes."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RegionHead.Entries):
        num_convs: int
        num_fcs: int
        in_channels: int = 256
        roi_feat_size: int = 7
        conv_out_channels: int = 1024
        fc_out_channels: int = 1024
        with_avg_pool: bool = only(True)
        conv_cfg: Config | None = None
        norm_cfg: Config = default(_BN)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        width = entries.conv_out_channels
        settings = BlockSettings(conv_cfg=entries.conv_cfg, norm_cfg=entries.norm_cfg)
        self.res_block = Widening(entries.in_channels, width)
        self.conv_branch = nn.Sequential(
            *(Bottleneck(width, width // 4, settings=settings) for _ in range(entries.num_convs))
        )
        pixels = entries.roi_feat_size**2
        self.fc_branch, features = linears(entries.num_fcs, entries.in_channels * pixels, entries.fc_out_channels)
        logits, deltas = self.outputs
        self.fc_cls = nn.Linear(features, logits)
        self.fc_reg = nn.Linear(width, deltas)

    def forward(self, for_classes: Tensor, for_boxes: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [R, classes + others] and deltas [R, 4 or classes * 4] for two times [R, C, h, w]."""
        deltas = self.fc_reg(self.conv_branch(self.res_block(for_boxes)).mean((2, 3)))
        return self.fc_cls(connected(self.fc_branch, for_classes.flatten(1))), deltas


class DoubleHeadRoIHead(StandardRoIHead):
    """Faster R-CNN's second stage, whose boxes come from larger regions."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(StandardRoIHead.Entries):
        bbox_head: DoubleConvFCBBoxHead = part("bbox_head", types={"DoubleConvFCBBoxHead": DoubleConvFCBBoxHead})
        reg_roi_scale_factor: float

    def __init__(self, entries: Entries, test_cfg: RCNNEntries) -> None:
        super().__init__(entries, test_cfg)
        self.scale = entries.reg_roi_scale_factor

    def predict(self, features: list[Tensor], rois: Tensor) -> tuple[Tensor, Tensor]:
        """Return the box head's logits and deltas of regions [R, 5]."""
        for_classes = self.shared_head(self.bbox_roi_extractor(features, rois))
        for_boxes = self.shared_head(self.bbox_roi_extractor(features, rois, self.scale))
        logits, deltas = self.bbox_head(for_classes, for_boxes)
        return logits, deltas


@PARTS.register("detector", "DoubleHeadRoIHead")
class DoubleHeadRCNN(TwoStageDetector):
    """Double-Head R-CNN."""

    family, family_with_masks = "Double-Head R-CNN", "Double-Head Mask R-CNN"
    head = DoubleHeadRoIHead
