"""PointRend: a Mask R-CNN whose masks are refined at the points where they are least certain.

Source: A. Kirillov et al., "PointRend", CVPR 2020.  Box and mask AP of MMDetection's R-50-FPN model on COCO val2017:
38.4 and 36.3.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.detector import Config, construct, require
from mmort.detect.faster_rcnn import FasterRCNN, StandardRoIHead
from mmort.detect.layers import ConvModule
from mmort.detect.mask_head import own_class


class CoarseMaskHead(nn.Module):
    """One small mask for each class, from linear layers.

    The arguments are the entries of the config's ``mask_head``.
    """

    def __init__(
        self,
        num_convs: int = 0,
        num_fcs: int = 2,
        fc_out_channels: int = 1024,
        downsample_factor: int = 2,
        roi_feat_size: int = 14,
        in_channels: int = 256,
        conv_out_channels: int = 256,
        num_classes: int = 80,
        conv_cfg: Config | None = None,
        norm_cfg: Config | None = None,
    ) -> None:
        super().__init__()
        self.classes = num_classes
        self.size = roi_feat_size // downsample_factor
        layer: Config = {"conv_cfg": conv_cfg, "norm_cfg": norm_cfg}
        self.convs = nn.ModuleList()
        channels = in_channels
        for _ in range(num_convs):
            self.convs.append(ConvModule(channels, conv_out_channels, 3, padding=1, **layer))
            channels = conv_out_channels
        self.downsample_conv = ConvModule(
            channels, conv_out_channels, downsample_factor, stride=downsample_factor, **layer
        )
        features = conv_out_channels * self.size**2
        self.fcs = nn.ModuleList()
        for _ in range(num_fcs):
            self.fcs.append(nn.Linear(features, fc_out_channels))
            features = fc_out_channels
        self.fc_logits = nn.Linear(features, num_classes * self.size**2)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits [R, classes, h, w] of features [R, C, h', w']."""
        x = features
        for conv in self.convs:
            x = conv(x)
        x = self.downsample_conv(x).flatten(1)
        for layer in self.fcs:
            x = layer(x).relu()
        return self.fc_logits(x).reshape(-1, self.classes, self.size, self.size)  # type: ignore[no-any-return]


class MaskPointHead(nn.Module):
    """One logit for each class at a point, from the features there and what the coarse mask says of it.

    The arguments are the entries of the config's ``point_head``.
    """

    def __init__(
        self,
        num_classes: int,
        num_fcs: int = 3,
        in_channels: int = 256,
        fc_channels: int = 256,
        class_agnostic: bool = False,
        coarse_pred_each_layer: bool = True,
    ) -> None:
        super().__init__()
        self.repeat = coarse_pred_each_layer
        channels = in_channels + num_classes
        self.fcs = nn.ModuleList()
        for _ in range(num_fcs):
            self.fcs.append(ConvModule(channels, fc_channels, 1, conv_cfg={"type": "Conv1d"}))
            channels = fc_channels + (num_classes if self.repeat else 0)
        self.fc_logits = nn.Conv1d(channels, 1 if class_agnostic else num_classes, 1)

    def forward(self, fine: Tensor, coarse: Tensor) -> Tensor:
        """Return logits [R, classes, Q] of points whose features are [R, C, Q] and coarse logits [R, classes, Q]."""
        x = torch.cat([fine, coarse], 1)
        for layer in self.fcs:
            x = layer(x)
            if self.repeat:
                x = torch.cat([x, coarse], 1)
        return self.fc_logits(x)  # type: ignore[no-any-return]


