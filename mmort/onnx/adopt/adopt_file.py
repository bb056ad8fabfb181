"""Adopting a file: read it, recognize its layout, append what makes detections, check it by a run, and write it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray

import mmort
from mmort._files.drafts import temporary_folder
from mmort._files.outputs import require_new, require_output
from mmort.configs.schema import suggested
from mmort.contract import Metadata, write
from mmort.contract.metadata import is_complete
from mmort.detections.drawing import contact_sheet
from mmort.images import read_image, write_image
from mmort.onnx.adopt import mmdetection
from mmort.onnx.adopt.decode import append_decoder
from mmort.onnx.adopt.evidence import CONFIDENT, decide, weigh
from mmort.onnx.adopt.foreign_file import NOISE, ForeignFile
from mmort.onnx.adopt.image_processors import UNSUPPORTED
from mmort.onnx.adopt.inputs import MEANINGS, Inputs, Tensor, example_feeds, read_inputs
from mmort.onnx.adopt.layout import OUTPUT_ENTRIES, Layout, merged
from mmort.onnx.adopt.options import AdoptOptions
from mmort.onnx.adopt.own_steps import own_steps
from mmort.onnx.adopt.paddle_config import NAMES as CONFIG_NAMES
from mmort.onnx.adopt.presets import (
    PRESETS,
    contradiction,
    fitting,
    has_queries,
    makes_inputs,
    matches_words,
    paddle_rows,
    picodet_maps,
    queries,
)
from mmort.onnx.adopt.question import Question
from mmort.onnx.adopt.recognize import recognize
from mmort.onnx.adopt.summary import Adoption, preprocessing_text
from mmort.onnx.adopt.trial import check_meaning, run_trial
from mmort.onnx.describe import describe
from mmort.onnx.graph import files, inspection
from mmort.onnx.verify.random_inputs import check_stated_sizes
from mmort.onnx.verify.sessions import open_session, refusals
from mmort.predict.engines.onnxruntime import OnnxRuntime
from mmort.predict.predictor import Predictor

IMAGES = sorted((Path(mmort.__file__).parent / "demo" / "digits" / "images").glob("*.png"))
"""The images that ship, which every file is tried with."""

_ALL = 2**24
"""More boxes than any file has, and exact as a float32."""


def adopt_file(
    path: files.PathLike,
    output: files.PathLike,
    layout: Mapping[str, Any] | None,
    options: AdoptOptions,
) -> Adoption:
    """Write a detector's file as mmort runs it; `mmort.onnx.adopt` describes the arguments."""
    files.check_output(output, force=options.force)
    if options.show is not None:
        if options.try_image is None:
            raise ValueError("adopt: show must come with try_image, the image that is drawn")
        require_output(options.show)
        if not options.force:
            require_new(options.show)
    config, stated = options.config, dict(layout or {})
    if config is not None and not config.exists():
        raise FileNotFoundError(f"adopt: config does not exist: {config}")
    file = _foreign_file(path, config, stated)
    image = _described(file.image)
    if (kind := file.image.dtype) != "float32" or file.inputs.channels_last:
        image += f" of {kind}{', channels last' if file.inputs.channels_last else ''}"
    if mmdetection.has_detections(file):
        if options.preset is not None:
            raise ValueError(f"adopt: preset must not be set for a file of {mmdetection.EXPORTER}; --config says it")
        chosen = mmdetection.read_layout(path, file.config, stated)
        model = files.load(path)
        _write_metadata(model, chosen)
        _save(model, output, path)
        return Adoption(mmdetection.EXPORTER, image, chosen, selects=False)
    if config is not None and options.preset is not None:
        raise ValueError("adopt: preset and config exclude each other: either says how an image becomes the input")
    exporter, candidates = _candidates(file, stated, options.preset)
    if config is not None and exporter not in ("transformers", "PaddleDetection"):
        raise ValueError(
            f"adopt: config is for files of transformers, MMDetection and MMDeploy, a folder or the detector's config, "
            f"and of PaddleDetection, {' or '.join(CONFIG_NAMES)}; got {config} for a file of "
            f"{exporter or 'an unknown exporter'}"
        )
    guessed = None
    if exporter is None:
        exporter, chosen, guessed = _weighed(path, file, candidates, options)
    else:
        (chosen,) = candidates.values()
    file = _with_columns(file, chosen)
    _check_rows(file, chosen)
    with files.replacing(output, keep_neighbours=True) as draft:
        _write_checked(path, chosen, file, draft)
    named = [entry for entry in OUTPUT_ENTRIES if getattr(chosen, entry) is not None]
    read = {columns.output for entry in named for columns in chosen.parts(entry)}
    left_out = tuple(name for name in file.outputs if name not in read)
    if guessed is None and options.try_image is not None and options.show is not None:
        tried = read_image(options.try_image)
        panel = exporter, tried, Predictor(output, score_threshold=CONFIDENT)(tried)
        write_image(options.show, contact_sheet([panel]))
    further = tuple(f"{_described(tensor)}: {MEANINGS[meaning]}" for tensor, meaning in file.inputs.further)
    return Adoption(exporter, image, chosen, left_out, guessed=guessed, further=further)


