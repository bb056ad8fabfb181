"""Detectors with several dense heads, of which the boxes of one are the priors of the next: one for each location."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mmort.detect.detector import Detector, level_names
from mmort.detect.entries import Parts, read_entries
from mmort.detect.parts.boxes import image_limits
from mmort.detect.parts.rotated.coders import RotatedBoxCoder
from mmort.detect.parts.rotated.dense import candidates
from mmort.detect.parts.rotated.selection import rotated_detections
from mmort.detect.parts.rotated.test_cfg import RotatedDenseEntries
from mmort.detect.parts.single_stage import DenseHead
from mmort.detect.versions import Config, is_version_3, test_config

REFINING_ENTRIES = ("bbox_head_init", "bbox_head_refine")
"""The entries of MMRotate 1's ``RefineSingleStageDetector``."""

LOCATIONS = {"type": "PseudoAnchorGenerator", "strides": [8, 16, 32, 64, 128]}
"""The prior generator of heads whose priors are boxes."""


class RefiningDetector(Detector):
    """Base of these detectors: a backbone, a neck, and heads that the family builds."""

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__()
        self.backbone: nn.Module = parts.build("backbone", config["model"]["backbone"])
        self.neck: nn.Module = parts.build("neck", config["model"]["neck"])
        self.test_cfg = read_entries("test_cfg", RotatedDenseEntries, test_config(config))
        self.by_pairs = is_version_3(config)

    @property
    def last_head(self) -> DenseHead:
        """The head whose boxes are detected."""
        raise NotImplementedError

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the last head's maps."""
        return level_names(self.last_head.raw_kinds, len(self.last_head.priors.strides))

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the last head's maps, by kind and level."""
        return self.refined(input)[1]

    def refined(self, input: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return the boxes that the last head reads, [N, h * w, 5] by level, and its maps."""
        raise NotImplementedError

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        boxes, maps = self.refined(input)
        limits = image_limits(input, img_shape)
        chosen = candidates(self.last_head, self.test_cfg, maps, limits, boxes, by_pairs=self.by_pairs)
        return rotated_detections(*chosen, self.test_cfg)


def refining_heads(model: Config) -> tuple[Config, list[Config], list[Config]]:
    """Return the configs of the first head, of the modules that refine features, and of the heads that read them.

    Raises
    ------
    ValueError
        If `REFINING_ENTRIES` of the model are not a dict and a list of dicts with ``frm_cfg``.
    """
    first, heads = (model.get(name) for name in REFINING_ENTRIES)
    if not isinstance(first, dict) or not isinstance(heads, list) or not heads:
        raise ValueError("detect.build: bbox_head_init must be a dict, and bbox_head_refine a list of dicts")
    if not all(isinstance(head, dict) and isinstance(head.get("frm_cfg"), dict) for head in heads):
        raise ValueError("detect.build: every one of bbox_head_refine must be a dict with a dict frm_cfg")
    modules = [head["frm_cfg"] for head in heads]
    return first, modules, [{key: value for key, value in head.items() if key != "frm_cfg"} for head in heads]


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
