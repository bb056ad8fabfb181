"""Compare small two-stage detectors with MMDetection's own.  Run by hand, as it needs MMDetection.

    python -m tests.tools.check_two_stage FOLDER [NAME ...]
    python -m tests.tools.check_two_stage export [NAME ...]     # export each for all sizes; needs no MMDetection

For FOLDER see ``check_parts``.  Both sides are built from the configs of tests/detect/two_stage_cases.py, with the same
random weights, and detect in a padded batch of two images.  Prints a line for each detector, and exits with 1 if
detections differ.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mmort.detect import build
from mmort.detect.checkpoint import load_weights
from mmort.detect.export import ExportOptions, export
from mmort.detect.export.pipeline import DEFAULT_IMAGE
from mmort.onnx import VerificationError
from mmort.onnx.verify.detections import DetectionRow
from mmort.predict import Predictor, read_image
from tests.detect import two_stage_cases
from tests.tools import check_parts

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
    """Return a padded batch of random images."""
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
        if "fc_cls.weight" in name or "_att_" in name or "fc_reg_offset" in name:
            value.mul_(0.1)
        if "rpn_cls.weight" in name:
            value.mul_(0.02)  # MMDetection leaves the order of equal scores open, such as 1
        if name.startswith("rpn_head.conv_"):  # of guided anchors, whose sizes grow exponentially
            value.mul_(0.05)
        if "init_proposal_bboxes" in name:
            value.add_(0.5)
        if "fc_mask_iou.weight" in name:
            value.mul_(0.02)


def difference(ours: Any, theirs: Any) -> str:
    """Return how the detections of two detectors differ, or how many are equal."""
    from mmdet.structures import DetDataSample

    randomize(theirs)
    theirs.eval()
    load_weights(ours, theirs.state_dict())
    batch = images()
    samples = [
        DetDataSample(
            metainfo={
                "img_shape": shape,
                "ori_shape": shape,
                "pad_shape": (160, 224),
                "batch_input_shape": (160, 224),
                "scale_factor": (1.0, 1.0),
            }
        )
        for shape in SHAPES
    ]
    with torch.inference_mode():
        # One by one, as some heads of MMDetection take the first image's masks for all.
        images_alone = zip(batch.split(1), samples, strict=True)
        wanted = [theirs.predict(image, [sample], rescale=False)[0] for image, sample in images_alone]
        dets, labels, *masks = ours(batch, torch.tensor(SHAPES))
    total, far, overlap = 0, 0.0, 1.0
    for index, sample in enumerate(wanted):
        found = sample.pred_instances
        used = labels[index] >= 0
        if int(used.sum()) != len(found.scores):
            return f"differs: {int(used.sum())} detections, MMDetection's {len(found.scores)}"
        if not len(found.scores):
            continue
        # A wrong label counts as much as 1000 pixels; the order of equal scores is open.
        ours_rows = torch.cat([dets[index][used], labels[index][used, None] * 1000], 1)
        their_rows = torch.cat([found.bboxes, found.scores[:, None], found.labels[:, None] * 1000], 1)
        distances = (their_rows[:, None] - ours_rows).abs().amax(2)
        far = max(far, float(distances.amin(1).max()))
        if masks:
            nearest = distances.argmin(1)
            overlap = min(overlap, mask_overlap(masks[0][index][used][nearest], found.bboxes, found.masks))
        total += len(found.scores)
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
    detector = build(config)
    randomize(detector)
    options, start = ExportOptions(shape=(128, 192), dynamic_export=True, portable=True), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        settings, weights, file = (Path(folder, name) for name in ("config.json", "weights.pth", "detector.onnx"))
        settings.write_text(json.dumps(config))
        torch.save({"state_dict": detector.state_dict()}, weights)
        try:
            report = export(settings, weights, file, options, progress=lambda line: None)
        except (ValueError, VerificationError) as error:
            return f"differs: {error}"
        found = Predictor(file)(read_image(DEFAULT_IMAGE))
    matched = sum(row.matched for row in report.rows if isinstance(row, DetectionRow))
    return f"equal: {matched} detections matched, {len(found)} predicted, {time.perf_counter() - start:.0f} s"


def main(source: str, names: list[str]) -> int:
    """Compare or export the named detectors, by default all."""
    failed = 0
    registry = None if source == "export" else check_parts.mmdetection(source)
    for name in names or two_stage_cases.CASES:
        if registry is None:
            line = exported(name)
        else:
            config = two_stage_cases.config_of(name)
            config["model"]["data_preprocessor"] = PREPROCESSOR
            config["model"]["train_cfg"] = None
            model = import_module("mmengine.config").ConfigDict(copy.deepcopy(config["model"]))
            line = difference(build(config), registry.build(model))
        failed += not line.startswith("equal")
        print(f"{name}: {line}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
