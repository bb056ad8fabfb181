"""R3Det: the boxes of one head choose the features that the next one reads, once or twice.

Source: X. Yang et al., "R3Det: Refined Single-Stage Detector with Feature Refinement for Rotating Object", AAAI 2021;
MMRotate 0's ``FeatureRefineModule`` and ``RotatedRetinaRefineHead``, in MMRotate 1 ``FRM`` and ``R3RefineHead``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import PARTS, Schema, at_least, part
from mmort.detect.families.rotated.rotated_retinanet import RotatedRetinaHead
from mmort.detect.parts.priors import Priors
from mmort.detect.parts.rotated.refinement import (
    LOCATIONS,
    FeatureRefinement,
    RefiningDetector,
    RefiningModel,
    Stages,
    renamed,
)
from mmort.torch import rotated_feature_align


class FeatureRefineModule(FeatureRefinement):
    """Convolutions, whose features are added to the maps, and once more those at the centres of the boxes.

    As in MMRotate, x of a centre is taken as the row and y as the column: models are trained with it.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        feat_channels: int
        strides: Sequence[float]

        ignored: ClassVar = dict.fromkeys(("conv_cfg", "norm_cfg"), "MMRotate does not read it")

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        channels, self.strides = entries.feat_channels, entries.strides
        self.conv_5_1 = nn.Conv2d(channels, channels, (5, 1), padding=(2, 0))
        self.conv_1_5 = nn.Conv2d(channels, channels, (1, 5), padding=(0, 2))
        self.conv_1_1 = nn.Conv2d(channels, channels, 1)

    def forward(self, features: Sequence[Tensor], boxes: Sequence[Tensor]) -> list[Tensor]:
        refined = []
        for x, boxes_of_level, stride in zip(features, boxes, self.strides, strict=True):
            mixed = self.conv_5_1(self.conv_1_5(x)) + self.conv_1_1(x)
            by_location = boxes_of_level.reshape(x.shape[0], x.shape[2], x.shape[3], 5)
            refined.append(x + rotated_feature_align(mixed, by_location, 1 / stride))
        return refined


class R3RefineHead(RotatedRetinaHead):
    """A head whose priors are boxes, one at each location."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(RotatedRetinaHead.Entries):
        frm_cfg: FeatureRefineModule = part("frm_cfg", types={"FRM": FeatureRefineModule})
        anchor_generator: Priors = part("prior generator", default=LOCATIONS)

    def __init__(self, entries: Entries) -> None:
        super().__init__(entries)
        self.feat_refine_module = entries.frm_cfg


@dataclass(frozen=True, kw_only=True)
class R3Stages(Stages):
    """The entries of MMRotate 0's ``model`` that MMRotate 1 has in its heads."""

    bbox_head: Config
    frm_cfgs: Sequence[Config]
    refine_heads: Sequence[Config]
    num_refine_stages: int = at_least(1)

    def check(self, name: str) -> None:
        """Raise a ValueError if there are fewer heads or modules than stages."""
        if self.num_refine_stages > min(len(self.frm_cfgs), len(self.refine_heads)):
            raise ValueError(
                "detect.build: num_refine_stages must be 1 to the number of frm_cfgs and of refine_heads, "
                f"got {self.num_refine_stages}"
            )

    def heads(self) -> tuple[Config, Sequence[Config]]:
        stages = zip(self.refine_heads, self.frm_cfgs, strict=False)
        following = [
            {**head, "frm_cfg": {**renamed(module, in_channels="feat_channels"), "type": "FRM"}}
            for head, module in stages
        ]
        return self.bbox_head, following[: self.num_refine_stages]


@PARTS.register("detector", "KFIoURRetinaRefineHead", "R3RefineHead", "RotatedRetinaRefineHead")
class R3Det(RefiningDetector):
    """R3Det."""

    family = "R3Det"
    head_entries = "bbox_head_refine", "refine_heads"
    renamed_keys = (
        (r"^bbox_head\.", "bbox_head_init."),
        (r"^feat_refine_module\.(\d+)\.", r"bbox_head_refine.\1.feat_refine_module."),
        (r"^refine_head\.", "bbox_head_refine."),
    )
    # ATSS's is the same network with one anchor.
    first_heads = dict.fromkeys(
        ("R3Head", "RotatedRetinaHead", "KFIoURRetinaHead", "RotatedATSSHead"), RotatedRetinaHead
    )
    next_heads = dict.fromkeys(("R3RefineHead", "RotatedRetinaRefineHead", "KFIoURRetinaRefineHead"), R3RefineHead)

    @dataclass(frozen=True, kw_only=True)
    class Model(RefiningModel):
        Stages = R3Stages