def _write_checked(path: files.PathLike, layout: Layout, file: ForeignFile, target: Path) -> None:
    """Write a file with the decoder of a layout; refuse one whose boxes contradict it, or that does not run."""
    try:
        _save(_adopted(path, _every_box(layout), file), target, path)
        check_meaning(run_trial(OnnxRuntime(target), layout.prepare, pads=False), layout)
        _save(_adopted(path, layout, file), target, path)
        run_trial(OnnxRuntime(target), layout.prepare, pads=False)
    except ValueError as error:
        raise ValueError(str(error).replace(str(target), str(path))) from None


def _with_columns(file: ForeignFile, layout: Layout) -> ForeignFile:
    """Return a file whose outputs have the numbers of columns of a run, where it does not state them."""
    axis = -2 if layout.columns_first else -1
    outputs = dict(file.outputs)
    for name, tensor in file.outputs.items():
        shape = [*(tensor.shape or ())]
        if len(shape) == 3 and shape[axis] is None:
            shape[axis] = file.results()[name].shape[axis]
            outputs[name] = tensor._replace(shape=tuple(shape))
    return file._replace(outputs=outputs)


def _check_rows(file: ForeignFile, layout: Layout) -> None:
    """Refuse outputs that have not a row for each box: other scores would be taken for those of a box."""
    counts = {}
    for entry in ("boxes", "scores", "labels", "objectness", "angle", "keypoints"):
        if getattr(layout, entry) is None:
            continue
        shapes = []
        for columns in layout.parts(entry):
            tensor = file.outputs.get(columns.output)
            if tensor is None:  # which the decoder names
                return
            shape = tensor.shape
            if shape is None or None in shape:
                shape = file.results()[columns.output].shape
            is_vector = len(shape) < (2 if len(file.image.shape or ()) == 3 else 3) and columns.end is None
            is_vector &= entry != "boxes" and columns.first == 0
            shapes.append(
                shape[-1] if is_vector or layout.columns_first else shape[-2] if len(shape) < 4 else shape[-3]
            )
        counts[entry] = sum(size or 0 for size in shapes)
    if len(set(counts.values())) > 1:
        text = ", ".join(f"{entry} {count}" for entry, count in counts.items())
        raise ValueError(f"adopt: outputs must have a row for each box, got rows of {text}; columns_first may differ")


def _every_box(layout: Layout) -> Layout:
    """Return a layout whose boxes are all looked at: on noise, few or none pass a threshold.

    Masks of all would take a GB.
    """
    no_masks: dict[str, Any] = {"masks": None, "prototypes": None, "mask_format": None}
    return dataclasses.replace(layout, iou_threshold=None, score_threshold=0.0, max_detections=_ALL, **no_masks)


