"""From a config and a checkpoint to an ONNX file that is known to detect the same: what ``mmort export`` does."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import mmort
import mmort.onnx
from mmort.detect.config import read_config
from mmort.detect.detector import Detector
from mmort.detect.families.cornernet import CornerNet
from mmort.detect.families.detr import DETR
from mmort.detect.loading import build, load_trained
from mmort.detect.versions import Config, test_config
from mmort.onnx.verify.sessions import open_session
from mmort.predict.images import Image, read_image
from mmort.predict.preprocessing import Preprocessing

DEFAULT_IMAGE = Path(mmort.__file__).parent / "demo" / "images" / "digits_05.png"
SHAPE = 800, 1216


def export(
    config: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    output_file: str | os.PathLike[str] = "tmp.onnx",
    *,
    options: Mapping[str, Any] | Iterable[str] | None = None,
    input_img: str | os.PathLike[str] | None = None,
    test_img: str | os.PathLike[str] | None = None,
    shape: tuple[int, int] | None = None,
    opset_version: int | None = None,
    dynamic_export: bool = False,
    skip_postprocess: bool = False,
    paste_masks: bool = False,
    simplify: bool = False,
    portable: bool = False,
    verify: bool = False,
    show: bool = False,
    progress: Callable[[str], None] = print,
) -> mmort.onnx.Report:
    """Export a detector to an ONNX file, and prove that ONNX Runtime finds with it what torch finds.

    The file appears only if the proof succeeds.  Its inputs are ``input`` [N, 3, H, W], as `Preprocessing` makes it,
    and ``img_shape`` [N, 2], which may be left out: height and width of each image within `input`; 0 stands for all of
    it.  (ONNX Runtime counts ``img_shape`` among the overridable initializers, and warns of it.)  Its outputs are
    ``dets`` [N, K, 5] (x1, y1, x2, y2 in pixels of `input`, score), ``labels`` [N, K] of int64, and ``masks``
    [N, K, h, w] from detectors that give masks; rows that are not used are 0 with label -1.  Its metadata holds
    ``family``, ``classes``, ``preprocessing``, ``thresholds`` (the config's ``test_cfg``) and ``mmort_version``, all
    but the first and last as JSON.

    Parameters
    ----------
    config, checkpoint : path
        MMDetection's, 2.x or 3.x.
    output_file : path
        Its folder must exist.
    options : dict or list of str, optional
        Over the config: as for `read_config`.
    input_img : path, optional
        The picture that the export is tried with.  By default one that comes with mmort: which one hardly matters.
    test_img : path, optional
        The picture for `verify`.  Default: `input_img`.
    shape : (int, int), optional
        Height and width of the example, and with a static export those of the file.  Default: 800, 1216; where the test
        pipeline resizes to one size whatever the picture, as SSD's does, that size, twice as large if `dynamic_export`.
    opset_version : int, optional
        Default: that of torch's exporter.  Below 18 the older exporter is used, which has 11 to 17; it freezes every
        size that it cannot trace, and what it has frozen is refused as any other difference.
    dynamic_export : bool
        Let batch, height and width vary.  Else they are 1 and `shape`.
    skip_postprocess : bool
        Give the heads' outputs as they are (`Detector.raw`).
    paste_masks : bool
        Give masks [N, K, H, W] of 0 and 1 over the whole input, as MMDetection's export did, instead of probabilities
        [N, K, h, w] over the area of each box.
    simplify, portable : bool
        As for `mmort.onnx.export`.
    verify : bool
        Compare on `test_img` too (dynamic: on it and its mirror image, at 1.5 times `shape`), and print the tables.
    show : bool
        Print the graph, and what was detected in `test_img`.
    progress : callable
        Gets the lines to print.

    Returns
    -------
    mmort.onnx.Report
        What was compared; all of it agrees.

    Raises
    ------
    ValueError
        If something cannot be read, does not fit or is not supported, or what ONNX Runtime finds differs.
    """
    output_file = Path(output_file)
    if not output_file.parent.is_dir():
        raise FileNotFoundError(f"{output_file.parent} is no folder to write {output_file.name} to")
    with _phase(progress, f"reading {os.fspath(config)}"):
        settings = read_config(config, options)
        detector = build(settings)
        preprocessing = Preprocessing.from_config(settings)
    with _phase(progress, f"loading {os.fspath(checkpoint)} into {_article(detector.family)}"):
        load_trained(detector, checkpoint, settings)
    _match_pipeline(detector, preprocessing, progress)
    with _phase(progress, f"preparing {os.fspath(input_img or 'an example')}"):
        picture = read_image(input_img or DEFAULT_IMAGE)
        test_picture = read_image(test_img) if test_img else picture
        height, width = shape or _default_shape(preprocessing, dynamic_export)
        if min(height, width) < 1:
            raise ValueError(f"export: shape must be positive, got {height} {width}")
        example = Example(preprocessing, dynamic_export, not skip_postprocess)
        args = example(picture, 2 if dynamic_export else 1, height, width)
        checks = example.checks(picture, height, width)
    module = (
        _Raw(detector) if skip_postprocess else _Exported(detector, _mask_threshold(settings) if paste_masks else None)
    )
    masks = _has_masks(detector)
    legacy = opset_version is not None and opset_version < 18
    sizes = ", ".join(f"{one[0].shape[0]}x3x{one[0].shape[2]}x{one[0].shape[3]}" for one in (args, *checks))
    with tempfile.TemporaryDirectory(prefix=".mmort-", dir=output_file.parent) as folder:
        draft = Path(folder, output_file.name)
        with _phase(progress, f"exporting, and comparing ONNX Runtime with torch at {sizes}"):
            report = _to_file(
                module,
                args,
                draft,
                output_file,
                dynamic_shapes=example.dynamic_shapes,
                check_sizes=checks,
                opset_version=opset_version,
                output_names=None if skip_postprocess else ["dets", "labels", "masks"][: 3 if masks else 2],
                portable=portable,
                simplify=simplify,
                exporter="legacy" if legacy else "dynamo",
            )
        if verify:
            factor = 1.5 if dynamic_export else 1
            test_size = (
                example.rounded(min(1344, side * factor)) if dynamic_export else side for side in (height, width)
            )
            test_args = example(test_picture, 2 if dynamic_export else 1, *test_size)
            with _phase(progress, f"verifying with {os.fspath(test_img or input_img or 'the example')}"):
                more = mmort.onnx.verify(draft, module, [test_args])
            report = mmort.onnx.Report((*report.rows, *more.rows))
            progress(str(report))
            if not report.ok:
                raise ValueError(f"{output_file} was not written, as ONNX Runtime does not detect what torch does")
        model = onnx.load(draft)
        if not skip_postprocess:
            _make_optional(model, "img_shape")
        onnx.helper.set_model_props(model, _metadata(detector, preprocessing, settings))
        onnx.save(model, draft)
        if not skip_postprocess:
            _check_optional(draft, args)
        if show:
            progress(onnx.printer.to_text(_without_weights(model)))
            progress(_listed(module, detector.classes, example(test_picture, 1, height, width)))
        os.replace(draft, output_file)
    progress(f"wrote {output_file}, {output_file.stat().st_size / 1e6:.1f} MB")
    return report


def _to_file(
    module: nn.Module, args: tuple[Tensor, ...], draft: Path, output_file: Path, **settings: Any
) -> mmort.onnx.Report:
    """Export; errors name the file that was asked for, and those of torch's exporters are a line each."""
    try:
        with redirect_stdout(StringIO()):  # torch's older exporter prints whole graphs, onnxslim a table
            return mmort.onnx.export(module, args, draft, **settings)
    except mmort.onnx.VerificationError as error:
        text = re.sub(rf"\S*\.mmort-\S*{re.escape(draft.name)}", str(output_file), str(error))
        raise mmort.onnx.VerificationError(text, error.report) from None
    except (ValueError, ImportError):
        raise
    except Exception as error:  # torch's exporters have no class of their own for it
        cause = error.__cause__ or error
        reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
        raise ValueError(
            f"export: torch's {settings['exporter']} exporter cannot export this: {reason.strip()}"
        ) from error


class Example:
    """Makes inputs to export and compare with."""

    def __init__(self, preprocessing: Preprocessing, dynamic: bool, with_shapes: bool) -> None:
        self.preprocessing, self.dynamic, self.with_shapes = preprocessing, dynamic, with_shapes

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """What `mmort.onnx.export` is told."""
        if not self.dynamic:
            return None
        shapes: dict[str, Any] = {"input": {0: "batch", 2: "height", 3: "width"}}
        return shapes | {"img_shape": {0: "batch"}} if self.with_shapes else shapes

    def __call__(self, picture: Image, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Return a batch of the picture and its mirror image, and so on, at exactly one size.

        The images are smaller one by one, so that ``img_shape`` has something to say.
        """
        inputs, shapes = [], []
        for place in range(batch):
            own_height, own_width = (max(1, side - side * place // 8) for side in (height, width))
            prepare = replace(
                self.preprocessing, size=(own_width, own_height), keep_ratio=False, size_divisor=1, pad_or=0
            )
            inputs.append(prepare(np.ascontiguousarray(picture[:, ::-1]) if place % 2 else picture))
            shapes.append((own_height, own_width))
        input, _ = self.preprocessing.batch(inputs)
        return (torch.from_numpy(input), torch.tensor(shapes)) if self.with_shapes else (torch.from_numpy(input),)

    def checks(self, picture: Image, height: int, width: int) -> list[tuple[Tensor, ...]]:
        """Return inputs to compare with: of other sizes if they may vary, higher than wide and wider than high."""
        if not self.dynamic:
            args = self(picture[::-1], 1, height, width)
            return [args, (args[0].flip(-1), *args[1:])]
        # Where pictures are resized to one size, so small maps of 1 pixel are frozen that only much larger ones show.
        smallest, factors = (64, (0.5, 0.3)) if self.preprocessing.keep_ratio else (544, (1.125, 1.25))
        short, long = (
            [self.rounded(max(smallest, side * factor)) for factor in factors] for side in sorted((height, width))
        )
        step = self.preprocessing.pad_or + 1 if self.preprocessing.pad_or else 32
        return [
            self(picture, 1, max(long[0], short[0] + step), short[0]),
            self(picture, 3, short[1], max(long[1], short[1] + step)),
        ]

    def rounded(self, side: float) -> int:
        """Return a side, or the next longer one, that suits every network: a multiple of 32, CornerNet's are odd."""
        pad_or = self.preprocessing.pad_or
        return int(side) | pad_or if pad_or else -(-int(side) // 32) * 32


class _Exported(nn.Module):
    """A detector with the inputs and outputs of the file; with a threshold, masks are pasted."""

    def __init__(self, detector: Detector, mask_threshold: float | None) -> None:
        super().__init__()
        self.detector, self.mask_threshold = detector, mask_threshold
        self.eval()

    def forward(self, input: Tensor, img_shape: Tensor) -> tuple[Tensor, ...]:
        height, width = (torch.scalar_tensor(side, dtype=torch.int64) for side in input.shape[2:])
        whole = torch.stack([height, width])
        outputs = self.detector(input, torch.where(img_shape > 0, torch.minimum(img_shape, whole), whole))
        if self.mask_threshold is None or len(outputs) < 3:
            return outputs  # type: ignore[no-any-return]
        dets, labels, masks = outputs
        return dets, labels, _paste(masks, dets, input.shape[2], input.shape[3], self.mask_threshold)


class _Raw(nn.Module):
    """A detector without its post-processing."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector
        self.eval()

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        return self.detector.raw(input)


def _paste(masks: Tensor, boxes: Tensor, height: int, width: int, threshold: float) -> Tensor:
    """Paste masks [N, K, h, w] into [N, K, H, W] of 0 and 1: `results.paste_masks` in torch."""
    rows = _shares(boxes[..., 1], boxes[..., 3], height, masks.shape[2])  # [N, K, H, h]
    columns = _shares(boxes[..., 0], boxes[..., 2], width, masks.shape[3])  # [N, K, W, w]
    return (rows @ masks @ columns.transpose(2, 3) >= threshold).to(masks.dtype)


def _shares(low: Tensor, high: Tensor, pixels: int, cells: int) -> Tensor:
    """Return how much of each cell between `low` and `high` [N, K] each pixel takes, [N, K, pixels, cells]."""
    low, high = low[..., None], high[..., None]
    pixel = torch.arange(pixels, device=low.device)
    inside = (pixel >= low.floor() - 1) & (pixel < high.ceil() + 1)  # [N, K, pixels]
    share = torch.where(high > low, (pixel + 0.5 - low) / torch.where(high > low, high - low, 1), 0.5)
    position = share * cells - 0.5
    near = (1 - (position[..., None] - torch.arange(cells, device=low.device)).abs()).clamp(min=0)
    return near * inside[..., None]


def _has_masks(detector: Detector) -> bool:
    return bool(getattr(getattr(detector, "roi_head", None), "with_mask", False))


def _mask_threshold(config: Config) -> float:
    cfg = test_config(config)
    threshold: float = cfg.get("rcnn", cfg).get("mask_thr_binary", 0.5)
    return threshold


def _default_shape(preprocessing: Preprocessing, dynamic: bool) -> tuple[int, int]:
    if preprocessing.keep_ratio or preprocessing.size is None:
        return SHAPE
    # torch freezes a size of 1, which SSD's last map has at its own size.
    width, height = (2 * side if dynamic else side for side in preprocessing.size)
    return height, width


def _match_pipeline(detector: Detector, preprocessing: Preprocessing, progress: Callable[[str], None]) -> None:
    """Let the file do what the config's test does: each picture for itself, and mirrored too where it says so."""
    if isinstance(detector, DETR):
        detector.isolate_images()
    if isinstance(detector, CornerNet):
        detector.flip_test = preprocessing.flip
    elif preprocessing.flip:
        progress("left out: the mirrored pictures of the config's test pipeline, which only CornerNet's file has")


def _metadata(detector: Detector, preprocessing: Preprocessing, config: Config) -> dict[str, str]:
    return {
        "family": detector.family,
        "classes": json.dumps(detector.classes),
        "preprocessing": json.dumps(preprocessing.to_dict()),
        "thresholds": json.dumps(test_config(config)),
        "mmort_version": mmort.__version__,
    }


def _make_optional(model: onnx.ModelProto, name: str) -> None:
    """Give an input [N, 2] a default that is used when it is left out: one row of zeros, for every image."""
    graph = model.graph
    (formal,) = (one for one in graph.input if one.name == name)
    formal.type.tensor_type.shape.dim[0].dim_param = f"{name}_rows"  # 1 or N
    of_each = f"{name}_of_each"
    _rename(graph, name, of_each)
    graph.initializer.append(onnx.numpy_helper.from_array(np.zeros((1, 2), np.int64), name))
    for suffix, value in (("first", [0]), ("two", [2])):
        graph.initializer.append(onnx.numpy_helper.from_array(np.array(value, np.int64), f"{name}_{suffix}"))
    nodes = [
        onnx.helper.make_node("Shape", [graph.input[0].name], [f"{name}_input_shape"]),
        onnx.helper.make_node("Gather", [f"{name}_input_shape", f"{name}_first"], [f"{name}_batch"], axis=0),
        onnx.helper.make_node("Concat", [f"{name}_batch", f"{name}_two"], [f"{name}_shape"], axis=0),
        onnx.helper.make_node("Expand", [name, f"{name}_shape"], [of_each]),
    ]
    for place, node in enumerate(nodes):
        node.name = f"{name}_{place}"
        graph.node.insert(place, node)


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name == old:
                node.input[place] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename(inner, old, new)


def _check_optional(path: Path, args: Sequence[Tensor]) -> None:
    """Make sure that leaving ``img_shape`` out is the same as giving the size of the input."""
    input = args[0].numpy()
    session = open_session(path)
    whole = np.array([input.shape[2:]] * len(input), np.int64)
    results = session.run(None, {"input": input}), session.run(None, {"input": input, "img_shape": whole})
    if not all(np.array_equal(one, other) for one, other in zip(*results, strict=True)):
        raise ValueError("export: without img_shape the file gives other detections than with that of the input")


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.initializer[:], bare.functions[:]
    return bare


def _listed(module: nn.Module, classes: Sequence[str], args: tuple[Tensor, ...]) -> str:
    """List what was detected, by descending score; of raw outputs, their shapes."""
    with torch.no_grad():
        outputs = module(*args)
    if isinstance(module, _Raw):
        return "\n".join(f"output {place}: {[*one.shape]}" for place, one in enumerate(outputs))
    lines = ["score  class  x1, y1, x2, y2"]
    rows: NDArray[np.float32] = outputs[0][0].numpy()
    for row, label in zip(rows, outputs[1][0].tolist(), strict=True):
        if label >= 0 and row[4] >= 0.3:
            name = classes[label] if label < len(classes) else str(label)
            lines.append(f"{row[4]:.3f}  {name}  {', '.join(f'{edge:.1f}' for edge in row[:4])}")
    return "\n".join(lines)


def _article(family: str) -> str:
    return f"an {family}" if family[:2] in ("FC", "FS", "SS") else f"a {family}"  # FCOS, FSAF, SSD are spelt out


@contextmanager
def _phase(progress: Callable[[str], None], text: str) -> Iterator[None]:
    """Print a line for a piece of work that is done, with the time it took."""
    begin = time.perf_counter()
    yield
    progress(f"{text}: {time.perf_counter() - begin:.1f} s")
