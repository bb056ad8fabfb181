"""Compare small two-stage detectors with MMDetection's own.  Run by hand, as it needs MMDetection.

    python -m tests.tools.check_two_stage FOLDER [NAME ...]
    python -m tests.tools.check_two_stage export [NAME ...]     # export each for all sizes; needs no MMDetection

FOLDER has MMDetection 3, see ``check_parts``, or 2, see ``mmdetection_2``.  Both sides are built from the configs of
tests/detect/two_stage_cases.py, with the same random weights, and detect in two images on one canvas.  Where detections
differ, both compute again in float64, in which rounding decides about no box.  Prints a line for each detector, and
exits with 1 if detections differ in float64 too.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.export import ExportOptions
from mmort.detect.export.pipeline import DEFAULT_IMAGE
from mmort.onnx.verify.detections import DetectionRow
from mmort.predict import Predictor, read_image
from tests.detect import two_stage_cases
from tests.tools import check_parts, mmdetection_2
from tests.tools.small_detectors import export_small

SHAPES = [(160, 224), (150, 190)]
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {
        "type": "MultiScaleFlipAug",
        "img_scale": (192, 128),
        "flip": False,
        "transforms": [
            {"type": "Resize", "keep_ratio": True},
            {"type": "Normalize", "mean": [103.5, 116.3, 123.7], "std": [57.4, 57.1, 58.4], "to_rgb": False},
            {"type": "Pad", "size_divisor": 32},
            {"type": "ImageToTensor", "keys": ["img"]},
            {"type": "Collect", "keys": ["img"]},
        ],
    },
]
PREPROCESSOR = {"type": "mmdet.DetDataPreprocessor"}


def images() -> Tensor:
    """Return random images, each in the upper left corner of a canvas."""
    torch.manual_seed(0)
    batch = torch.zeros(len(SHAPES), 3, 160, 224)
    for row, (height, width) in zip(batch, SHAPES, strict=True):
        row[:, :height, :width] = torch.nn.functional.interpolate(
            torch.randn(1, 3, 12, 16) * 2, (height, width), mode="bilinear"
        )[0]
    return batch


def randomize(module: torch.nn.Module) -> None:
    """Fill a detector with weights of which scores and boxes vary."""
    torch.manual_seed(1)
    for name, value in module.state_dict().items():
        if name.endswith("running_var"):
            value.uniform_(0.5, 1.5)
        elif value.ndim > 1 and "embed" not in name:
            torch.nn.init.kaiming_normal_(value)
        elif value.is_floating_point():
            value.add_(torch.randn_like(value) * 0.1)
    for name, value in module.state_dict().items():
        if "fc_reg" in name or "rpn_reg" in name or "init_proposal_bboxes" in name:
            value.mul_(0.1)
        if re.search(r"fc_cls\S*\.weight|_att_|fc_reg_offset", name):
            value.mul_(0.1)
        if "rpn_cls.weight" in name:
            value.mul_(0.02)  # MMDetection leaves the order of equal scores open, such as 1
        if name.startswith("rpn_head.conv_"):  # of guided anchors, whose sizes grow exponentially
            value.mul_(0.05)
        if "init_proposal_bboxes" in name:
            value.add_(0.5)
        if "fc_mask_iou.weight" in name:
            value.mul_(0.02)


def detect(detector: Any, image: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return what `mmdetection_2.detect` does, of MMDetection 3."""
    from mmdet.structures import DetDataSample

    canvas = image.shape[2], image.shape[3]
    meta = {"img_shape": shape, "ori_shape": shape, "pad_shape": canvas, "batch_input_shape": canvas}
    sample = DetDataSample(metainfo={**meta, "scale_factor": (1.0, 1.0)})
    detections = detector.predict(image, [sample], rescale=False)[0].pred_instances
    return torch.cat([detections.bboxes, detections.scores[:, None]], 1), detections.labels, detections.get("masks")


Detect = Callable[..., tuple[Tensor, Tensor, Tensor | None]]


def difference(ours: Any, theirs: Any, their_detect: Detect) -> str:
    """Return how the detections of two detectors differ, or how many are equal."""
    randomize(theirs)
    theirs.eval()
    load_weights(ours, theirs.state_dict())
    result = difference_in(torch.float32, ours, theirs, their_detect)
    if result.startswith("equal"):
        return result
    return f"{difference_in(torch.float64, ours, theirs, their_detect)} in float64; in float32 {result}"