def _candidates(
    file: ForeignFile, stated: Mapping[str, Any], preset: str | None
) -> tuple[str | None, dict[str, Layout]]:
    """Return the exporter, None if it is a guess, and the layouts that the file may have, by the names of presets."""
    if preset is not None:
        if preset not in PRESETS:
            raise ValueError(f"adopt: preset must be one of {', '.join(PRESETS)}, got {suggested(preset, PRESETS)}")
        entries = PRESETS[preset].entries(file)
        if entries is None:
            raise ValueError(
                f"adopt: preset {preset} must have outputs as {PRESETS[preset].exporter} writes them, got "
                f"{_listed(file)}"
            )
        return PRESETS[preset].exporter, {preset: _read(file, merged(entries, stated))}
    recognized = recognize(file)
    if recognized is not None:
        exporter, entries = recognized
        return exporter, {"": _read(file, merged(entries, stated))}
    if {"boxes", "box_format", "scores", "preprocessing"} <= set(stated):
        return "an unknown exporter", {"": _read(file, stated)}
    if "preprocessing" in stated and (entries := queries(file)) is not None:
        return "transformers", {"": _read(file, merged(entries, stated))}
    fits, contradicted = {}, ""
    for name, entries in fitting(file).items():
        reason = contradiction(file, entries)
        contradicted = reason or contradicted
        if reason is None:
            fits[name] = _read(file, merged(entries, stated))
    if contradicted and not fits:
        raise Question(
            f"adopt: the file's metadata contradicts all exporters that write its outputs: {contradicted}; pass "
            f"--preset {' or '.join(fitting(file))}, or --layout FILE.json; its outputs: {_listed(file)}"
        )
    if not fits:
        return "an unknown exporter", {"": _read(file, stated)}
    return None, {name: layout for name, layout in fits.items() if makes_inputs(file, layout.preprocessing)} or fits


def _read(file: ForeignFile, entries: Mapping[str, Any]) -> Layout:
    """Return a layout of entries; ask for those that are missing."""
    missing = Layout.missing(entries)
    if missing:
        raise Question(
            f"adopt: the file does not say what {', '.join(missing)} {'is' if len(missing) == 1 else 'are'}; pass "
            "--layout FILE.json or --set NAME=VALUE with it, or --preset NAME, which mmort adopt --presets lists; its "
            f"outputs: {_listed(file)}"
        )
    return Layout.read(entries)


def _listed(file: ForeignFile) -> str:
    """Return the outputs of a file; with the sizes of a run, where the file does not state them."""
    tensors = list(file.outputs.values())
    if any(None in (tensor.shape or (None,)) for tensor in tensors):
        with suppress(ValueError):
            results = file.results()
            tensors = [tensor._replace(shape=results[tensor.name].shape) for tensor in tensors]
            return f"{', '.join(map(_described, tensors))} for an image of {' x '.join(map(str, file.run_size()))}"
    return ", ".join(map(_described, tensors))


def _weighed(
    path: files.PathLike, file: ForeignFile, candidates: Mapping[str, Layout], options: AdoptOptions
) -> tuple[str, Layout, str]:
    """Return the candidate that runs on images leave, its exporter, and the evidence; ask if they do not decide.

    Draws what the candidates find if there is an image for that.
    """
    # Their config is beside them, and runs take long; none can tell OWLv2, which has no preset, from OWL-ViT.
    if has_queries(file) and (options.try_image is None or matches_words(file)):
        raise Question(_asking(file, candidates, {}))
    tried = [] if options.try_image is None else [options.try_image]
    images = [read_image(image) for image in (*tried, *IMAGES)]
    with temporary_folder() as folder:

        def draft(layout: Layout) -> Path:
            target = folder / "draft.onnx"
            _write_checked(path, layout, file, target)
            return target

        verdicts = weigh(candidates, images, draft, shown=len(tried) or len(images), scales=file.image.dtype != "uint8")
    drawn = [
        (f"{verdict.name}: {verdict}", images[0], verdict.outcome.detections[0].above(CONFIDENT))
        for verdict in verdicts
        if verdict.outcome.detections
    ]
    sheet = options.show if drawn else None
    if sheet is not None:
        write_image(sheet, contact_sheet(drawn))
    left = decide(verdicts)
    if left is None:
        raise Question(_asking(file, candidates, {verdict.name: str(verdict) for verdict in verdicts}, sheet))
    reason = left.evidence or "whatever the preprocessing is, the detections are the same"
    guess = f"{left.name}; in a run on {len(images)} images, {reason}"
    return PRESETS[left.name].exporter, left.layout, guess


