"""Compare dense detectors with MMDetection's own, and export them, as whole networks.  Run by hand.

    python -m tests.tools.check_dense_detectors FOLDER [NAME ...]   # compare; needs MMDetection in FOLDER
    python -m tests.tools.check_dense_detectors export [NAME ...]   # export each with `mmort export`, and run the file

FOLDER is that of check_parts.  The detectors are those of tests/detect/dense_cases.py, and others with their parts.
Both sides have the same weights and detect in a batch of two images, one of which is padded.  Files are portable and
take any size and batch; `Predictor` then finds something in a picture.  Prints a line for each detector.  Exit code 1
if names, shapes or detections differ, or an export fails.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import onnx
import torch

import mmort.torch
from mmort import Predictor
from mmort.detect.export import ExportOptions
from mmort.detect.export.pipeline import DEFAULT_IMAGE
from tests.detect import dense_cases
from tests.tools import check_query_detectors
from tests.tools.check_parts import mmdetection
from tests.tools.small_detectors import export_small

METADATA = {"family", "classes", "preprocessing", "thresholds", "mmort_version"}
DCN = {"type": "DCN", "deform_groups": 1, "fallback_on_stride": False}
BACKBONE = {"type": "ResNet", "depth": 50, "base_channels": 4, "stem_channels": 4, "out_indices": (1, 2)}
NASFCOS_FPN = {
    "type": "NASFCOS_FPN",
    "in_channels": [4, 8, 16, 32],
    "out_channels": 32,
    "start_level": 1,
    "num_outs": 3,
}
PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (192, 160), "keep_ratio": True},
    {"type": "PackDetInputs"},
]


def models() -> dict[str, dict[str, Any]]:
    """Return the models by name: a head of each type, and heads with parts that not all of them have."""
    by_name = {name.removesuffix("Head"): dense_cases.config(name)["model"] for name in dense_cases.HEADS}
    for method in ("minmax", "partial_minmax"):
        by_name[f"RepPoints {method}"] = dense_cases.config("RepPointsHead", transform_method=method)["model"]
    grid = dense_cases.config("RepPointsHead", transform_method="minmax", use_grid_points=True)
    by_name["RepPoints grid"] = grid["model"]
    by_name["Fovea deformable"] = dense_cases.config("FoveaHead", with_deform=True)["model"]
    for name, entries in (("VFNet", {}), ("VFNet mdconv", {"dcn_on_last_conv": True})):
        by_name[name] = five_levels(dense_cases.config("VFNetHead", **entries)["model"])
    by_name["VFNet mdconv"] = deformable(by_name["VFNet mdconv"], "DCNv2")
    by_name["TOOD dconv"] = deformable(dense_cases.config("TOODHead", num_dcn=1, stacked_convs=2)["model"], "DCN")
    by_name["TOOD anchors"] = dense_cases.config("TOODHead", anchor_type="anchor_based")["model"]
    by_name["NASFCOS_FPN"] = dense_cases.config("ATSSHead")["model"] | {"neck": NASFCOS_FPN}
    by_name["NASFCOS_FPN"]["backbone"]["out_indices"] = (0, 1, 2, 3)
    by_name["NASFCOS_FPN"]["bbox_head"]["anchor_generator"]["strides"] = [8, 16, 32]
    # What MMDetection reads beside what inference needs.
    squares = {**dense_cases.ANCHORS, "octave_base_scale": 4}
    by_name["SABLRetina"]["bbox_head"]["square_anchor_generator"] = dense_cases.SQUARES
    for name in ("SABLRetina", "GARetina"):
        by_name[name]["bbox_head"]["approx_anchor_generator"] = squares
    for model in by_name.values():
        model["type"] = "SingleStageDetector"
        model["data_preprocessor"] = {"type": "DetDataPreprocessor", "mean": [120.0] * 3, "std": [60.0] * 3}
        model["test_cfg"].update(nms_pre=150, max_per_img=100)
    return by_name


def five_levels(model: dict[str, Any]) -> dict[str, Any]:
    """Return a model whose head has five levels, as MMDetection's VFNet needs."""
    head = {key: value for key, value in model["bbox_head"].items() if key != "regress_ranges"}
    head["strides"] = [8, 16, 32, 64, 128]
    return {**model, "bbox_head": head, "neck": {**model["neck"], "num_outs": 5}}


def deformable(model: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return a model whose backbone has deformable convolutions."""
    backbone = {**BACKBONE, "dcn": {**DCN, "type": kind}, "stage_with_dcn": (False, True, True, True)}
    return {**model, "backbone": backbone, "neck": {**model["neck"], "in_channels": [32, 64]}}


def prepare_registry() -> None:
    """Let all parts be found, with the convolutions that MMCV registers beside its compiled code."""
    from mmengine.registry import MODELS, init_default_scope

    init_default_scope("mmdet")
    convolutions = {"DCN": mmort.torch.DeformConv2dPack, "DCNv2": mmort.torch.ModulatedDeformConv2dPack}
    for name, convolution in convolutions.items():
        MODELS.register_module(name, module=type(name, (convolution,), {"transposed": False, "output_padding": 0}))


def exported(model: dict[str, Any]) -> str:
    """Return what is wrong with a detector's file, "" if nothing is."""
    begin = time.perf_counter()
    config = {"model": model, "test_dataloader": {"dataset": {"pipeline": PIPELINE}}}
    with tempfile.TemporaryDirectory() as folder:
        options = ExportOptions(portable=True)
        try:
            file, _ = export_small(config, dense_cases.fill, Path(folder), options)
        except ValueError as error:
            return str(error)
        print(f"{time.perf_counter() - begin:.0f} s", end=" ")
        missing = METADATA - {entry.key for entry in onnx.load(file).metadata_props}
        if missing:
            return f"metadata without {sorted(missing)}"
        detections = Predictor(file, score_threshold=0)(DEFAULT_IMAGE)
        print(f"{len(detections)} detections", end=" ")
        return "" if len(detections) else "nothing is detected"


def main(folder: str, *names: str) -> int:
    """Check the detectors of the command line, by default all."""
    torch.set_grad_enabled(False)
    registry = None
    if folder != "export":
        registry = mmdetection(folder)
        prepare_registry()
    known, different = models(), False
    for name in names or known:
        record: dict[str, Any] = {}
        if registry is None:
            problem = exported(known[name])
        else:
            problem = check_query_detectors.difference(registry, known[name], record, dense_cases.fill)
            problem = problem or f"equal, {sum(map(len, record['labels']))} detections"
            different |= not problem.startswith("equal")
        print(f"{name}: {problem or 'ok'}", flush=True)
        different |= bool(problem) and registry is None
    return different


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
