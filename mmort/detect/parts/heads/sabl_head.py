"""The head that classifies a region, and finds each side of its box in the features of that side.

Source: J. Wang et al., "Side-Aware Boundary Localization for More Precise Object Detection", ECCV 2020; MMDetection's
``SABLHead``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, at_least, only, part
from mmort.detect.parts.buckets import BucketingBBoxCoder
from mmort.detect.parts.heads.box_head import RegionHead, connected, linears
from mmort.detect.parts.layers import ConvModule

_CODER = {"type": "BucketingBBoxCoder", "num_buckets": 14, "scale_factor": 1.7}


@PARTS.register("bbox_head", "SABLHead")
class SABLHead(RegionHead):
    """Linear layers for the classes, and for each column and row a bucket's logit and a shift."""

    coder: BucketingBBoxCoder

    @dataclass(frozen=True, kw_only=True)
    class Entries(RegionHead.Entries):
        cls_in_channels: int = 256
        reg_in_channels: int = 256
        roi_feat_size: int = 7
        reg_feat_up_ratio: int = at_least(2, default=2)
        reg_pre_kernel: int = 3
        reg_post_kernel: int = 3
        reg_pre_num: int = 2
        reg_post_num: int = 1
        cls_out_channels: int = 1024
        reg_offset_out_channels: int = 256
        reg_cls_out_channels: int = 256
        num_cls_fcs: int = 1
        num_reg_fcs: int = 0
        norm_cfg: Config | None = None
        reg_class_agnostic: bool = only(True)
        bbox_coder: BucketingBBoxCoder = part(
            "box coder", types={"BucketingBBoxCoder": BucketingBBoxCoder}, default=_CODER
        )

        def check(self, name: str) -> None:
            """Raise a ValueError if there is not one column and one row for each bucket."""
            if self.roi_feat_size * self.reg_feat_up_ratio != self.bbox_coder.count:
                raise ValueError(
                    f"detect.build: roi_feat_size * reg_feat_up_ratio of {name} must be num_buckets of its bbox_coder, "
                    f"{self.bbox_coder.count}, got {self.roi_feat_size} * {self.reg_feat_up_ratio}"
                )

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        ratio, channels = entries.reg_feat_up_ratio, entries.reg_in_channels
        self.cls_fcs, features = linears(
            entries.num_cls_fcs, entries.cls_in_channels * entries.roi_feat_size**2, entries.cls_out_channels
        )
        self.fc_cls = nn.Linear(features, self.outputs[0])
        self.upsample_x, self.upsample_y = (nn.ConvTranspose1d(channels, channels, ratio, ratio) for _ in range(2))
        before, after, norm_cfg = entries.reg_pre_kernel, entries.reg_post_kernel, entries.norm_cfg
        self.reg_pre_convs = _convolutions(entries.reg_pre_num, channels, (before, before), norm_cfg)
        self.reg_post_conv_xs = _convolutions(entries.reg_post_num, channels, (1, after), norm_cfg)
        self.reg_post_conv_ys = _convolutions(entries.reg_post_num, channels, (after, 1), norm_cfg)
        self.reg_conv_att_x, self.reg_conv_att_y = (nn.Conv2d(channels, 1, 1) for _ in range(2))
        self.reg_cls_fcs, for_bucket = linears(entries.num_reg_fcs, channels, entries.reg_cls_out_channels)
        self.reg_offset_fcs, for_shift = linears(entries.num_reg_fcs, channels, entries.reg_offset_out_channels)
        self.fc_reg_cls, self.fc_reg_offset = nn.Linear(for_bucket, 1), nn.Linear(for_shift, 1)

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [R, classes + 1] and what the coder takes, [R, 8 * side_count], for features [R, C, h, w]."""
        logits = self.fc_cls(connected(self.cls_fcs, features.flatten(1)))
        x = self.reg_pre_convs(features)
        columns = self.reg_post_conv_xs(self._pooled(x, self.reg_conv_att_x(x), 2))[:, :, 0]  # [R, C, w]
        rows = self.reg_post_conv_ys(self._pooled(x, self.reg_conv_att_y(x), 3))[..., 0]  # [R, C, h]
        lines = torch.stack([self.upsample_x(columns), self.upsample_y(rows)], 1).relu().transpose(2, 3)  # [R, 2, n, C]
        buckets = self.fc_reg_cls(connected(self.reg_cls_fcs, lines))[..., 0]  # [R, 2, n]
        shifts = self.fc_reg_offset(connected(self.reg_offset_fcs, lines))[..., 0]
        return logits, torch.cat([self._by_side(buckets), self._by_side(shifts)], 1)

    def rescored(self, scores: Tensor, regressed: Tensor) -> Tensor:
        return scores * self.coder.confidence(regressed)

    def _pooled(self, x: Tensor, attention: Tensor, axis: int) -> Tensor:
        """Return the mean of maps [R, C, h, w] over an axis, which stays, weighted by the sigmoid of [R, 1, h, w]."""
        # The sigmoid's logarithm: of logits below -18, ONNX Runtime's sigmoid is a constant, and torch's may be 0.
        weights = (-functional.softplus(-attention)).softmax(axis)
        return (x * weights).sum(axis, keepdim=True)

    def _by_side(self, lines: Tensor) -> Tensor:
        """Return numbers of columns and rows [R, 2, n] by side, each from the outside, [R, 4 * side_count]."""
        count = self.coder.side_count
        return torch.stack([lines[..., :count], lines.flip(-1)[..., :count]], 2).flatten(1)


def _convolutions(count: int, channels: int, kernel: tuple[int, int], norm_cfg: Config | None) -> nn.Sequential:
    """Return convolutions in a row that keep the size of their maps."""
    padding = kernel[0] // 2, kernel[1] // 2
    return nn.Sequential(
        *(ConvModule(channels, channels, kernel, padding=padding, norm_cfg=norm_cfg) for _ in range(count))
    )
