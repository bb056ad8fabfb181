"""Export small detectors with MMDeploy: an Oriented R-CNN, with what its own library detects, or a Mask R-CNN.

    pip install --no-deps mmdeploy==1.3.1 && pip install aenum                # in the environment of .ci/run originals
    python -m venv OLD && OLD/bin/pip install onnxruntime==1.15.1 'numpy<2'   # for which that library is built
    python -m tests.tools.record_mmdeploy OLD/bin/python
    python -m tests.tools.record_mmdeploy

With OLD, writes what tests/ort/test_mmdeploy.py reads of the Oriented R-CNN; without,
the file of the Mask R-CNN, whose masks are pasted, for tests/onnx/test_accelerate.py.
"""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.detect import query_cases, rotated_1_cases, two_stage_cases
from tests.originals.original import Original
from tests.ort.test_mmdeploy import MASK_RCNN, RECORD, images

CHANNELS = 8
POST_PROCESSING = {
    "score_threshold": 0.05,
    "iou_threshold": 0.1,
    "pre_top_k": 300,
    "keep_top_k": 20,
    "max_output_boxes_per_class": 50,
}
RUN = """
import sys
import numpy, onnxruntime
model, library, inputs, outputs = sys.argv[1:]
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(library)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
results = {}
with numpy.load(inputs) as arrays:
    for name in arrays.files:
        results[name + ".dets"], results[name + ".labels"] = session.run(None, {"input": arrays[name]})
numpy.savez(outputs, **results)
"""


def oriented_rcnn() -> dict[str, Any]:
    """Return the config of a detector of a few kilobytes, whose regions are on both levels."""
    model: dict[str, Any] = rotated_1_cases.config_of("Oriented R-CNN")["model"]
    model["backbone"] |= {"num_stages": 2, "strides": (1, 2), "dilations": (1, 1)}
    model["neck"]["out_channels"] = CHANNELS
    for part in ("in_channels", "feat_channels"):
        model["rpn_head"][part] = CHANNELS
    model["roi_head"]["bbox_roi_extractor"] |= {"out_channels": CHANNELS, "finest_scale": 16}
    model["roi_head"]["bbox_head"]["in_channels"] = CHANNELS
    return model


def mask_rcnn() -> dict[str, Any]:
    """Return the config of a detector of a few kilobytes."""
    model: dict[str, Any] = copy.deepcopy(two_stage_cases.CONFIG["model"])
    model["backbone"] |= {"base_channels": 4, "stem_channels": 4, "num_stages": 2, "out_indices": (0, 1)}
    model["backbone"] |= {"strides": (1, 2), "dilations": (1, 1)}
    model["neck"] |= {"in_channels": [4, 8], "out_channels": CHANNELS, "num_outs": 2}
    model["rpn_head"] |= {"in_channels": CHANNELS, "feat_channels": CHANNELS}
    model["rpn_head"]["anchor_generator"]["strides"] = [4, 8]
    head = model["roi_head"]
    for extractor in ("bbox_roi_extractor", "mask_roi_extractor"):
        head[extractor] |= {"out_channels": CHANNELS, "featmap_strides": [4, 8], "finest_scale": 16}
    head["bbox_head"] |= {"in_channels": CHANNELS, "fc_out_channels": CHANNELS}
    head["mask_head"] |= {"in_channels": CHANNELS, "conv_out_channels": CHANNELS, "num_convs": 1}
    model["test_cfg"]["rcnn"]["max_per_img"] = 20
    return model


def deploy(detector: Any, model: Path, outputs: list[str], codebase: dict[str, Any]) -> None:
    """Export a detector with MMDeploy, as its ``tools/deploy.py`` does."""
    for module in ("codebase.mmdet.models", "mmcv.ops"):
        import_module(f"mmdeploy.{module}")
    # MMDeploy relies on what torch has changed since.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    symbolics = import_module("torch.onnx.symbolic_opset9")
    symbolics._cast_Long = lambda g, value, _: g.op("Cast", value, to_i=7)  # type: ignore[attr-defined]
    import_module("mmdeploy.core.rewriters.function_rewriter")._wrapped_fns_to_patch = []
    from mmdet.structures import DetDataSample
    from mmengine.config import Config

    axes = {name: {0: "batch", 1: "detection"} for name in outputs}
    import_module("mmdeploy.apis.onnx.export").export(
        detector,
        torch.from_numpy(images()["traced"]),
        str(model.with_suffix("")),
        backend="onnxruntime",
        input_metas={"data_samples": [DetDataSample()], "mode": "predict"},
        context_info={"deploy_cfg": Config({"codebase_config": codebase})},
        input_names=["input"],
        output_names=outputs,
        opset_version=11,
        dynamic_axes={"input": {0: "batch", 2: "height", 3: "width"}, **axes},
    )


def built(model: dict[str, Any], scope: str) -> Any:
    """Return MMDetection's or MMRotate's detector."""
    return Original({"model": model, "default_scope": scope, "test_dataloader": {"dataset": {"pipeline": []}}}).model


def export_oriented_rcnn(model: Path) -> None:
    """Export the detector of rotated boxes."""
    for module in ("models", "structures"):
        import_module(f"mmdeploy.codebase.mmrotate.{module}")
    detector = built(oriented_rcnn(), "mmrotate")
    rotated_1_cases.fill(detector)
    detector.rpn_head.rpn_reg.weight *= 0.2  # no flat proposals, see test_mmdeploy
    codebase = {"type": "mmrotate", "task": "RotatedDetection", "post_processing": POST_PROCESSING}
    deploy(detector, model, ["dets", "labels"], codebase)


def export_mask_rcnn(model: Path) -> None:
    """Export the detector with masks."""
    detector = built(mask_rcnn(), "mmdet")
    query_cases.fill(detector)
    head = detector.roi_head.bbox_head
    for layer in (detector.rpn_head.rpn_reg, head.fc_reg, head.fc_cls):  # boxes within the image, scores below 1
        layer.weight *= 0.2
    settings = {**POST_PROCESSING, "iou_threshold": 0.5, "export_postprocess_mask": True}
    codebase = {"type": "mmdet", "task": "ObjectDetection", "post_processing": settings}
    deploy(detector, model, ["dets", "labels", "masks"], codebase)


def main(python: str | None = None) -> None:
    """Write the file, and what MMDeploy's library detects with that of the Oriented R-CNN."""
    torch.set_grad_enabled(False)
    library = Path(import_module("mmdeploy").__file__ or "").parent / "lib" / "libmmdeploy_onnxruntime_ops.so"
    with tempfile.TemporaryDirectory() as temporary:
        model, inputs, outputs = (Path(temporary, name) for name in ("model.onnx", "inputs.npz", "outputs.npz"))
        if python is None:
            export_mask_rcnn(model)
            np.savez_compressed(MASK_RCNN, model=np.frombuffer(model.read_bytes(), np.uint8))
            return
        export_oriented_rcnn(model)
        np.savez(inputs, **images())
        subprocess.run([python, "-c", RUN, model, library, inputs, outputs], check=True)
        with np.load(outputs) as results:
            np.savez_compressed(RECORD, model=np.frombuffer(model.read_bytes(), np.uint8), **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
