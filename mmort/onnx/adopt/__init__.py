"""Adoption: the file of another exporter's detector gets mmort's outputs and metadata, so that all of mmort runs it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mmort.onnx._extras import needed_by
from mmort.onnx.adopt.options import AdoptOptions
from mmort.onnx.adopt.question import Question
from mmort.onnx.adopt.summary import Adoption

__all__ = ["Adoption", "Question", "adopt"]


def adopt(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    layout: Mapping[str, Any] | None = None,
    *,
    config: str | os.PathLike[str] | None = None,
    preset: str | None = None,
    try_image: str | os.PathLike[str] | None = None,
    show: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Adoption:
    """Write a detector's file of another exporter with mmort's outputs ``dets`` and ``labels``, and its metadata.

    Files of ultralytics, YOLOv5, transformers, torchvision, RF-DETR, PaddleDetection, detectron2 and TensorFlow are
    recognized by their metadata, and by the names and shapes of their outputs.  What a file does not say is a guess,
    which runs on images must support, or `preset` names its exporter.  For others `layout` says what the outputs mean;
    `Layout` in `mmort.onnx.adopt.layout` has all entries.  The network's nodes stay as they are, and nodes of standard
    operators are appended.  Before the file is written it is run, and detections that contradict the layout are
    refused.

    Files of MMDetection 2 and MMDeploy have ``dets`` and ``labels`` already.  Preprocessing and classes, which they
    lack, are those of `config`.

    Parameters
    ----------
    path : path
        The file; its opset must be 11 or higher.
    output : path
        The file to write, which must not exist unless `force` is true.
    layout : mapping, optional
        Entries of the layout, which are added to those that are recognized, or replace them.  Of a file of MMDetection
        or MMDeploy, only ``classes`` and ``preprocessing``.
    config : path, optional
        Of a model of transformers, the folder with ``config.json`` and ``preprocessor_config.json``; of a file of
        PaddleDetection, ``infer_cfg.yml`` or its folder, which needs PyYAML; of a file of MMDetection or MMDeploy, the
        detector's config.
    preset : str, optional
        The exporter, by its name in `mmort.onnx.adopt.presets.PRESETS`, of a file that does not say it.
    try_image : path, optional
        An image with objects to find, on which guesses are tried, beside images of digits.
    show : path, optional
        An image file for what the guesses find in `try_image`, side by side.
    force : bool, default False
        Whether to replace `output` if it exists.

    Returns
    -------
    Adoption
        What was understood, as text a few lines.

    Raises
    ------
    Question
        If the file does not say all that is needed, and runs do not show it; a ValueError whose text has the
        arguments that would say it.  Nothing is written then.
    ValueError
        If the file is not a detector's, an entry of the layout is missing or wrong, or the adopted file does not run
        or contradicts the layout.  Nothing is written then.
    ImportError
        If onnx or onnxruntime is not installed, or PyYAML for a config of PaddleDetection.
    OSError
        If a file cannot be read or written, or `output` exists and `force` is false.

    Examples
    --------
    A file whose only output has a row (x, y, width, height, score) for each box:

    >>> import pathlib, tempfile
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.onnx
    >>> rows = np.array([[[10, 20, 30, 40, 0.9]]], np.float32)
    >>> nodes = [oh.make_node("ReduceMean", ["image"], ["mean"], axes=[1, 2, 3], keepdims=1),
    ...          oh.make_node("Reshape", ["mean", "shape"], ["flat"]), oh.make_node("Mul", ["flat", "zero"], ["none"]),
    ...          oh.make_node("Add", ["none", "rows"], ["found"])]
    >>> weights = {"shape": np.array([-1, 1, 1]), "zero": np.float32(0), "rows": rows}
    >>> image = oh.make_tensor_value_info("image", 1, ["n", 3, 96, 96])
    >>> found = oh.make_tensor_value_info("found", 1, ["n", 1, 5])
    >>> tensors = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    >>> model = oh.make_model(oh.make_graph(nodes, "example", [image], [found], tensors),
    ...                       opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    >>> path = pathlib.Path(tempfile.mkdtemp(), "model.onnx")
    >>> onnx.save(model, path)
    >>> print(mmort.onnx.adopt(path, path.with_name("detector.onnx"), {
    ...     "boxes": "found[:4]", "box_format": "xywh", "scores": "found[4:]", "classes": ["digit"],
    ...     "preprocessing": {"size": [96, 96], "keep_ratio": False}}))
    file of  an unknown exporter
    input    image [?, 3, 96, 96]: blue, green, red; stretched to 96 x 96
    boxes    found[:4]: xywh in pixels of the input
    scores   found[4:]
    classes  1: digit
    then     no suppression, scores above 0, at most 300 detections
    >>> detections = mmort.Predictor(path.with_name("detector.onnx"))(np.zeros((48, 96, 3), np.uint8))
    >>> detections.boxes.tolist(), detections.names
    ([[10.0, 10.0, 40.0, 30.0]], ('digit',))
    """
    with needed_by("mmort.onnx.adopt"):
        from mmort.onnx.adopt.adopt_file import adopt_file
    folder, image, sheet = (None if file is None else Path(file) for file in (config, try_image, show))
    return adopt_file(path, output, layout, AdoptOptions(folder, preset, image, sheet, force))
