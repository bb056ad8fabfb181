"""Detectors with several dense heads, of which the boxes of one are the priors of the next: one for each location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.detector import Detector, level_names
from mmort.detect.entries import Parts, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import candidates, version_of
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedDenseEntries
from mmort.detect.parts.single_stage import DenseHead

LOCATIONS = {"type": "PseudoAnchorGenerator", "strides": [8, 16, 32, 64, 128]}
"""The prior generator of heads whose priors are boxes."""


class FeatureRefinement(nn.Module):
    """Base of the modules that change features by the boxes of the head before."""

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        """Return features [N, C, h, w] of features [N, C, h, w] and their boxes [N, h * w, 5], by level."""
        raise NotImplementedError


class RefiningDetector(Detector):
    """Base of these detectors: a backbone, a neck, a first head, and heads whose priors are boxes.

    The entries of the model are those of MMRotate 1's ``RefineSingleStageDetector``, and so are the modules' names.

    Attributes
    ----------
    first_heads, next_heads : dict of str to class
        The types that heads may have.  The next ones have a `FeatureRefinement`, ``feat_refine_module``.
    """

    model_entries: ClassVar[tuple[str, ...]] = ("backbone", "neck", "bbox_head_init", "bbox_head_refine")
    first_heads: ClassVar[Mapping[str, type[DenseHead]]]
    next_heads: ClassVar[Mapping[str, type[DenseHead]]]

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__()
        model = self.entries_of_version_1(config.model)
        heads = model["bbox_head_refine"]
        if not isinstance(heads, list) or not heads:
            raise ValueError("detect.build: bbox_head_refine must be a list with at least one dict")
        self.backbone: nn.Module = parts.build("backbone", model["backbone"])
        self.neck: nn.Module = parts.build("neck", model["neck"])
        self.bbox_head_init: DenseHead = parts.build("bbox_head_init", model["bbox_head_init"], self.first_heads)
        self.bbox_head_refine = nn.ModuleList(parts.build("bbox_head_refine", head, self.next_heads) for head in heads)
        self.test_cfg = read_entries("test_cfg", RotatedDenseEntries, config.test_cfg)
        self.by_pairs = config.version == 3
        self.angle_version = version_of(self.last_head)

    @staticmethod
    def entries_of_version_1(model: Config) -> Config:
        """Return a model whose entries may be those of MMRotate 0 by MMRotate 1's names."""
        return model

    @property
    def last_head(self) -> DenseHead:
        """The head whose boxes are detected."""
        head = self.bbox_head_refine[-1]
        assert isinstance(head, DenseHead)
        return head

    @property
    def heads(self) -> tuple[str, ...]:
        """The head whose outputs are compared where there are few detections."""
        return (f"bbox_head_refine.{len(self.bbox_head_refine) - 1}",)

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the last head's maps."""
        return level_names(self.last_head.raw_kinds, len(self.last_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the last head's maps, by kind and level."""
        return self.refined(input)[1]

    def refined(self, input: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return the boxes that the last head reads, [N, h * w, 5] by level, and its maps."""
        features: Sequence[Tensor] = self.neck(self.backbone(input))
        for entry, of_stage in (("bbox_head_init", self.bbox_head_init), ("bbox_head_refine", self.last_head)):
            of_stage.priors.check_levels(entry, features)
        boxes = first_boxes(self.bbox_head_init, self.bbox_head_init(features))
        maps: tuple[Tensor, ...] = ()
        heads: list[Any] = list(self.bbox_head_refine)
        for stage, head in enumerate(heads):
            if stage:
                boxes = refined_boxes(heads[stage - 1], maps, boxes)
            maps = head(head.feat_refine_module(features, boxes))
        return boxes, maps

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        boxes, maps = self.refined(input)
        limits = image_limits(input, img_shape)
        chosen = candidates(self.last_head, self.test_cfg, maps, limits, boxes, by_pairs=self.by_pairs)
        return rotated_detections(*chosen, self.test_cfg)


def first_boxes(head: DenseHead, maps: Sequence[Tensor]) -> list[Tensor]:
    """Return the boxes of a head by level, [N, h * w, 5]: at each location that of the anchor with the best class.

    Their centres are not clipped.
    """
    coder, levels = head.coder, len(head.priors.strides)
    assert isinstance(coder, RotatedBoxCoder)
    boxes = []
    for level in range(levels):
        logits, regressed = maps[level], maps[levels + level]
        numbers = torch.unflatten(regressed, 1, (-1, head.box_channels))  # [N, A, 5, h, w]
        priors = torch.unflatten(head.priors.level(level, logits), 0, (-1, numbers.shape[1]))  # [h * w, A, 5]
        numbers = numbers.flatten(3).permute(0, 3, 1, 2)  # [N, h * w, A, 5]
        if head.priors.num_base_priors[level] == 1:
            boxes.append(coder.decode(priors[:, 0], numbers[:, :, 0], None))
            continue
        best = torch.unflatten(logits, 1, (-1, head.classes)).amax(2).flatten(2).argmax(1)[..., None, None]
        best = best.expand(-1, -1, 1, head.box_channels)  # [N, h * w, 1, 5]
        priors = priors.expand_as(numbers).gather(2, best)[:, :, 0]
        boxes.append(coder.decode(priors, numbers.gather(2, best)[:, :, 0], None))
    return boxes


def refined_boxes(head: DenseHead, maps: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
    """Return the boxes of a head with one prior in a location, [N, h * w, 5] by level, whose priors are `boxes`."""
    coder = head.coder
    assert isinstance(coder, RotatedBoxCoder)
    regressed = (map.flatten(2).transpose(1, 2) for map in maps[len(boxes) :])  # [N, h * w, 5]
    return [coder.decode(own, numbers, None) for own, numbers in zip(boxes, regressed, strict=True)]
