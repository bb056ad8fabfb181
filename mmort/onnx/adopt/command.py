"""Adopting a file: read it, recognize its layout, append the decoder, check the result by a run, and write it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray

import mmort
from mmort.onnx.adopt.decode import append_decoder
from mmort.onnx.adopt.layout import Layout
from mmort.onnx.adopt.recognize import ForeignFile, Tensor, recognize
from mmort.onnx.adopt.report import Adoption
from mmort.onnx.describe import describe
from mmort.onnx.graph import files
from mmort.onnx.verify.sessions import open_session, refusals
from mmort.predict.engines.onnxruntime import OnnxNetwork
from mmort.predict.postprocessing import check_outputs

_NOISE = 480, 640
"""Height and width of the image of noise that a file is tried with."""

_MAX_STRANGE = 0.05
"""Share of detections whose boxes may be odd before the layout counts as wrong; networks place some oddly."""


def adopt_file(
    path: files.PathLike,
    output: files.PathLike,
    layout: Mapping[str, Any] | None,
    config: files.PathLike | None,
    *,
    force: bool,
) -> Adoption:
    """Write a detector's file as mmort runs it; `mmort.onnx.adopt` describes the arguments."""
    files.check_output(output, force=force)
    model = files.load(path)
    file = _foreign_file(path, None if config is None else Path(config))
    exporter, entries = recognize(file)
    chosen = Layout.read(_merged(entries, layout or {}))
    append_decoder(model, chosen, file.outputs, file.image.name)
    _write_metadata(model, chosen)
    with files.replacing(output, keep_neighbours=True) as draft:
        try:
            files.save(model, draft, path, library=False)
            _check(OnnxNetwork(draft), chosen)
        except ValueError as error:
            raise ValueError(str(error).replace(str(draft), str(path))) from None
    sizes = ", ".join("?" if size is None else str(size) for size in file.image.shape or ())
    return Adoption(exporter, f"{file.image.name} [{sizes}]", chosen)


def _foreign_file(path: files.PathLike, config: Path | None) -> ForeignFile:
    """Return what recognizers look at."""
    facts = describe(path)
    if {"classes", "preprocessing", "mmort_version"} <= set(facts["metadata"]):
        raise ValueError(f"adopt: {path} is a file of mmort already, which mmort predict runs")
    images = [tensor for tensor in map(_tensor, facts["inputs"]) if len(tensor.shape or ()) in (3, 4)]
    if len(facts["inputs"]) != 1 or len(images) != 1 or images[0].dtype != "float32":
        inputs = ", ".join(f"{value['name']} {value['type']} {value['shape']}" for value in facts["inputs"])
        raise ValueError(f"adopt: the file must have one input, an image of float32 [N, 3, H, W], got {inputs}")
    outputs = {tensor.name: tensor for tensor in map(_tensor, facts["outputs"])}
    if any(tensor.shape is None for tensor in outputs.values()):
        outputs = _outputs_of_run(path, images[0])
    return ForeignFile(images[0], outputs, facts["metadata"], config)


def _tensor(facts: Mapping[str, Any]) -> Tensor:
    """Return an input or output as `describe` has it."""
    shape = facts["shape"]
    sizes = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
    return Tensor(facts["name"], facts["type"] or "", sizes)


def _outputs_of_run(path: files.PathLike, image: Tensor) -> dict[str, Tensor]:
    """Return the outputs of a file that does not state their dimensions, by running it on noise."""
    session = open_session(path)
    *leading, height, width = image.shape or ()
    shape = [size or number for size, number in zip(leading, (1, 3)[-len(leading) :], strict=True)]
    shape += [height or _NOISE[0], width or _NOISE[1]]
    noise = np.random.default_rng(0).random(shape, np.float32)
    with refusals("adopt: the file does not run"):
        results = session.run(None, {image.name: noise})
    names = [output.name for output in session.get_outputs()]
    return {
        name: Tensor(name, str(result.dtype), (*[None] * (result.ndim - 1), result.shape[-1])[: result.ndim])
        for name, result in zip(names, results, strict=True)
    }


def _merged(entries: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return entries with others added or replaced, those of inner dicts one by one."""
    merged = dict(entries)
    for name, value in more.items():
        inner = merged.get(name)
        merged[name] = _merged(inner, value) if isinstance(inner, dict) and isinstance(value, Mapping) else value
    return merged


def _write_metadata(model: onnx.ModelProto, layout: Layout) -> None:
    """Add mmort's metadata to what the exporter wrote."""
    entries = {entry.key: entry.value for entry in model.metadata_props} | {
        "preprocessing": json.dumps(layout.prepare.to_dict()),
        "layout": layout.to_json(),
        "mmort_version": mmort.__version__,
    }
    if layout.classes is not None:
        entries["classes"] = json.dumps(layout.classes)
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, entries)


def _check(network: OnnxNetwork, layout: Layout) -> None:
    """Run an adopted file on noise, and refuse detections that contradict the layout."""
    prepare, (height, width) = layout.prepare, _NOISE
    size = prepare.resized_size(width, height)
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), np.uint8)
    prepared = prepare.finish(noise, (height, width))
    for expected, got, side in zip(network.input_shape[1:], prepared.pad_shape, ("height", "width"), strict=True):
        if expected not in (None, got):
            raise ValueError(
                f"adopt: preprocessing must make inputs of {side} {expected}, the only one that the file takes, got "
                f"{got}"
            )
    batch, img_shape = prepare.batch([prepared] * (network.input_shape[0] or 1))
    with refusals("adopt: the adopted file does not run"):
        outputs = network(batch, img_shape)
    check_outputs(outputs, len(batch))
    dets, labels = outputs[0].reshape(-1, 5), outputs[1].reshape(-1)
    _check_detections(dets[labels >= 0], labels[labels >= 0], layout, max(prepared.pad_shape))


def _check_detections(dets: NDArray[np.float32], labels: NDArray[np.int64], layout: Layout, side: int) -> None:
    """Refuse detections in an input of some side that contradict the layout, naming the entry that would explain it."""
    if not len(dets):
        return
    boxes, scores = dets[:, :4], dets[:, 4]
    if not (scores <= 1).all():
        raise ValueError(f"adopt: scores must be at most 1, got {scores.max():g}; activation may be sigmoid or softmax")
    if layout.classes is not None and labels.max() >= len(layout.classes):
        raise ValueError(
            f"adopt: classes must have a name for each label, got {len(layout.classes)} names and label "
            f"{labels.max()}; background, first or last, is no class"
        )
    turned = (boxes[:, :2] > boxes[:, 2:]).any(axis=1)
    if turned.mean() > _MAX_STRANGE:
        raise ValueError(
            f"adopt: {turned.mean():.0%} of the boxes of a trial end before they begin; box_format may be another than "
            f"{layout.box_format}"
        )
    extent = np.quantile(np.abs(boxes), 0.95)
    if layout.box_unit == "pixels" and extent <= 2:
        raise ValueError(f"adopt: boxes of a trial lie within {extent:.2g} pixels; box_unit may be relative")
    if layout.box_unit == "relative" and extent > 10 * side:
        raise ValueError(f"adopt: boxes of a trial reach {extent / side:.0f} times the input; box_unit may be pixels")
