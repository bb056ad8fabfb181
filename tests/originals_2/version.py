"""MMDetection 2 and MMRotate 0 as judges of mutants."""

from __future__ import annotations

from tests.originals.version import Version
from tests.originals_2.cases import CASES
from tests.originals_2.original import Original, type_named

PIPELINE = "data", "test", "pipeline"
STEPS = (
    {"type": "Resize", "img_scale": (90, 70), "keep_ratio": True},
    {"type": "Resize", "img_scale": (90, 70), "keep_ratio": False},
    {"type": "Resize", "keep_ratio": False},
    {"type": "RResize", "img_scale": (90, 70)},
    {"type": "Pad", "size": (140, 130)},
    {"type": "Pad", "size_divisor": 64, "pad_val": {"img": 50}},
    {"type": "Pad", "size_divisor": 64, "pad_val": 50},
    {"type": "Pad", "pad_to_square": True, "pad_val": {"img": (114.0, 114.0, 114.0)}},
    {"type": "Normalize", "mean": [100.0, 110.0, 120.0], "std": [50.0, 55.0, 60.0], "to_rgb": True},
    {"type": "Normalize", "mean": [1.0, 2.0, 3.0], "std": [5.0, 5.0, 6.0], "to_rgb": False},
    {"type": "RandomFlip"},
    {"type": "RandomFlip", "flip_ratio": 1.0},
    {"type": "RandomFlip", "flip_ratio": 0.0},
    {"type": "RandomCrop", "crop_size": (64, 60)},
    {"type": "LoadAnnotations", "with_bbox": True},
    {"type": "DefaultFormatBundle"},
    {"type": "ImageToTensor", "keys": ["img"]},
    {"type": "Transpose", "keys": ["img"], "order": (1, 0, 2)},
)
"""Steps that are put into a pipeline."""

VERSION = Version(
    CASES,
    Original,
    type_named,
    [PIPELINE, (*PIPELINE, 1, "transforms")],
    STEPS,
    ("retinanet", "mask_rcnn", "sparse_rcnn"),
)
