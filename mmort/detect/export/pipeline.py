"""The steps of an export: read, load, trace, finish, compare, write."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
from torch import nn

import mmort
from mmort.detect.config import read_config
from mmort.detect.detector import Detector
from mmort.detect.export import finishing, heads, listing
from mmort.detect.export.examples import Examples
from mmort.detect.export.wrappers import Exported, Raw
from mmort.detect.loading import build, load_trained
from mmort.detect.versions import test_config
from mmort.onnx import Report, VerificationError, files
from mmort.onnx import verify as compare
from mmort.onnx.export.options import Options
from mmort.onnx.export.pipeline import export_model
from mmort.predict import Preprocessing, read_image

DEFAULT_IMAGE = Path(mmort.__file__).parent / "demo" / "digits" / "images" / "digits_05.png"
MIN_DYNAMO_OPSET = 18  # torch's older exporter makes lower ones


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
    verify: bool | None = None,
    show: bool = False,
    progress: Callable[[str], None] = print,
) -> Report:
    """Export a detector to an ONNX file, after comparing its detections in ONNX Runtime with torch's.

    The file is written only if they agree, or if `verify` is false.

    * Inputs: ``input`` (N, 3, H, W), as `Preprocessing` makes it, and ``img_shape`` (N, 2) of int64, which may be left
      out: height and width of each image within ``input``; 0 means all of it.  (In portable files, which other run
      times must understand too, and below opset 15, ONNX Runtime lists ``img_shape`` as an overridable initializer,
      and warns of it.)
    * Outputs: ``dets`` (N, K, 5): x1, y1, x2, y2 in pixels of ``input``, and score; ``labels`` (N, K) of int64; and, if
      the detector has masks, ``masks`` (N, K, h, w).  Unused rows are 0 with label -1.
    * Metadata: ``family``, ``classes``, ``preprocessing``, ``thresholds`` (the config's ``test_cfg``), ``masks``
      (the `mmort.predict.MaskFormat`, if there are masks) and ``mmort_version``, all but the first and last as JSON.

    Parameters
    ----------
    config, checkpoint : path
        Of MMDetection 2.x or 3.x.
    output_file : path
        Its directory must exist.
    options : dict or list of str, optional
        Overrides of the config, as for `read_config`.
    input_img : path, optional
        Image to try the export with.  Default: one that comes with mmort; the choice hardly matters.
    test_img : path, optional
        Image for `verify`.  Default: `input_img`.
    shape : (int, int), optional
        Height and width of the example and, unless `dynamic_export`, of the file's input.  Default: 800, 1216; if the
        test pipeline resizes all images to one size, as SSD's does, that size, doubled if `dynamic_export`.
    opset_version : int, optional
        Default: that of torch's exporter.  Below 18, torch's older exporter is used, which has 11 to 17; it freezes all
        sizes that it cannot trace, and a file with a wrongly frozen size is refused like any other that differs.
    dynamic_export : bool
        Let batch, height and width vary.  Otherwise they are 1 and `shape`.
    skip_postprocess : bool
        Export the heads' raw outputs (`Detector.raw`).
    paste_masks : bool
        Output masks (N, K, H, W) of 0 and 1 over the whole input, as MMDetection's export does, instead of
        probabilities (N, K, h, w) over the area of each box.
    simplify, portable : bool
        As for `mmort.onnx.export`.
    verify : bool, optional
        True: also compare on `test_img` (if `dynamic_export`, on it and its mirror image, at 1.5 times `shape`), and
        print the tables.  False: compare nothing, and write an unproven file, whose metadata has ``verified``:
        ``false``.
    show : bool
        Print the graph, and the detections in `test_img`.
    progress : callable
        Takes the lines to print.

    Returns
    -------
    mmort.onnx.Report
        The comparisons, all of which agree; none if `verify` is false.

    Raises
    ------
    ValueError
        If the config, the checkpoint or an image cannot be read or is not supported, if config and checkpoint do not
        match, or if ONNX Runtime's detections differ from torch's.
    OSError
        If a file or the output directory does not exist.
    """
    output_file = Path(output_file)
    if not output_file.parent.is_dir():
        raise FileNotFoundError(f"output directory does not exist: {output_file.parent}")
    steps = _Steps(progress)
    settings = read_config(config, options)
    detector = build(settings)
    preprocessing = Preprocessing.from_config(settings)
    steps.done(f"reading {os.fspath(config)}")
    load_trained(detector, checkpoint, settings)
    steps.done(f"loading {os.fspath(checkpoint)} into {detector.family}")
    for omission in detector.prepare_for_export(flip=preprocessing.flip):
        progress(f"left out: {omission}")
    choices = ExportOptions(
        input_img=input_img,
        test_img=test_img,
        shape=shape,
        opset_version=opset_version,
        dynamic=dynamic_export,
        raw=skip_postprocess,
        paste_masks=paste_masks,
        simplify=simplify,
        portable=portable,
        verify=verify,
        show=show,
    )
    metadata = finishing.metadata(detector, preprocessing, test_config(settings))
    return _Export(detector, preprocessing, metadata, choices, steps).write(output_file)


@dataclass(frozen=True)
class ExportOptions:
    """The options of an export besides config and checkpoint; `export` documents them."""

    input_img: str | os.PathLike[str] | None = None
    test_img: str | os.PathLike[str] | None = None
    shape: tuple[int, int] | None = None
    opset_version: int | None = None
    dynamic: bool = False
    raw: bool = False
    paste_masks: bool = False
    simplify: bool = False
    portable: bool = False
    verify: bool | None = None
    show: bool = False

    @property
    def exporter(self) -> str:
        """The one of torch's exporters that has the opset."""
        legacy = self.opset_version is not None and self.opset_version < MIN_DYNAMO_OPSET
        return "legacy" if legacy else "dynamo"


class _Export:
    """An export of a loaded detector: its example, and the steps that change, accept and show its file."""

    def __init__(
        self,
        detector: Detector,
        preprocessing: Preprocessing,
        metadata: dict[str, str],
        options: ExportOptions,
        steps: _Steps,
    ) -> None:
        self.detector, self.metadata, self.options, self.steps = detector, metadata, options, steps
        self.module: nn.Module = Raw(detector)
        if not options.raw:
            self.module = Exported(detector, pasted=options.paste_masks)
        image = read_image(options.input_img or DEFAULT_IMAGE)
        self.test_image = read_image(options.test_img) if options.test_img else image
        self.examples = Examples(preprocessing, dynamic=options.dynamic, with_shapes=not options.raw)
        self.height, self.width = options.shape or self.examples.default_shape()
        if min(self.height, self.width) < 1:
            raise ValueError(f"export: shape must be positive, got {self.height} {self.width}")
        self.args = self.examples(image, 2 if options.dynamic else 1, self.height, self.width)
        self.checks = self.examples.checks(image, self.height, self.width)
        steps.done(f"preparing {os.fspath(options.input_img or 'an example')}")

    def write(self, output_file: Path) -> Report:
        """Write the file, if it passes all comparisons."""
        options = self.options
        settings = Options(
            dynamic_shapes=self.examples.dynamic_shapes,
            check_sizes=self.checks,
            opset_version=options.opset_version,
            output_names=list(self.detector.raw_names if options.raw else self.detector.output_names),
            portable=options.portable,
            simplify=options.simplify,
            exporter=options.exporter,
            verify=options.verify is not False,
            finish=self._finish,
        )
        report = self._trace(output_file, settings)
        if options.verify:
            self.steps.progress(str(report))
        if options.show:
            self.steps.progress(listing.graph_text(onnx.load(output_file, load_external_data=False)))
            args = self.examples(self.test_image, 1, self.height, self.width)
            self.steps.progress(listing.outputs_text(self.module, args, self.detector.classes))
        unproven = ", NOT VERIFIED: nobody has compared it with torch" if options.verify is False else ""
        self.steps.progress(f"wrote {output_file}, {output_file.stat().st_size / 1e6:.1f} MB{unproven}")
        return report

    def _trace(self, output_file: Path, settings: Options) -> Report:
        """Run `mmort.onnx`'s export quietly; turn errors of torch's exporters into a ValueError of one line."""
        stdout = sys.stdout

        def accept(draft: Path, report: Report) -> Report:
            with redirect_stdout(stdout):
                return self._accept(draft, output_file, report)

        try:
            with redirect_stdout(StringIO()):  # torch's older exporter prints whole graphs, onnxslim a table
                return export_model(self.module, self.args, output_file, replace(settings, accept=accept))
        except (ValueError, ImportError, OSError):
            raise
        except Exception as error:  # torch's exporters have no common exception
            cause = error.__cause__ or error
            reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            raise ValueError(
                f"export: torch's {settings.exporter} exporter cannot export this: {reason.strip()}"
            ) from error

    def _finish(self, model: onnx.ModelProto) -> None:
        """Give the model its optional input and its metadata."""
        if not self.options.raw:
            finishing.make_optional(model, "img_shape", portable=self.options.portable)
        metadata = dict(self.metadata)
        if isinstance(self.module, Exported) and "masks" in self.detector.output_names:
            metadata["masks"] = json.dumps(self.module.mask_format.to_dict())
        onnx.helper.set_model_props(model, metadata)
        finishing.remove_traces(model)
        model.ir_version = files.needed_format(model)  # so that older ONNX Runtimes load it

    def _accept(self, draft: Path, output_file: Path, report: Report) -> Report:
        """Check the file without ``img_shape``, on the test image, and by its heads where there are few detections."""
        if self.options.verify is False:
            self.steps.done("exporting")
            return report
        inputs = [self.args, *self.checks]
        sizes = ", ".join("x".join(map(str, args[0].shape)) for args in inputs)
        self.steps.done(f"exporting, and comparing ONNX Runtime with torch at {sizes}")
        if not self.options.raw:
            finishing.check_optional(draft, min(inputs, key=lambda args: args[0].numel())[0])
        if self.options.verify:
            inputs.append(self.examples.test_inputs(self.test_image, self.height, self.width))
            report = Report((*report.rows, *compare(draft, self.module, inputs[-1:]).rows))
            options = self.options
            self.steps.done(f"verifying with {os.fspath(options.test_img or options.input_img or 'the example')}")
        if not self.options.raw and heads.few_detections(report, inputs):
            report = heads.add_outputs(report, draft, self.detector, self.module, inputs)
            self.steps.done("comparing the outputs of the heads, as there are few detections")
        if not report.ok:
            text = (
                f"export: {output_file} was not written, as its outputs in ONNX Runtime differ from torch's\n{report}"
            )
            raise VerificationError(text, report)
        return report


class _Steps:
    """Prints a line for each finished step, with the time since the step before."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress, self.begin = progress, time.perf_counter()

    def done(self, step: str) -> None:
        """Print a step and its time."""
        now = time.perf_counter()
        self.progress(f"{step}: {now - self.begin:.1f} s")
        self.begin = now
