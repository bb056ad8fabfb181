"""Detectors with several dense heads, of which the boxes of one are the priors of the next: one for each location."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.detect.detector import Detector, ModelEntries, level_names
from mmort.detect.entries import Parts, Schema, part, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import candidates, require_sigmoid, version_of
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedDenseEntries
from mmort.detect.parts.single_stage import DenseHead

LOCATIONS = {"type": "PseudoAnchorGenerator", "strides": [8, 16, 32, 64, 128]}
"""The prior generator of heads whose priors are boxes."""


def renamed(module: Config, **names: str) -> Config:
    """Return the config of MMRotate 0's module that changes features with MMRotate 1's names."""
    names["featmap_strides"] = "strides"
    return {names.get(key, key): value for key, value in module.items()}


class FeatureRefinement(nn.Module):
    """Base of the modules that change features by the boxes of the head before.

    Attributes
    ----------
    strides : sequence of float
        Of the levels.
    """

    strides: Sequence[float]

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        """Return features [N, C, h, w] of features [N, C, h, w] and their boxes [N, h * w, 5], by level."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Stages(Schema):
    """The entries of MMRotate 0's ``model`` that MMRotate 1 has in its heads."""

    def heads(self) -> tuple[Config, Sequence[Config]]:
        """Return the configs of the first head and of the next ones, as MMRotate 1 has them."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class RefiningModel(ModelEntries):
    """The entries of ``model``, by MMRotate 1's names.

    Attributes
    ----------
    Stages : subclass of Stages
        What MMRotate 0 has instead of the heads.
    """

    Stages: ClassVar[type[Stages]]

    neck: nn.Module = part("neck")
    bbox_head_init: Config
    bbox_head_refine: Sequence[Config]

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Give the heads what MMRotate 0 has beside them."""
        if "bbox_head_refine" in config:
            return config
        names = cls.Stages.__dataclass_fields__
        first, following = read_entries(name, cls.Stages, {key: config[key] for key in config if key in names}).heads()
        remaining = {key: config[key] for key in config if key not in names}
        return {**remaining, "bbox_head_init": first, "bbox_head_refine": following}


class RefiningDetector(Detector):
    """Base of these detectors: a backbone, a neck, a first head, and heads whose priors are boxes.

    The entries of the model are those of MMRotate 1's ``RefineSingleStageDetector``, and so are the modules' names.

    Attributes
    ----------
    first_heads, next_heads : dict of str to class
        The types that heads may have.  The next ones have a `FeatureRefinement`, ``feat_refine_module``.
    """

    head_entries: ClassVar[tuple[str, ...]] = ("bbox_head_refine",)
    earlier_heads = ("bbox_head",)
    Model: ClassVar[type[ModelEntries]] = RefiningModel
    entries: RefiningModel
    TestCfg: ClassVar[type[Schema]] = RotatedDenseEntries
    test_cfg: RotatedDenseEntries
    first_heads: ClassVar[Mapping[str, type[DenseHead]]]
    next_heads: ClassVar[Mapping[str, type[DenseHead]]]

    def __init__(self, config: DetectorConfig, parts: Parts) -> None:
        super().__init__(config, parts)
        model = self.entries
        self.bbox_head_init: DenseHead = parts.build("bbox_head_init", model.bbox_head_init, self.first_heads)
        self.bbox_head_refine = nn.ModuleList(
            parts.build("bbox_head_refine", head, self.next_heads) for head in model.bbox_head_refine
        )
        self.by_pairs = config.version == 3
        self.test_cfg.check_version(config.version)
        require_sigmoid("bbox_head_init", self.bbox_head_init)
        require_sigmoid("bbox_head_refine", self.last_head)
        self.angle_version = version_of(self.last_head)

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
    def level_counts(self) -> Mapping[str, int]:
        """Those of the priors of the first and the last head, and of the modules before the heads that refine."""
        heads: list[Any] = list(self.bbox_head_refine)
        return {
            "bbox_head_init": len(self.bbox_head_init.priors.strides),
            "bbox_head_refine": len(self.last_head.priors.strides),
            **{f"bbox_head_refine[{i}].frm_cfg": len(head.feat_refine_module.strides) for i, head in enumerate(heads)},
        }

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the last head's maps."""
        return level_names(self.last_head.raw_kinds, len(self.last_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the last head's maps, by kind and level."""
        return self.refined(input)[1]

    def refined(self, input: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return the boxes that the last head reads, [N, h * w, 5] by level, and its maps."""
        features = self.levels(input)
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
    return [coder.decode(anchors, numbers, None) for anchors, numbers in zip(boxes, regressed, strict=True)]
