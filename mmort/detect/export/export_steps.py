"""The steps of an export: read, load, trace, finish, compare, write."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import mmort
from mmort import contract
from mmort.configs.layout import DetectorConfig
from mmort.configs.reader import read_for_export
from mmort.configs.schema import Config
from mmort.contract import Preprocessing, path_of_encoder
from mmort.contract.tasks import IMG_SHAPE, MASKS
from mmort.detect.claims import branch_of
from mmort.detect.detector import Detector
from mmort.detect.export import head_outputs, show
from mmort.detect.export.examples import Examples, sufficient_shape
from mmort.detect.export.exported_detector import Exported, ExportedWithProposals, ExportedWithTexts, Raw
from mmort.detect.export.open_vocabulary import OpenVocabulary
from mmort.detect.export.options import ExportOptions, PathLike
from mmort.detect.export.progress import Steps, muted
from mmort.detect.export.proof import Matches, check_optional, noisy_views
from mmort.detect.loading import build, load_trained
from mmort.detect.network import TorchNetwork
from mmort.images import Image, as_channels
from mmort.onnx import Report
from mmort.onnx.export import exporters
from mmort.onnx.export.draft import Draft, expected_outputs
from mmort.onnx.export.options import Options
from mmort.onnx.graph import inspection
from mmort.onnx.graph.optional_inputs import make_optional
from mmort.onnx.verify.values import index_of_smallest
from mmort.predict import FixedSizeWarning, Predictor, read_image
from mmort.predict.fixed_size import mismatch

DEFAULT_IMAGE = Path(mmort.__file__).parent / "demo" / "digits" / "images" / "digits_05.png"


def export_detector(
    config: PathLike, checkpoint: PathLike, output_file: Path, options: ExportOptions, progress: Callable[[str], None]
) -> Report:
    """Implement `mmort.detect.export.export`."""
    images = _images(options)
    with Steps(progress) as steps:
        steps.begin(f"reading {os.fspath(config)}")
        settings = read_for_export(config, options.cfg_options)
        detector = build(settings)
        preprocessing = Preprocessing.from_config(settings, **detector.box_settings)
        if not options.flip:
            preprocessing = replace(preprocessing, flip=False)
        steps.begin(f"loading {os.fspath(checkpoint)} into {detector.family}")
        named_by_config = load_trained(
            detector,
            checkpoint,
            settings,
            options.texts,
            options.vocabulary,
            open_vocabulary=options.open_vocabulary,
        )
        if not detector.classes and not options.open_vocabulary:
            steps.progress("note: the checkpoint names no classes, so that detections have numbers instead of names")
        elif named_by_config:
            steps.progress("note: the checkpoint names no classes; those of the config's test data set are taken")
        left_out = detector.prepare_for_export(flip=preprocessing.flip)
        left_out += DetectorConfig(settings).test_time_augmentation
        if branch_of(DetectorConfig(settings)) == "detector":
            left_out += ("the tracker, as the file detects in single images",)
        network = TorchNetwork(detector, preprocessing, left_out)
        return _write(network, settings, output_file, options, steps, images)


def export_loaded(
    network: TorchNetwork, config: Config, output_file: Path, options: ExportOptions, progress: Callable[[str], None]
) -> Report:
    """Implement `mmort.detect.export.export_network`."""
    images = _images(options)
    with Steps(progress) as steps:
        return _write(network, config, output_file, options, steps, images)


def _images(options: ExportOptions) -> tuple[Image, Image]:
    """Read the example and the test image."""
    image = read_image(options.input_img or DEFAULT_IMAGE)
    return image, image if options.test_img is None else read_image(options.test_img)


def _input_image(path: PathLike | None, image: Image, preprocessing: Preprocessing) -> NDArray[Any]:
    """Return an image with the channels of the detector: its file's, or those of the one that comes with mmort."""
    if preprocessing.color_type == "color":
        return image
    if path is not None:
        return read_image(path, preprocessing.color_type)
    if preprocessing.color_type == "grayscale":
        return as_channels("export", image, "grayscale")
    return np.take(image, np.arange(preprocessing.channels) % 3, axis=2)


def _write(
    network: TorchNetwork,
    config: Config,
    output_file: Path,
    options: ExportOptions,
    steps: Steps,
    images: tuple[Image, Image],
) -> Report:
    """Export a detector that is ready for it."""
    detector = network.detector
    for omission in network.left_out:
        steps.progress(f"left out: {omission}")
    if detector.flip_test:
        steps.progress(show.flip_test_text(detector))
    metadata = _metadata(detector, network.preprocessing, DetectorConfig(config).test_cfg)
    return _Export(detector, network.preprocessing, metadata, options, steps, images).write(output_file)


