"""Adopting a file: read it, recognize its layout, append what makes detections, check it by a run, and write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import mmort
from mmort.contract import Metadata, write
from mmort.contract.metadata import is_complete
from mmort.onnx.adopt import mmdetection
from mmort.onnx.adopt.decode import append_decoder
from mmort.onnx.adopt.layout import OUTPUT_ENTRIES, Layout, merged
from mmort.onnx.adopt.recognize import PIXEL_MASK, ForeignFile, Tensor, recognize
from mmort.onnx.adopt.summary import Adoption
from mmort.onnx.adopt.trial import NOISE, check_meaning, run_trial
from mmort.onnx.describe import describe
from mmort.onnx.graph import files, inspection
from mmort.onnx.verify.random_inputs import check_stated_sizes
from mmort.onnx.verify.sessions import open_session, refusals
from mmort.predict.engines.onnxruntime import OnnxNetwork

_ALL = 2**24
"""More boxes than any file has, and exact as a float32."""


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
    if config is not None and not Path(config).exists():
        raise FileNotFoundError(f"adopt: config does not exist: {config}")
    file = _foreign_file(path, None if config is None else Path(config))
    image = _described(file.image)
    if mmdetection.has_detections(file):
        chosen = mmdetection.read_layout(path, file.config, layout or {})
        model = files.load(path)
        _write_metadata(model, chosen)
        _save(model, output, path)
        return Adoption(mmdetection.EXPORTER, image, chosen, selects=False)
    exporter, entries = recognize(file)
    if config is not None and exporter != "transformers":
        raise ValueError(
            f"adopt: config is for files of transformers, MMDetection and MMDeploy, got a file of {exporter}"
        )
    entries = merged(entries, layout or {})
    if exporter == "transformers" and config is None and "preprocessing" not in entries:
        raise ValueError(
            "adopt: a file of transformers does not say its preprocessing; pass --config DIR, the folder with "
            "config.json and preprocessor_config.json"
        )
    chosen = Layout.read(entries, ", ".join(map(_described, file.outputs.values())))
    # All boxes of a trial are looked at: on noise, few or none pass a threshold.  Masks of all would take a GB.
    every_box = dataclasses.replace(
        chosen,
        iou_threshold=None,
        score_threshold=0.0,
        max_detections=_ALL,
        masks=None,
        prototypes=None,
        mask_format=None,
    )
    with files.replacing(output, keep_neighbours=True) as draft:
        try:
            _save(_adopted(path, every_box, file), draft, path)
            check_meaning(run_trial(OnnxNetwork(draft), chosen.prepare, pads=False), chosen)
            _save(_adopted(path, chosen, file), draft, path)
            run_trial(OnnxNetwork(draft), chosen.prepare, pads=False)
        except ValueError as error:
            raise ValueError(str(error).replace(str(draft), str(path))) from None
    named = [entry for entry in OUTPUT_ENTRIES if getattr(chosen, entry) is not None]
    read = {columns.output for entry in named for columns in chosen.parts(entry)}
    left_out = tuple(name for name in file.outputs if name not in read)
    return Adoption(exporter, image, chosen, left_out)


def _described(tensor: Tensor) -> str:
    """Return the name of an input or output, and its sizes."""
    return f"{tensor.name} [{', '.join('?' if size is None else str(size) for size in tensor.shape or ())}]"


def _save(model: onnx.ModelProto, path: files.PathLike, source: files.PathLike) -> None:
    """Check and write a model, which may have operators of mmort."""
    files.save(model, path, source, library=inspection.calls_operators(model))


def _adopted(path: files.PathLike, layout: Layout, file: ForeignFile) -> onnx.ModelProto:
    """Return the model with the decoder of a layout, and its metadata."""
    model = files.load(path)
    append_decoder(model, layout, file)
    _write_metadata(model, layout)
    return model


def _foreign_file(path: files.PathLike, config: Path | None) -> ForeignFile:
    """Return what recognizers look at."""
    facts = describe(path)
    if is_complete(facts["metadata"]):
        raise ValueError(f"adopt: {path} is a file of mmort already, which mmort predict runs")
    masks = [tensor for tensor in map(_tensor, facts["inputs"]) if tensor.name == PIXEL_MASK]
    images = [tensor for tensor in map(_tensor, facts["inputs"]) if tensor.name != PIXEL_MASK]
    shape = (images[0].shape or ()) if len(images) == 1 else ()
    if len(shape) not in (3, 4) or shape[-3] not in (3, None) or images[0].dtype != "float32":
        inputs = ", ".join(f"{value['name']} {value['type']} {value['shape']}" for value in facts["inputs"])
        raise ValueError(
            f"adopt: the file must have one input, an image of float32 [N, 3, H, W], and perhaps a {PIXEL_MASK}, got "
            f"{inputs}"
        )
    mask = masks[0] if masks else None
    if mask is not None and (len(mask.shape or ()) != 3 or mask.dtype not in ("int64", "float32", "bool")):
        raise ValueError(f"adopt: {PIXEL_MASK} must be int64 [N, H, W], float32 or bool, got {mask.dtype} {mask.shape}")
    outputs = {tensor.name: tensor for tensor in map(_tensor, facts["outputs"])}

    @cache
    def results() -> dict[str, NDArray[Any]]:
        return _results(path, images[0], mask)

    if any(tensor.shape is None for tensor in outputs.values()):
        outputs = {
            name: Tensor(name, str(array.dtype), (*[None] * (array.ndim - 1), array.shape[-1])[: array.ndim])
            for name, array in results().items()
        }
    return ForeignFile(images[0], mask, outputs, facts["metadata"], config, results)


def _tensor(facts: Mapping[str, Any]) -> Tensor:
    """Return an input or output as `describe` has it."""
    shape = facts["shape"]
    sizes = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
    return Tensor(facts["name"], facts["type"] or "", sizes)


def _results(path: files.PathLike, image: Tensor, mask: Tensor | None) -> dict[str, NDArray[Any]]:
    """Return the outputs of a file for an image of noise."""
    session = open_session(path)
    *leading, height, width = image.shape or ()
    shape = [size or number for size, number in zip(leading, (1, 3)[-len(leading) :], strict=True)]
    shape += [height or NOISE[0], width or NOISE[1]]
    check_stated_sizes([shape])
    noise = np.random.default_rng(0).random(shape, np.float32)
    values = {image.name: noise}
    if mask is not None:
        values[mask.name] = np.ones((shape[0], *shape[-2:]), mask.dtype)
    with refusals("adopt: the file does not run"):
        results = session.run(None, values)
    return dict(zip([output.name for output in session.get_outputs()], results, strict=True))


def _write_metadata(model: onnx.ModelProto, layout: Layout) -> None:
    """Add mmort's metadata to what the exporter wrote."""
    metadata = Metadata(
        classes=None if layout.classes is None else tuple(layout.classes),
        preprocessing=layout.prepare,
        mask_format=layout.format_of_masks,
        layout=layout.to_dict(),
        mmort_version=mmort.__version__,
    )
    write(model, metadata)
