"""Checks of an export before any work starts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from mmort._files.inputs import refuse_address, require_regular
from mmort._files.outputs import require_onnx_output
from mmort.contract import path_of_encoder
from mmort.detect.export.options import ExportOptions, PathLike
from mmort.ort.sessions import require_model_name

MIN_OPSET = 11


def check(config: PathLike, checkpoint: PathLike, output_file: Path, options: ExportOptions) -> None:
    """Raise the errors of `export` that need no work to find: missing packages and files, values out of range."""
    packages = ["torch", "onnx", "onnxscript", "yaml", "cv2"]
    packages += ["onnxruntime"] * (options.verify is not False or options.show) + ["onnxslim"] * options.simplify
    missing = [package for package in packages if find_spec(package) is None]
    if missing:
        raise ImportError(f"mmort export needs {', '.join(missing)}: pip install 'mmort[detect]'")
    if options.open_vocabulary:
        for name in ("texts", "skip_postprocess", "show"):
            if getattr(options, name):
                raise ValueError(f"export: {name} must not be set with open_vocabulary: the file has no words yet")
    refuse_address("config", config)
    refuse_address("checkpoint", checkpoint)
    files = {"config": config, "checkpoint": checkpoint, "vocabulary": options.vocabulary}
    files |= {"input_img": options.input_img, "test_img": options.test_img}
    for name, path in files.items():
        if path is not None:
            require_regular(name, path)
    require_onnx_output(output_file)
    if options.open_vocabulary:
        require_onnx_output(path_of_encoder(output_file))
    require_model_name(output_file)
    if options.shape is not None and min(options.shape) < 1:
        raise ValueError(f"export: shape must be positive, got {options.shape[0]} {options.shape[1]}")
    if options.opset_version is not None:
        from onnx.defs import onnx_opset_version

        if not MIN_OPSET <= options.opset_version <= onnx_opset_version():
            raise ValueError(
                f"export: opset_version must be {MIN_OPSET} to {onnx_opset_version()}, got {options.opset_version}"
            )