def _metadata(detector: Detector, preprocessing: Preprocessing, thresholds: dict[str, Any]) -> contract.Metadata:
    """Return the metadata of a detector's file."""
    return contract.Metadata(
        family=detector.family,
        classes=detector.classes,
        preprocessing=preprocessing,
        thresholds=thresholds,
        angle_version=detector.angle_version,
        mmort_version=mmort.__version__,
    )


class _Export:
    """An export of a loaded detector: its example, and the steps that change, accept and show its file."""

    def __init__(
        self,
        detector: Detector,
        preprocessing: Preprocessing,
        metadata: contract.Metadata,
        options: ExportOptions,
        steps: Steps,
        images: tuple[Image, Image],
    ) -> None:
        self.detector, self.metadata, self.options, self.steps = detector, metadata, options, steps
        self.module: Raw | Exported = Raw(detector)
        if detector.takes_proposals and (options.skip_postprocess or options.show):
            option = "skip_postprocess" if options.skip_postprocess else "show"
            raise ValueError(f"export: {option} must be False for {detector.family}, which takes proposals")
        self.vocabulary = OpenVocabulary(detector, options.vocabulary) if options.open_vocabulary else None
        if not options.skip_postprocess:
            kind = ExportedWithProposals if detector.takes_proposals else Exported
            kind = ExportedWithTexts if options.open_vocabulary else kind
            self.module = kind(detector, pasted=options.paste_masks)
        self.traced = self.module if options.skip_postprocess else head_outputs.WithHeads(self.module, detector)
        self.draft: Draft | None = None
        """The file in the making, once it is traced."""
        self.matches = Matches()
        image = _input_image(options.input_img, images[0], preprocessing)
        self.test_image = _input_image(options.test_img or options.input_img, images[1], preprocessing)
        self.shown_image = images[1]
        self.examples = Examples(
            preprocessing,
            dynamic=options.dynamic,
            with_shapes=not options.skip_postprocess,
            with_proposals=detector.takes_proposals,
        )
        self.height, self.width = options.shape or self.examples.default_shape()
        if options.dynamic and options.shape is None:
            self.height, self.width = sufficient_shape(
                detector, preprocessing.channels, self.height, self.width, self.examples.rounded
            )
        self.args = self.examples(image, 2 if options.dynamic else 1, self.height, self.width)
        self.checks = self.examples.checks(image, self.height, self.width)
        if options.shape is None:
            self.checks.append(self.examples.prepared(image))
        self.dynamic_shapes = self.examples.dynamic_shapes
        if self.vocabulary is not None:
            self.dynamic_shapes = (self.dynamic_shapes or {}) | self.vocabulary.shapes()
            self.args = self.vocabulary.insert(self.args, 0)
            self.checks = [self.vocabulary.insert(args, example) for example, args in enumerate(self.checks, 1)]
        if not options.dynamic and (difference := mismatch(preprocessing, self.height, self.width)):
            warnings.warn(
                f"the file takes inputs of {self.height} x {self.width} only, but {difference}; by default files take "
                "inputs of all sizes",
                FixedSizeWarning,
                stacklevel=2,
            )

    def write(self, output_file: Path) -> Report:
        """Write the file, if it passes all comparisons."""
        options = self.options
        settings = Options(
            dynamic_shapes=self.dynamic_shapes,
            check_sizes=self.checks,
            opset_version=options.opset_version,
            output_names=self._output_names(),
            portable=options.portable,
            simplify=options.simplify,
            exporter=options.exporter,
            verify=options.verify is not False,
        )
        if self.vocabulary is None:
            report = self._accepted(output_file, settings)
        else:
            self.metadata = replace(self.metadata, texts=self.vocabulary.encoder_file(output_file))
            with self.vocabulary.written(output_file, options, self.steps.begin):
                report = self._accepted(output_file, settings)
        self.steps.end()
        if options.verify is not False:
            self.steps.progress(str(report))
            if text := str(self.matches):
                self.steps.progress(text)
        if options.show:
            self._show(output_file)
        unproven = ", NOT VERIFIED: it has not been compared with torch" if options.verify is False else ""
        sizes = "all sizes" if options.dynamic else f"{self.height} x {self.width} only"
        megabytes = output_file.stat().st_size / 1e6
        self.steps.progress(f"wrote {output_file}, {megabytes:.1f} MB, for inputs of {sizes}{unproven}")
        if self.vocabulary is not None:
            encoder = path_of_encoder(output_file)
            megabytes = encoder.stat().st_size / 1e6
            self.steps.progress(f"wrote {encoder}, {megabytes:.1f} MB, the text encoder: keep it beside the other file")
        return report

    def _output_names(self) -> list[str]:
        """Return the names of the traced module's outputs."""
        names = list(self.module.output_names)
        if isinstance(self.traced, head_outputs.WithHeads):
            self.steps.begin("running the detector in torch")
            inputs = [self.args, *self.checks]
            outputs = expected_outputs(self.traced, inputs[index_of_smallest(inputs)])
            names += [head_outputs.PREFIX + name for name in self.traced.names(len(outputs) - len(names))]
        return names

    def _show(self, output_file: Path) -> None:
        """Print the graph; print and draw the detections, or print the shapes of raw outputs."""
        self.steps.progress(show.graph_text(output_file))
        if self.options.skip_postprocess:
            self.steps.progress(show.outputs_text(output_file, self.args))
            return
        prepare = self.examples.resizing(self.height, self.width)
        detections = Predictor(output_file, preprocessing=prepare, score_threshold=show.MIN_SCORE)(self.test_image)
        self.steps.progress(show.detections_text(detections))
        self.steps.progress(show.show_image(output_file.with_suffix(".png"), self.shown_image, detections))

    def _accepted(self, output_file: Path, settings: Options) -> Report:
        """Trace, edit, compare and accept the draft of the file."""
        try:
            with Draft(self.traced, self.args, output_file, settings) as draft:
                self._trace(draft, settings.exporter)
                self._finish(draft.artifact.model)
                self.draft = draft
                return draft.accept(self._prove(draft) if settings.verify else None)
        except ValueError:
            if settings.exporter == "legacy" and self.options.dynamic:
                self.steps.progress(
                    "torch's older exporter, which opsets below 18 need, freezes sizes that it cannot trace; --static "
                    "and --shape make files of one size"
                )
            raise

    def _trace(self, draft: Draft, exporter: str) -> None:
        """Trace the draft quietly; turn errors of torch's exporters into a ValueError of one line."""
        self.steps.begin(f"exporting with torch's {exporter} exporter")
        try:
            with muted():
                draft.trace()
        except (ValueError, ImportError, OSError):
            raise
        except Exception as error:  # torch's exporters have no common exception
            cause = error.__cause__ or error
            reason = next((line for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            raise ValueError(f"export: torch's {exporter} exporter cannot export this: {reason.strip()}") from error

    def _finish(self, model: onnx.ModelProto) -> None:
        """Give the model its optional input and its metadata, which is the last step before the comparison."""
        if not self.options.skip_postprocess:
            head_outputs.hide(model)
            make_optional(model, IMG_SHAPE.name, portable=bool(self.options.portable))
        metadata = self.metadata
        if isinstance(self.module, Exported) and MASKS.name in self.detector.output_names:
            metadata = replace(metadata, mask_format=self.module.mask_format)
        contract.write(model, metadata)
        if not self.options.skip_postprocess:
            contract.check("export", model)
        exporters.remove_traces(model)
        model.ir_version = inspection.needed_format(model)  # so that older ONNX Runtimes load it

    def _prove(self, draft: Draft) -> Report:
        """Compare the draft with torch, also on the test image, and without ``img_shape``."""
        options = self.options
        # An image as the test pipeline makes it, which is among the checks, shows what the larger example would.
        inputs = self.checks if options.dynamic and options.shape is None else [self.args, *self.checks]
        if options.verify and (options.dynamic or options.test_img is not None):  # otherwise the example again
            test = self.examples.test_inputs(self.test_image, self.height, self.width)
            inputs = [*inputs, test if self.vocabulary is None else self.vocabulary.insert(test, 0)]
        sizes = ", ".join("x".join(map(str, args[0].shape)) for args in inputs)
        self.steps.begin(f"comparing ONNX Runtime with torch at {sizes}")
        if options.skip_postprocess:
            return draft.prove(inputs, begin=self.steps.begin)
        noisy = noisy_views(inputs)
        heads = head_outputs.among(draft.output_names)
        begin, matches = self.steps.begin, self.matches
        report = draft.prove(inputs, heads=heads, noisy=noisy, begin=begin, end_to_end=matches)
        if report.ok:
            check_optional(draft.artifact, min(inputs, key=lambda args: args[0].numel()))
        return report