class PointRendRoIHead(StandardRoIHead):
    """Coarse masks from one feature level, then refined.

    The arguments are the entries of the config's ``roi_head`` and, as `test_cfg`, its ``test_cfg.rcnn``.
    """

    def __init__(
        self,
        bbox_roi_extractor: Config,
        bbox_head: Config,
        test_cfg: Config,
        mask_roi_extractor: Config,
        mask_head: Config,
        point_head: Config,
    ) -> None:
        super().__init__(bbox_roi_extractor, bbox_head, test_cfg)
        self.family = "PointRend"
        self.with_mask = True
        layer, strides = mask_roi_extractor["roi_layer"], mask_roi_extractor["featmap_strides"]
        require("roi_layer of PointRend's masks", layer["type"], "SimpleRoIAlign")
        if len(strides) != 1 or not layer.get("aligned", True):
            raise ValueError("detect.build: mask_roi_extractor must have one stride, and its roi_layer be aligned")
        self.stride: int = strides[0]
        self.grid: int = layer["output_size"]
        self.mask_head = construct("mask_head", mask_head, {"CoarseMaskHead": CoarseMaskHead})
        self.point_head = construct("point_head", point_head, {"MaskPointHead": MaskPointHead})

    def probabilities(self, features: list[Tensor], rois: Tensor, classes: Tensor) -> Tensor:
        """Return the masks [R, h, w] of regions [R, 5] whose classes [R] are known."""
        level, images = features[0], rois[:, 0].long()
        corner, size = rois[:, None, 1:3], rois[:, None, 3:5] - rois[:, None, 1:3]  # [R, 1, 2]

        def fine(points: Tensor) -> Tensor:  # points [R, Q, 2] of a box whose sides are 1 -> [R, C, Q]
            return sample(level, images, (corner + points * size) / self.stride)

        cells = (torch.arange(self.grid, device=rois.device) + 0.5) / self.grid
        x, y = cells.repeat(self.grid), cells.repeat_interleave(self.grid)  # [grid*grid], row by row
        pooled = fine(torch.stack([x, y], 1)[None])  # [R, C, grid*grid]
        coarse = self.mask_head(pooled.reshape(*pooled.shape[:2], self.grid, self.grid))  # [R, classes, 7, 7]
        count, factor = self.test_cfg["subdivision_num_points"], self.test_cfg["scale_factor"]
        steps = self.test_cfg["subdivision_steps"]
        masks = torch.arange(rois.shape[0], device=rois.device)
        mask = own_class(coarse, classes)[:, None]  # [R, 1, h, w]; the other classes' masks are never looked at
        for step in range(steps):
            mask = functional.interpolate(mask, scale_factor=factor, mode="bilinear", align_corners=False)
            height, width = mask.shape[2:]
            if count >= factor**2 * height * width and step < steps - 1:
                continue  # the next step refines as many points as this mask has
            places = (-mask.abs()).flatten(1).topk(min(count, height * width)).indices  # [R, Q]
            points = torch.stack([(places % width + 0.5) / width, (places // width + 0.5) / height], 2)  # [R, Q, 2]
            said = sample(coarse, masks, points * self.mask_head.size)  # [R, classes, Q]
            logits = own_class(self.point_head(fine(points), said), classes)  # [R, Q]
            mask = mask.flatten(1).scatter(1, places, logits).reshape(-1, 1, height, width)
        return mask[:, 0].sigmoid()


class PointRend(FasterRCNN):
    """PointRend."""

    roi_heads: ClassVar[dict[str, Any]] = {"PointRendRoIHead": PointRendRoIHead}


def sample(features: Tensor, images: Tensor, points: Tensor) -> Tensor:
    """Sample features between pixels, linearly; outside the map they are 0.

    Parameters
    ----------
    features : Tensor, [N, C, h, w]
    images : Tensor of int64, [R]
        From which of the N each row of points samples.
    points : Tensor, [R, Q, 2]
        x, y in pixels, whose centres are at their index + 0.5.

    Returns
    -------
    Tensor, [R, C, Q]
    """
    pixels = features.permute(0, 2, 3, 1).flatten(0, 2)  # [N*h*w, C]: a pixel is one piece of memory
    columns, rows = (_neighbours(points[..., axis], features.shape[3 - axis]) for axis in (0, 1))
    parts: list[Tensor] = []
    for y, y_weight in rows:
        for x, x_weight in columns:
            place = (images[:, None] * features.shape[2] + y) * features.shape[3] + x  # [R, Q]
            values = pixels.index_select(0, place.flatten()).reshape(*place.shape, -1)  # [R, Q, C]
            parts.append(values * (y_weight * x_weight)[..., None])
    return sum(parts[1:], parts[0]).transpose(1, 2)


def _neighbours(position: Tensor, size: int) -> list[tuple[Tensor, Tensor]]:
    """Return the indices of the two pixels around a position along an axis, and their weights; 0 outside."""
    low = (position - 0.5).floor()
    share = position - 0.5 - low
    found = []
    for index, weight in ((low.long(), 1 - share), (low.long() + 1, share)):
        inside = index.clamp(0, size - 1)
        found.append((inside, torch.where(inside == index, weight, 0)))
    return found
