"""MMDetection 3 and MMRotate 1 as judges of mutants."""

from __future__ import annotations

from tests.originals.cases import CASES
from tests.originals.mutants import PIPELINE, STEPS
from tests.originals.original import Original, type_named
from tests.originals.version import Version

VERSION = Version(
    CASES,
    Original,
    type_named,
    [PIPELINE],
    STEPS,
    ("retinanet", "mask_rcnn", "deformable_detr", "mask2former_panoptic"),
)
