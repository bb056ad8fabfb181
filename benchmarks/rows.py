"""The rows of the benchmarks: against peers, and large ones by which two builds are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

from inputs import KINDS
from peers import (
    batched_nms,
    box_iou,
    corner_pool,
    cummax,
    cummin,
    deform_conv2d,
    grid_sample,
    grid_sample_ort,
    multi_scale_deformable_attention,
    multiclass_nms,
    nms,
    nms_match,
    nms_ort,
    roi_align,
    roi_align_ort,
    roi_align_rotated,
    soft_nms,
)
from timing import Contender

Function = Callable[..., Iterator[Contender]]
Row = dict[str, Any]


def rows(names: str, *choices: Any) -> list[Row]:
    """Return a row for each combination of the choices."""
    return [dict(zip(names.split(), values, strict=True)) for values in product(*choices)]


def listed(names: str, *values: tuple[Any, ...]) -> list[Row]:
    return [dict(zip(names.split(), row, strict=True)) for row in values]


ROI_ALIGN = listed(
    "rois input output_size sampling_ratio aligned",
    (1, (1, 1, 8, 8), 2, 2, True),
    (1, (1, 256, 50, 76), 7, 0, True),
    (10, (1, 256, 50, 76), 7, 2, True),
    (100, (1, 256, 50, 76), 7, 2, False),
    (100, (1, 256, 200, 304), 7, 0, True),
    (100, (1, 256, 200, 304), 14, 0, True),
    (300, (1, 1024, 50, 76), 14, 2, True),
    (1000, (1, 256, 200, 304), 7, 0, True),
    (1000, (1, 256, 200, 304), 7, 2, True),
    (1000, (2, 256, 100, 152), 7, 2, True),
    (1000, (2, 256, 100, 152), 7, 0, False),
    (1000, (1, 16, 100, 152), 7, 2, True),
)
GRID_SAMPLE = listed(
    "input output positions mode padding align",
    ((1, 1, 4, 4), (1, 1), "turned", "bilinear", "zeros", False),
    ((1, 1, 256, 256), (256, 256), "turned", "bilinear", "zeros", False),
    ((1, 3, 256, 256), (256, 256), "scattered", "bilinear", "border", False),
    ((1, 8, 256, 256), (256, 256), "turned", "bilinear", "zeros", False),
    ((1, 3, 720, 1280), (720, 1280), "turned", "bilinear", "zeros", False),
    ((1, 64, 200, 304), (200, 304), "turned", "bilinear", "zeros", False),
    ((1, 64, 200, 304), (200, 304), "scattered", "bilinear", "zeros", False),
    ((1, 64, 200, 304), (200, 304), "scattered", "nearest", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "bilinear", "zeros", False),
    ((4, 256, 50, 76), (50, 76), "turned", "bilinear", "border", True),
    ((4, 64, 50, 76), (50, 76), "turned", "bilinear", "reflection", False),
    ((1, 256, 200, 304), (1, 12544), "scattered", "bilinear", "zeros", False),
    ((100, 1, 28, 28), (1, 196), "scattered", "bilinear", "zeros", False),
    ((8, 32, 100, 152), (900, 4), "scattered", "bilinear", "zeros", False),
    ((1, 1, 256, 256), (256, 256), "turned", "nearest", "zeros", False),
    ((1, 3, 256, 256), (256, 256), "scattered", "nearest", "border", False),
    ((1, 8, 256, 256), (256, 256), "turned", "nearest", "zeros", False),
    ((1, 1, 512, 512), (512, 512), "scattered", "nearest", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "nearest", "zeros", False),
    ((1, 256, 200, 304), (1, 12544), "scattered", "nearest", "border", True),
    ((1, 3, 720, 1280), (720, 1280), "turned", "bicubic", "zeros", False),
    ((1, 64, 128, 128), (128, 128), "turned", "bicubic", "zeros", False),
    ((1, 64, 50, 76), (50, 76), "turned", "bicubic", "reflection", True),
)
SCANS = listed(
    "input values dim",
    ((8,), "normal", 0),
    ((1000,), "normal", 0),
    ((1_000_000,), "normal", 0),
    ((1000, 1000), "normal", 0),
    ((1000, 1000), "normal", 1),
    ((1000, 1000), "int8, ties", 1),
    ((1, 128, 128, 128), "normal", 3),
    ((8, 256, 50, 76), "normal", 1),
    ((8, 256, 50, 76), "normal", 2),
    ((8, 256, 50, 76), "normal", 3),
    ((100_000, 5), "normal", 1),
)
TABLE: dict[Function, list[Row]] = {
    nms: [
        *rows("kind boxes iou_threshold", KINDS, (10, 100, 400, 1000, 3000), (0.5,)),
        *rows("kind boxes iou_threshold", KINDS, (10000,), (0.3, 0.5, 0.7)),
    ],
    nms_ort: rows("kind boxes iou_threshold", KINDS, (10, 100, 1000, 5000), (0.5,)),
    batched_nms: rows("kind boxes classes iou_threshold", KINDS, (10, 1000, 10000), (80,), (0.5,)),
    soft_nms: [
        *rows("kind boxes method", ("uniform", "clustered"), (10, 100, 1000), ("naive", "linear", "gaussian")),
        *rows("kind boxes method", ("uniform",), (10000,), ("gaussian",)),
    ],
    nms_match: rows("kind boxes iou_threshold", KINDS, (10, 100, 2000), (0.5,)),
    box_iou: listed(
        "boxes1 boxes2", (1, 1), (10, 10), (100, 100), (100, 20000), (20000, 100), (1000, 1000), (2000, 2000)
    ),
    roi_align: ROI_ALIGN,
    roi_align_ort: ROI_ALIGN,
    grid_sample: GRID_SAMPLE,
    grid_sample_ort: GRID_SAMPLE,
    deform_conv2d: listed("input outputs", ((1, 64, 64, 64), 64), ((1, 256, 100, 152), 256)),
    multiclass_nms: rows("boxes classes score_threshold", (1000, 10000), (80,), (0.05, 0.5)),
    multi_scale_deformable_attention: listed(
        "sizes heads channels", (((100, 152), (50, 76), (25, 38), (13, 19)), 8, 32)
    ),
    corner_pool: rows(
        "input mode",
        ((1, 1, 4, 4), (1, 256, 64, 64), (1, 128, 128, 128), (2, 64, 127, 255)),
        ("top", "bottom", "left", "right"),
    ),
    cummax: SCANS,
    cummin: SCANS,
}


LARGE: list[tuple[Function, Row]] = [
    *((nms, {"kind": "square", "boxes": count, "iou_threshold": 0.5}) for count in (20_000, 100_000, 1_000_000)),
    *((soft_nms, {"kind": "square", "boxes": count, "method": "gaussian"}) for count in (1000, 10_000)),
    *((roi_align, row) for row in ROI_ALIGN if row["rois"] == 1000),
    *(
        (roi_align_rotated, {"rois": 1000, "input": (1, 256, 200, 304), "output_size": 7, "sampling_ratio": ratio})
        for ratio in (2, 0)
    ),
    *((deform_conv2d, row) for row in TABLE[deform_conv2d]),
    *((grid_sample, row) for row in GRID_SAMPLE if row["input"] == (1, 64, 200, 304)),
    (cummax, {"input": (1, 128, 128, 128), "values": "normal", "dim": 3}),
    *((corner_pool, {"input": (1, 128, 128, 128), "mode": mode}) for mode in ("left", "top")),
    (box_iou, {"boxes1": 1000, "boxes2": 1000}),
]
"""Large enough for growth and memory to show."""