def difference_in(dtype: torch.dtype, ours: Any, theirs: Any, their_detect: Detect) -> str:
    """Return what `difference` does, of detectors that compute in a type."""
    batch = images().to(dtype)
    ours.to(dtype)
    theirs.to(dtype)
    with torch.inference_mode():
        # One by one, as some heads of MMDetection take the masks of one image for all.
        pairs = list(zip(batch.split(1), SHAPES, strict=True))
        wanted = [their_detect(theirs, *pair) for pair in pairs]
        actual = [ours(image, torch.tensor([shape])) for image, shape in pairs]
        dets, labels, *masks = (torch.cat(outputs) for outputs in zip(*actual, strict=True))
    total, far, overlap = 0, 0.0, 1.0
    for index, (their_dets, their_labels, their_masks) in enumerate(wanted):
        used = labels[index] >= 0
        if int(used.sum()) != len(their_dets):
            return f"differs: {int(used.sum())} detections, MMDetection's {len(their_dets)}"
        if not len(their_dets):
            continue
        # A wrong label counts as much as 1000 pixels; the order of equal scores is open.
        ours_rows = torch.cat([dets[index][used], labels[index][used, None] * 1000], 1)
        their_rows = torch.cat([their_dets, their_labels[:, None] * 1000], 1)
        distances = (their_rows[:, None] - ours_rows).abs().amax(2)
        far = max(far, float(distances.amin(1).max()))
        if their_masks is not None:
            nearest = distances.argmin(1)
            overlap = min(overlap, mask_overlap(masks[0][index][used][nearest], their_dets, their_masks))
        total += len(their_dets)
    verdict = "equal" if far < 2e-2 and overlap > 0.97 and total else "differs"
    return f"{verdict}: {total} detections, numbers by at most {far:.1e}, masks' least overlap {overlap:.4f}"


def mask_overlap(masks: Tensor, dets: Tensor, wanted: Tensor) -> float:
    """Return the least overlap of pasted masks with MMDetection's that have at least 200 pixels."""
    from mmort.predict import paste_masks

    pasted = torch.from_numpy(paste_masks(masks.numpy(), dets[:, :4].numpy(), *wanted.shape[1:]))
    both = (pasted & wanted).sum((1, 2))
    either = (pasted | wanted).sum((1, 2))
    large = either >= 200
    return float((both[large] / either[large]).min()) if large.any() else 1.0


def exported(name: str) -> str:
    """Export a detector for all sizes, which compares it with torch, and predict with the file; return how it went."""
    config = two_stage_cases.config_of(name) | {"test_pipeline": PIPELINE}
    options, start = ExportOptions(shape=(128, 192), dynamic_export=True, portable=True), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        try:
            file, report = export_small(config, randomize, Path(folder), options)
        except ValueError as error:
            return f"differs: {error}"
        detections = Predictor(file, score_threshold=0)(read_image(DEFAULT_IMAGE))
    matched = sum(row.matched for row in report.rows if isinstance(row, DetectionRow))
    return f"equal: {matched} detections matched, {len(detections)} predicted, {time.perf_counter() - start:.0f} s"


def comparison(folder: str) -> Callable[[str], str]:
    """Import MMDetection from a folder; return a function that compares a named detector with it."""
    if "__version__ = '2." in Path(folder, "mmdet", "version.py").read_text():
        mmdetection_2.import_from(folder)
        extra: dict[str, Any] = {"pretrained": None}
        construct, their_detect = mmdetection_2.build, mmdetection_2.detect
    else:
        registry = check_parts.mmdetection(folder)
        as_config = import_module("mmengine.config").ConfigDict
        extra = {"data_preprocessor": PREPROCESSOR}  # by which configs of version 3 are known
        construct, their_detect = lambda model: registry.build(as_config(model)), detect

    def compare(name: str) -> str:
        config = two_stage_cases.config_of(name)
        config["model"] |= {"train_cfg": None, **extra}
        try:
            theirs = construct(config["model"])
        except TypeError as error:  # an entry that only the other version has
            return f"differs: {error}"
        return difference(build(config), theirs, their_detect)

    return compare


def main(source: str, names: list[str]) -> int:
    """Compare or export the named detectors, by default all."""
    failed = 0
    check = exported if source == "export" else comparison(source)
    for name in names or two_stage_cases.CASES:
        line = check(name)
        failed += not line.startswith("equal")
        print(f"{name}: {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
