"""R3Det: the boxes of one head choose the features that the next one reads, once or twice.

MMRotate 1 has the same network under other names.

Source: X. Yang et al., "R3Det: Refined Single-Stage Detector with Feature Refinement for Rotating Object", AAAI 2021;
MMRotate's ``R3Det``, ``FeatureRefineModule`` and ``RotatedRetinaRefineHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.detect.entries import Parts, Schema, part
from mmort.detect.families.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.rotated.dense import version_of
from mmort.detect.parts.rotated.refinement import (
    LOCATIONS,
    REFINING_ENTRIES,
    RefiningDetector,
    first_boxes,
    refined_boxes,
    refining_heads,
)
from mmort.detect.versions import Config
from mmort.torch import rotated_feature_align

# ATSS's is the same network with one anchor.
_FIRST_HEADS = dict.fromkeys(("RotatedRetinaHead", "KFIoURRetinaHead", "RotatedATSSHead", "R3Head"), RotatedRetinaHead)


class FeatureRefineModule(nn.Module):
    """Convolutions, whose features are added to the maps, and once more those at the centres of the boxes.

    As in MMRotate, x of a centre is taken as the row and y as the column: models are trained with it.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of one of ``frm_cfgs``."""

        in_channels: int
        featmap_strides: Sequence[float]

        ignored: ClassVar = dict.fromkeys(("conv_cfg", "norm_cfg"), "MMRotate does not read it")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, self.strides = entries.in_channels, entries.featmap_strides
        self.conv_5_1 = nn.Conv2d(channels, channels, (5, 1), padding=(2, 0))
        self.conv_1_5 = nn.Conv2d(channels, channels, (1, 5), padding=(0, 2))
        self.conv_1_1 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        """Return features [N, C, h, w] of features [N, C, h, w] and their boxes [N, h * w, 5], by level."""
        refined = []
        for x, own, stride in zip(features, boxes, self.strides, strict=True):
            mixed = self.conv_5_1(self.conv_1_5(x)) + self.conv_1_1(x)
            by_location = own.reshape(x.shape[0], x.shape[2], x.shape[3], 5)
            refined.append(x + rotated_feature_align(mixed, by_location, 1 / stride))
        return refined


class RotatedRetinaRefineHead(RotatedRetinaHead):
    """A head whose priors are boxes, one at each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRetinaHead.Entries):
        """The entries of one of ``refine_heads``."""

        anchor_generator: Priors = part("prior generator", default=LOCATIONS)


class R3Det(RefiningDetector):
    """R3Det."""

    family = "R3Det"
    model_entries = (
        *("backbone", "neck", "bbox_head", "frm_cfgs", "num_refine_stages", "refine_heads"),
        *REFINING_ENTRIES,
    )
    renamed_keys = (
        (r"^bbox_head_init\.", "bbox_head."),
        (r"^bbox_head_refine\.(\d+)\.feat_refine_module\.", r"feat_refine_module.\1."),
        (r"^bbox_head_refine\.", "refine_head."),
    )

    def __init__(self, config: Config, parts: Parts) -> None:
        super().__init__(config, parts)
        model = _entries_of_version_0(config["model"])
        stages = model["num_refine_stages"]
        if not isinstance(stages, int) or not 1 <= stages <= min(len(model["frm_cfgs"]), len(model["refine_heads"])):
            raise ValueError(
                f"detect.build: num_refine_stages must be 1 to the number of frm_cfgs and of refine_heads, got {stages}"
            )
        self.bbox_head: RotatedRetinaHead = parts.build("bbox_head", model["bbox_head"], _FIRST_HEADS)
        self.feat_refine_module = nn.ModuleList(
            parts.construct("frm_cfgs", FeatureRefineModule, entries) for entries in model["frm_cfgs"][:stages]
        )
        self.refine_head = nn.ModuleList(
            parts.construct("refine_heads", RotatedRetinaRefineHead, entries)
            for entries in model["refine_heads"][:stages]
        )
        self.angle_version = version_of(self.last_head)

    @property
    def last_head(self) -> RotatedRetinaRefineHead:
        """The head whose boxes are detected."""
        head = self.refine_head[-1]
        assert isinstance(head, RotatedRetinaRefineHead)
        return head

    @property
    def heads(self) -> tuple[str, ...]:
        """The head whose outputs are compared where there are few detections."""
        return (f"refine_head.{len(self.refine_head) - 1}",)

    def refined(self, input: Tensor) -> tuple[list[Tensor], tuple[Tensor, ...]]:
        """Return the boxes that the last head reads, and its maps."""
        features: Sequence[Tensor] = self.neck(self.backbone(input))
        boxes = first_boxes(self.bbox_head, self.bbox_head(features))
        maps: tuple[Tensor, ...] = ()
        for stage, (module, head) in enumerate(zip(self.feat_refine_module, self.refine_head, strict=True)):
            if stage:
                boxes = refined_boxes(self.refine_head[stage - 1], maps, boxes)  # type: ignore[arg-type]
            features_of_stage = module(features, boxes)
            maps = head(features_of_stage)
        return boxes, maps


def _entries_of_version_0(model: Config) -> Config:
    """Return the entries of a model by the names that MMRotate 0 gives them."""
    if REFINING_ENTRIES[0] not in model:
        return model
    first, modules, heads = refining_heads(model)
    sizes = [{"in_channels": module["feat_channels"], "featmap_strides": module["strides"]} for module in modules]
    return {"bbox_head": first, "frm_cfgs": sizes, "num_refine_stages": len(heads), "refine_heads": heads}
