"""Detectors of rotated boxes in MMRotate 1's spelling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.detect import rotated_1_cases
from tests.originals.cases.case import PACK, Case, Config


def _pipeline(scale: tuple[int, int]) -> list[Config]:
    return [
        {"type": "mmdet.LoadImageFromFile"},
        {"type": "mmdet.Resize", "scale": scale, "keep_ratio": True},
        {**PACK, "type": "mmdet.PackDetInputs"},
    ]


PIPELINE = _pipeline((130, 100))
"""Both images keep their proportions exactly.

Where rounding changes them, MMRotate 1 suppresses boxes that are turned a little, mmort before they are turned.
"""
SPREAD = {r"pts_(init|refine)_out$": (0.0, 0.03)}
"""Points whose order is that of the biases: smallest rectangles around three that enclose the others are equal."""


def case(name: str, head: Config | None = None, **fields: Any) -> Case:
    """Return a case of one of the tests' detectors, perhaps with other entries of its head."""
    model = rotated_1_cases.config_of(name)["model"]
    if head is not None:
        model["bbox_head"] |= head
    if name == "S2ANet":  # a class has the best scores everywhere
        model["test_cfg"] |= {"nms_pre": 300, "max_per_img": 60}
    return Case(model, **{"pipeline": PIPELINE, "scope": "mmrotate", "spread": SPREAD, **fields})


CASES = {name.lower().replace(" ", "_").replace("r-cnn", "rcnn"): case(name) for name in rotated_1_cases.CASES}
CASES |= {
    "rotated_retinanet_0": case("Rotated RetinaNet", {"type": "RotatedRetinaHead"}),
    "rotated_retinanet_turned": case("Rotated RetinaNet oc", pipeline=_pipeline((128, 96))),
    **{
        name: case("Rotated RepPoints", {"type": kind})
        for name, kind in {
            "cfa": "CFAHead",
            "oriented_reppoints": "OrientedRepPointsHead",
            "sam_reppoints": "SAMRepPointsHead",
        }.items()
    },
}
# MMRotate 1 replaces its boxes by their corners when it maps them, and suppresses them by five numbers of these.
CASES["gliding_vertex"] = replace(CASES["gliding_vertex"], mapped=False)
_ORIENTED_RCNN = rotated_1_cases.config_of("Oriented R-CNN")["model"]
_ORIENTED_RCNN["roi_head"]["bbox_head"]["type"] = "RotatedShared2FCBBoxHead"
CASES["oriented_rcnn_0"] = Case(_ORIENTED_RCNN, pipeline=PIPELINE, scope="mmrotate")
