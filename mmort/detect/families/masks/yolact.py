"""YOLACT: a dense head whose detections are sums of shared prototype masks, and a suppression without an order.

Source: D. Bolya et al., "YOLACT: Real-Time Instance Segmentation", ICCV 2019; MMDetection's ``YOLACTHead`` and
``YOLACTProtonet``.  Mask AP of MMDetection's R-50 model on COCO val2017: 29.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import WITH_MASKS, MaskFormat
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import PARTS, Parts, Schema, at_least, nested, part, training_only
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.coders import BoxCoder
from mmort.detect.parts.heads.class_scores import SoftmaxLoss
from mmort.detect.parts.image_masks import of_rows
from mmort.detect.parts.layers import tower
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.selection import best_priors, of_all_levels, take

_ANCHORS = {
    "type": "AnchorGenerator",
    "octave_base_scale": 3,
    "scales_per_octave": 1,
    "ratios": [0.5, 1.0, 2.0],
    "strides": [8, 16, 32, 64, 128],
}


class YOLACTHead(nn.Module):
    """A tower for the classes, the boxes and the prototypes' coefficients."""

    class_layers: ClassVar = {"conv_cls": 1}
    raw_kinds: ClassVar = ("cls_score", "bbox_pred", "coeff_pred")

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int
        in_channels: int
        feat_channels: int = 256
        num_head_convs: int = 1
        num_protos: int = 32
        conv_cfg: Config | None = None
        norm_cfg: Config | None = None
        anchor_generator: Priors = part("prior generator", default=_ANCHORS)
        bbox_coder: BoxCoder = part("box coder", default={"type": "DeltaXYWHBBoxCoder"})
        loss_cls: SoftmaxLoss = nested(SoftmaxLoss, default={})

        ignored: ClassVar = training_only("use_ohem", "reg_decoded_bbox")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.classes, self.prototypes, channels = entries.num_classes, entries.num_protos, entries.feat_channels
        self.priors, self.coder = entries.anchor_generator, entries.bbox_coder
        layer: dict[str, Any] = {"conv_cfg": entries.conv_cfg, "norm_cfg": entries.norm_cfg}
        self.head_convs = tower(entries.in_channels, channels, entries.num_head_convs, **layer)
        anchors = self.priors.num_base_priors[0]
        self.conv_cls, self.conv_reg, self.conv_coeff = (
            nn.Conv2d(channels, anchors * count, 3, padding=1) for count in (self.classes + 1, 4, self.prototypes)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return class logits [N, A*(C+1), h, w], deltas and coefficients, each by level."""
        maps: list[tuple[Tensor, Tensor, Tensor]] = []
        for x in features:
            x = self.head_convs(x)
            maps.append((self.conv_cls(x), self.conv_reg(x), self.conv_coeff(x).tanh()))
        return tuple(map for kind in zip(*maps, strict=True) for map in kind)

    def candidates(self, maps: Sequence[Tensor], nms_pre: int, limits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return boxes [N, P, 4], scores [N, P, C] and coefficients [N, P, prototypes] of each level's best priors."""

        def choose(level: int, logits: Tensor, deltas: Tensor, coefficients: Tensor) -> tuple[Tensor, ...]:
            scores, indices = best_priors(logits, self.classes, nms_pre, "softmax")
            boxes = self.coder.decode(self.priors.level(level, logits)[indices], take(deltas, indices, 4), limits)
            return boxes, scores, take(coefficients, indices, self.prototypes)

        boxes, scores, coefficients = of_all_levels(choose, maps, len(self.priors.strides))
        return boxes, scores, coefficients


class YOLACTProtonet(nn.Module):
    """The prototypes."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        in_channels: int = 256
        proto_channels: Sequence[int | None] = (256, 256, 256, None, 256, 32)
        proto_kernel_sizes: Sequence[int] = (3, 3, 3, -2, 3, 1)
        include_last_relu: bool = True

        ignored: ClassVar = {
            "num_protos": "the last of proto_channels",
            "num_classes": "of the segmentation",
            **training_only("with_seg_branch", "max_masks_to_train"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = entries.in_channels
        for count, size in zip(entries.proto_channels, entries.proto_kernel_sizes, strict=True):
            if size > 0 and count is not None:
                layers.append(nn.Conv2d(channels, count, size, padding=size // 2))
                channels = count
            elif size < 0 and count is None:
                layers.append(nn.Upsample(scale_factor=float(-size), mode="bilinear"))
            else:
                raise ValueError(
                    "detect.build: mask_head.proto_channels must be None exactly where proto_kernel_sizes is negative, "
                    f"got {count} and {size}"
                )
            layers.append(nn.ReLU())
        self.protonet = nn.Sequential(*layers if entries.include_last_relu else layers[:-1])

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        return self.protonet(features[0])


def fast_nms(boxes: Tensor, scores: Tensor, top_k: int, iou_threshold: float) -> tuple[Tensor, Tensor]:
    """Suppress boxes that overlap any better one of their class, be that suppressed or not.

    Parameters
    ----------
    boxes : Tensor, [N, P, 4]
    scores : Tensor, [N, P, C]
    top_k : int
        Only as many boxes of a class take part, the best.
    iou_threshold : float
        Boxes that overlap a better one by more are suppressed.

    Returns
    -------
    scores : Tensor, [N, C, K]
        By class in descending order; 0 for those that are suppressed.
    indices : Tensor, [N, C, K]
        The boxes they belong to.
    """
    best, indices = scores.transpose(1, 2).topk(min(top_k, scores.shape[1]))  # [N, C, K]
    chosen = torch.unflatten(of_rows(boxes, indices.flatten(1)), 1, indices.shape[1:])  # [N, C, K, 4]
    low = torch.maximum(chosen[..., :, None, :2], chosen[..., None, :, :2])
    high = torch.minimum(chosen[..., :, None, 2:], chosen[..., None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)  # [N, C, K, K]
    areas = (chosen[..., 2:] - chosen[..., :2]).prod(-1)
    overlaps = shared / (areas[..., :, None] + areas[..., None, :] - shared).clamp(min=1e-6)
    rank = torch.arange(best.shape[2], device=best.device)
    better = rank[:, None] < rank
    suppressed = ((overlaps > iou_threshold) & better).any(2)
    return torch.where(suppressed, 0, best), indices


def cropped(masks: Tensor, boxes: Tensor, limits: Tensor) -> Tensor:
    """Return masks [N, K, h, w] with 0 more than a cell outside of their boxes [N, K, 4], of images up to `limits`."""
    inside = []
    for axis, size in enumerate((masks.shape[3], masks.shape[2])):
        low, high = (boxes[..., [axis, axis + 2]] / limits[..., [axis, axis]] * size).unbind(2)  # [N, K]
        low = torch.minimum(low, high)  # of sides below 0, which some coders decode, MMDetection keeps the last cells
        cells = torch.arange(size, device=masks.device)
        inside.append((cells >= low[..., None] - 1) & (cells < high[..., None] + 1))  # [N, K, size]
    columns, rows = inside
    return torch.where(rows[..., None] & columns[:, :, None], masks, 0)


@dataclass(frozen=True, kw_only=True)
class YOLACTTestCfg(Schema):
    """The entries of ``test_cfg``."""

    nms_pre: int = -1
    score_thr: float
    iou_thr: float
    top_k: int = at_least(1)
    max_per_img: int = at_least(1, default=100)
    mask_thr: float = 0.5

    ignored: ClassVar = {
        "class_agnostic": "MMDetection does not read it",
        "min_bbox_size": "MMDetection does not read it",
        "mask_thr_binary": "MMDetection reads mask_thr",
        "nms": "MMDetection suppresses by iou_thr and top_k",
    }


@PARTS.register("detector", "YOLACTHead")
class YOLACT(Detector):
    """YOLACT."""

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        neck: nn.Module = part("neck")
        bbox_head: YOLACTHead = part("bbox_head", types={"YOLACTHead": YOLACTHead})
        mask_head: YOLACTProtonet = part("mask_head", types={"YOLACTProtonet": YOLACTProtonet})

        ignored: ClassVar = {**ModelEntries.ignored, **training_only("segm_head")}

    family = "YOLACT"
    TestCfg = YOLACTTestCfg
    test_cfg: YOLACTTestCfg
    bbox_head: YOLACTHead
    mask_head: YOLACTProtonet
    heads = ("bbox_head", "mask_head")
    unused_weights = "mask_head.segm_branch.", "segm_head."  # of a segmentation in training

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        self.output_names = WITH_MASKS
        threshold = self.test_cfg.mask_thr if config.version == 3 else 0.5  # MMDetection 2 reads none
        self.mask_format = MaskFormat("image", threshold, rescaling="stretch")

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the heads' maps."""
        return *level_names(self.bbox_head.raw_kinds, len(self.bbox_head.priors.strides)), "prototypes"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the heads' maps, the prototypes last."""
        features = self.levels(input)
        return *self.bbox_head(features), self.mask_head(features)

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits, test_cfg = image_limits(input, img_shape), self.test_cfg
        *maps, prototypes = self.raw(input)
        boxes, scores, coefficients = self.bbox_head.candidates(maps, test_cfg.nms_pre, limits)
        scores, indices = fast_nms(boxes, scores, test_cfg.top_k, test_cfg.iou_thr)  # [N, C, K']
        per_class, flat = scores.shape[2], torch.where(scores > test_cfg.score_thr, scores, 0).flatten(1)
        scores, chosen = flat.topk(min(test_cfg.max_per_img, flat.shape[1]))  # [N, K]
        used = scores > 0
        rows = indices.flatten(1).gather(1, chosen)
        boxes = torch.where(used[..., None], of_rows(boxes, rows), 0)
        masks = (of_rows(coefficients, rows) @ prototypes.flatten(2)).sigmoid()  # [N, K, h * w]
        masks = cropped(torch.unflatten(masks, 2, prototypes.shape[2:]), boxes, limits)
        dets = torch.cat([boxes, scores[..., None]], 2)
        return dets, torch.where(used, chosen // per_class, -1), torch.where(used[..., None, None], masks, 0)