def _asking(
    file: ForeignFile, candidates: Mapping[str, Layout], found: Mapping[str, str], drawn: Path | None = None
) -> str:
    """Return the candidates, the evidence of runs, and the arguments that choose one."""
    lines = [
        "adopt: the file does not say its exporter, nor how an image becomes its input, and runs do not show it; "
        "nothing was written; choose one"
    ]
    if has_queries(file):
        lines = [
            "adopt: a file of transformers does not say its preprocessing; pass --config DIR, the folder with "
            "config.json and preprocessor_config.json; nothing was written; or choose one"
        ]
    elif paddle_rows(file) or picodet_maps(file):
        lines = [
            f"adopt: a file of PaddleDetection does not say its preprocessing; pass --config {CONFIG_NAMES[0]}, which "
            "its exporter writes beside it; nothing was written; or choose one"
        ]
    width = max(map(len, candidates))
    for name, layout in candidates.items():
        described = f"{PRESETS[name].exporter}: {preprocessing_text(layout.prepare)}"
        verdict = f" ({found[name]})" if name in found else ""
        lines.append(f"  --preset {name:<{width}}  {described}{verdict}")
    of_other_sizes = [name for name in fitting(file) if name not in candidates] if has_queries(file) else []
    if of_other_sizes:
        size = ",".join(map(str, file.run_size()))
        lines.append(
            f"  --preset {' or '.join(of_other_sizes)} with --set preprocessing.size={size} "
            "preprocessing.keep_ratio=false  by default, its images have another size than the file takes"
        )
    if matches_words(file):
        lines.append(f"  OWLv2, whose outputs are the same, has no preset: {UNSUPPORTED['Owlv2']}")
    elif drawn is not None:
        lines.append(f"  {drawn} has the candidates side by side")
    else:
        lines.append(f"  {'--try IMAGE':<{width + 9}}  an image with objects to find, which may show it")
    lines.append(f"  --layout FILE.json or --set NAME=VALUE  another one; its outputs: {_listed(file)}")
    return "\n".join(lines)


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


def _foreign_file(path: files.PathLike, config: Path | None, layout: Mapping[str, Any]) -> ForeignFile:
    """Return a file as recognizers see it."""
    facts = describe(path)
    if is_complete(facts["metadata"]):
        raise ValueError(f"adopt: {path} is a file of mmort already, which mmort predict runs")
    inputs = read_inputs(list(map(_tensor, facts["inputs"])), layout)
    outputs = {tensor.name: tensor for tensor in map(_tensor, facts["outputs"])}

    @cache
    def results() -> dict[str, NDArray[Any]]:
        return _results(path, inputs)

    if any(tensor.shape is None for tensor in outputs.values()):
        outputs = {
            name: Tensor(name, str(array.dtype), (*[None] * (array.ndim - 1), array.shape[-1])[: array.ndim])
            for name, array in results().items()
        }
    model = files.load(path)
    operators = frozenset(node.op_type for node in inspection.every_node(model))
    steps = own_steps(model, inputs.image.name)
    return ForeignFile(inputs, outputs, facts["metadata"], config, operators, steps, results)


def _tensor(facts: Mapping[str, Any]) -> Tensor:
    """Return an input or output as `describe` has it."""
    shape = facts["shape"]
    sizes = None if shape is None else tuple(size if isinstance(size, int) else None for size in shape)
    return Tensor(facts["name"], facts["type"] or "", sizes)


def _results(path: files.PathLike, inputs: Inputs) -> dict[str, NDArray[Any]]:
    """Return the outputs of a file for an image of noise."""
    session = open_session(path)
    height, width = NOISE
    *_, rows, columns = inputs.image.shape or ()
    number = (inputs.image.shape or (None,))[0] or 1
    check_stated_sizes([[number, 3, rows or height, columns or width]])
    feeds = example_feeds(inputs, height, width)
    with refusals("adopt: the file does not run"):
        results = session.run(None, feeds)
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
