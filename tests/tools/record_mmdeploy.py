"""Export a small Oriented R-CNN with MMDeploy, and record what MMDeploy's own library for ONNX Runtime makes of it.

    pip install --no-deps --target MMROTATE mmrotate==1.0.0rc1 mmdeploy==1.3.1 aenum e2cnn sympy mpmath scipy
    python -m venv OLD && OLD/bin/pip install onnxruntime==1.15.1 'numpy<2'   # for which that library is built
    python -m tests.tools.record_mmdeploy FOLDER MMROTATE OLD/bin/python

FOLDER is that of check_parts.  Writes what tests/ort/test_mmdeploy.py reads.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mmort.torch
from tests.detect import rotated_1_cases
from tests.ort.test_mmdeploy import RECORD, images
from tests.tools.check_rotated import mmrotate

CHANNELS = 8
SETTINGS = {
    "codebase_config": {
        "type": "mmrotate",
        "task": "RotatedDetection",
        "post_processing": {
            "score_threshold": 0.05,
            "iou_threshold": 0.1,
            "pre_top_k": 300,
            "keep_top_k": 20,
            "max_output_boxes_per_class": 50,
        },
    },
}
DYNAMIC = {
    "input": {0: "batch", 2: "height", 3: "width"},
    "dets": {0: "batch", 1: "detection"},
    "labels": {0: "batch", 1: "detection"},
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


class RoIAlignRotatedFunction(torch.autograd.Function):
    """MMCV's function of this name, whose symbolic MMDeploy replaces."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, rois: Tensor, *arguments: Any) -> Tensor:
        return mmort.torch.roi_align_rotated(input, rois, *arguments)

    @staticmethod
    def symbolic(g: Any, *arguments: Any) -> Any:
        raise NotImplementedError


class RoIAlignRotated(torch.nn.Module):
    """MMCV's layer, by its old names of arguments too."""

    def __init__(self, out_size: int, spatial_scale: float, sample_num: int, clockwise: bool) -> None:
        super().__init__()
        self.output_size = out_size, out_size
        self.arguments = self.output_size, float(spatial_scale), sample_num, True, clockwise

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        return RoIAlignRotatedFunction.apply(input, rois, *self.arguments)


def config() -> dict[str, Any]:
    """Return the config of a detector of a few kilobytes, whose regions are on both levels."""
    model: dict[str, Any] = rotated_1_cases.config_of("Oriented R-CNN")["model"]
    model["backbone"] |= {"num_stages": 2, "strides": (1, 2), "dilations": (1, 1)}
    model["neck"]["out_channels"] = CHANNELS
    for part in ("in_channels", "feat_channels"):
        model["rpn_head"][part] = CHANNELS
    model["roi_head"]["bbox_roi_extractor"] |= {"out_channels": CHANNELS, "finest_scale": 16}
    model["roi_head"]["bbox_head"]["in_channels"] = CHANNELS
    return model


def export(folder: str, rotated: str, model: Path) -> None:
    """Export the detector with MMDeploy, as its ``tools/deploy.py`` does."""
    registry = mmrotate(folder, rotated)
    import_module("mmcv.ops.roi_align_rotated")  # so that a later import does not hide the function
    operators = import_module("mmcv.ops")
    operators.RoIAlignRotated, operators.roi_align_rotated = RoIAlignRotated, RoIAlignRotatedFunction.apply
    extractors = "mmrotate.models.roi_heads.roi_extractors.rotate_single_level_roi_extractor"
    import_module(extractors).ops = operators
    for module in ("codebase.mmdet.models", "codebase.mmrotate.models", "codebase.mmrotate.structures", "mmcv.ops"):
        import_module(f"mmdeploy.{module}")
    # MMDeploy relies on what torch has changed since.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    import_module("mmdeploy.core.rewriters.function_rewriter")._wrapped_fns_to_patch = []
    from mmdet.structures import DetDataSample
    from mmengine.config import Config, ConfigDict

    detector = registry.build(ConfigDict(config())).eval()
    rotated_1_cases.fill(detector)
    detector.rpn_head.rpn_reg.weight *= 0.2  # no flat proposals, see test_mmdeploy
    import_module("mmdeploy.apis.onnx.export").export(
        detector,
        torch.from_numpy(images()["traced"]),
        str(model.with_suffix("")),
        backend="onnxruntime",
        input_metas={"data_samples": [DetDataSample()], "mode": "predict"},
        context_info={"deploy_cfg": Config(SETTINGS)},
        input_names=["input"],
        output_names=["dets", "labels"],
        opset_version=11,
        dynamic_axes=DYNAMIC,
    )


def main(folder: str, rotated: str, python: str) -> None:
    """Write the file and what MMDeploy's library detects with it."""
    torch.set_grad_enabled(False)
    library = Path(rotated, "mmdeploy", "lib", "libmmdeploy_onnxruntime_ops.so")
    with tempfile.TemporaryDirectory() as temporary:
        model, inputs, outputs = (Path(temporary, name) for name in ("model.onnx", "inputs.npz", "outputs.npz"))
        export(folder, rotated, model)
        np.savez(inputs, **images())
        subprocess.run([python, "-c", RUN, model, library, inputs, outputs], check=True)
        with np.load(outputs) as results:
            np.savez_compressed(RECORD, model=np.frombuffer(model.read_bytes(), np.uint8), **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
