"""Heads of MMYOLO that regress the distances to the sides of a box, perhaps as distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, default, nested, part
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.yolo.detector import HeadModule, YOLOHead
from mmort.detect.parts.yolo.scaling import BATCH_NORM, SILU


def points(offset: float) -> Config:
    """Return the config of points at an offset in the locations of three levels, which priors are by default."""
    return {"type": "MlvlPointGenerator", "offset": offset, "strides": [8, 16, 32]}


@dataclass(frozen=True, kw_only=True)
class DistanceCoderEntries(Schema):
    """The entries of ``bbox_coder``."""

    types: ClassVar = ("DistancePointBBoxCoder",)
    ignored: ClassVar = {
        "clip_border": "MMYOLO clips boxes after they are mapped to the original image",
        "use_box_type": "a wrapper around the same numbers",
    }


class DistanceModule(HeadModule):
    """Layers that predict classes, and the distances to the sides of a box."""

    def distances(self, regressed: Tensor) -> Tensor:
        """Return distances in strides [N, P, 4] of what is regressed [N, P, ...]."""
        return regressed


class DistributionModule(DistanceModule):
    """Layers that predict classes, and for each side of a box the probabilities of `bins` distances, in strides.

    Attributes
    ----------
    bins : int
        1 if a distance is predicted itself.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(HeadModule.Entries):
        reg_max: int
        norm_cfg: Config | None = default(BATCH_NORM)
        act_cfg: Config | None = default(SILU)

        @property
        def layer(self) -> dict[str, Any]:
            """Normalization and activation as arguments of `ConvModule`."""
            return {"norm_cfg": self.norm_cfg, "act_cfg": self.act_cfg}

    project: Tensor

    def __init__(self, entries: Any) -> None:
        super().__init__(entries)
        self.set_bins(entries.reg_max)

    def set_bins(self, bins: int) -> None:
        """Set the number of distances among which one is found as a mean."""
        self.bins = bins
        self.register_buffer("project", torch.arange(bins, dtype=torch.float32), persistent=False)

    def distances(self, regressed: Tensor) -> Tensor:
        """Return distances in strides [N, P, 4] of what is regressed [N, P, 4 * bins]."""
        if self.bins == 1:
            return regressed
        # A matrix of one column: see `Integral` of GFL.
        return (torch.unflatten(regressed, -1, (4, -1)).softmax(-1) @ self.project[:, None])[..., 0]


class DistanceHead(YOLOHead):
    """Boxes by the distances of their sides from a point."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(YOLOHead.Entries):
        prior_generator: Priors = part("prior generator", default=points(0.5))
        bbox_coder: DistanceCoderEntries = nested(DistanceCoderEntries, default={"type": "DistancePointBBoxCoder"})

    head_module: DistanceModule

    def decoded(self, level: int, *maps: Tensor) -> tuple[Tensor, ...]:
        logits, regressed = (map.flatten(2).transpose(1, 2) for map in maps)  # [N, h*w, C], [N, h*w, 4 * bins]
        distances = self.head_module.distances(regressed) * self.head_module.strides[level]
        points = self.priors.level(level, maps[0])  # [h*w, 2]
        boxes = torch.cat([points - distances[..., :2], points + distances[..., 2:]], -1)
        return boxes, logits.sigmoid()
