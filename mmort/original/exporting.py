"""The steps of an export from the original's own code: read, build, load, trace, prove, compare, write."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

import mmort
from mmort import contract
from mmort._files.drafts import temporary_folder
from mmort.configs.packages import PACKAGES, package_of
from mmort.configs.reader import read_for_export
from mmort.contract import SEGMENTATION, TEXT_DETECTION, TEXT_RECOGNITION, Preprocessing
from mmort.detect.export.export_steps import DEFAULT_IMAGE
from mmort.detect.export.options import MIN_DYNAMO_OPSET, ExportOptions, PathLike
from mmort.detect.export.progress import Steps, muted
from mmort.images import Image
from mmort.onnx import Report
from mmort.onnx.export import exporters
from mmort.onnx.export.draft import Draft
from mmort.onnx.export.options import Options
from mmort.onnx.graph import inspection
from mmort.original import shims
from mmort.original.adapters import Adapter, Classification
from mmort.original.building import Original, build, load, without_deprecations
from mmort.original.ends import compare, steps_on_images
from mmort.original.inputs import Inputs
from mmort.original.mask2former import segmentation_adapter
from mmort.original.poses import Pose
from mmort.original.texts import text_adapter
from mmort.predict import FixedSizeWarning, read_image
from mmort.predict.fixed_size import mismatch

_RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""ONNX's operators that draw numbers."""

_OF_DETECTORS = ("texts", "open_vocabulary", "vocabulary", "skip_postprocess", "paste_masks", "show")
"""Options that have no meaning here."""

ADAPTERS: dict[str, Callable[[Original], Adapter]] = {
    "mmpretrain": Classification,
    "mmseg": segmentation_adapter,
    "mmpose": Pose,
    "mmocr": text_adapter,
}
"""The adapters by the modules of packages."""


def export_original(
    config: PathLike, checkpoint: PathLike, output_file: Path, options: ExportOptions, progress: Callable[[str], None]
) -> Report:
    """Implement `mmort.original.export`."""
    image = read_image(options.input_img or DEFAULT_IMAGE)
    test_image = image if options.test_img is None else read_image(options.test_img)
    with Steps(progress) as steps:
        draft_of = _prepared(config, checkpoint, image, options, steps)
        with shims.applied(), without_deprecations():
            report = draft_of.write(output_file, test_image)
        steps.end()
        if options.verify is not False:
            steps.progress(str(report))
            steps.progress(draft_of.ends)
        unproven = ", NOT VERIFIED: it has not been compared with torch" if options.verify is False else ""
        size, height = draft_of.inputs.size, draft_of.inputs.height
        sizes = "all sizes" if height is None else f"a height of {height} and all widths"
        sizes = sizes if size is None else f"{size[0]} x {size[1]} only"
        megabytes = output_file.stat().st_size / 1e6
        steps.progress(f"wrote {output_file}, {megabytes:.1f} MB, for inputs of {sizes}{unproven}")
        return report


def check_original(config: PathLike, options: ExportOptions, progress: Callable[[str], None]) -> str:
    """Implement `mmort.original.check`."""
    with Steps(progress) as steps, temporary_folder() as folder:
        draft_of = _prepared(config, None, read_image(DEFAULT_IMAGE), options, steps)
        with shims.applied(), without_deprecations():
            draft_of.check(Path(folder, "x.onnx"))
        steps.end()
        return draft_of.adapter.original.family


def _prepared(
    config: PathLike, checkpoint: PathLike | None, image: Image, options: ExportOptions, steps: Steps
) -> _Export:
    """Return the export of a config's model, with random weights if there is no checkpoint."""
    _check(options)
    steps.begin(f"reading {os.fspath(config)}")
    settings = read_for_export(config, options.cfg_options)
    package = package_of(settings)
    if package is None:
        supported = ", ".join(f"{package.name} ({scope!r})" for scope, package in PACKAGES.items())
        raise ValueError(
            f"export: --original (original=True) is for configs of {supported}, and default_scope of "
            f"{os.fspath(config)} is {settings.get('default_scope')!r}; detectors are exported without it"
        )
    preprocessing = Preprocessing.from_config(settings)
    steps_on_images(settings)  # which refuses a pipeline that loads no image
    steps.begin(f"building the model with {package.name}'s own code")
    original = build(settings, package)
    if checkpoint is not None:
        steps.begin(f"loading {os.fspath(checkpoint)} into {original.family}")
        original = load(original, checkpoint)
    adapter = ADAPTERS[package.module](original)
    metadata = contract.Metadata(
        **{"classes": original.classes or None, **adapter.metadata()},
        task=adapter.task.name,
        family=original.family,
        preprocessing=preprocessing,
        mmort_version=mmort.__version__,
    )
    if metadata.classes is None and checkpoint is not None and adapter.task is not TEXT_RECOGNITION:
        steps.progress("note: neither checkpoint nor config names classes, so that results have numbers for names")
    height = preprocessing.line.height if preprocessing.line else None
    inputs = Inputs(adapter, preprocessing, image, _size(adapter, metadata, options), height)
    window = metadata.segmentation and metadata.segmentation.window
    if window and inputs.size is None and options.dynamic_export is None and not inputs.factor:
        steps.progress(f"note: the original takes windows of {window[1]} x {window[0]} only, and so does the file")
        inputs = Inputs(adapter, preprocessing, image, window[::-1])
    return _Export(adapter, metadata, inputs, options, steps)


def _check(options: ExportOptions) -> None:
    """Refuse options that are for detectors only."""
    for name in _OF_DETECTORS:
        if getattr(options, name):
            raise ValueError(f"export: {name} must not be set with --original: it is for detectors")
    if options.opset_version is not None and options.opset_version < MIN_DYNAMO_OPSET:
        raise ValueError(
            f"export: opset_version must be at least {MIN_DYNAMO_OPSET} with --original, got {options.opset_version}"
        )


def _size(adapter: Adapter, metadata: contract.Metadata, options: ExportOptions) -> tuple[int, int] | None:
    """Return the only height and width of inputs; None if the file takes all sizes."""
    preprocessing = metadata.preprocessing
    assert preprocessing is not None
    if adapter.task not in (SEGMENTATION, TEXT_DETECTION):
        if options.shape is not None or options.dynamic_export is not None:
            raise ValueError(
                f"export: shape and dynamic_export must not be set for {adapter.task.name}: the file takes images of "
                "the size that the test pipeline makes"
            )
        if preprocessing.fixed_shape is None and preprocessing.line is None:
            raise ValueError(f"export: the test pipeline of {adapter.task.name} must make inputs of one size")
        return preprocessing.fixed_shape
    if options.dynamic:
        return None
    window = metadata.segmentation and metadata.segmentation.window
    size = options.shape or (window[::-1] if window else preprocessing.largest_shape)
    if size is None:
        raise ValueError("export: shape (--shape H W) is needed, as the test pipeline keeps the sizes of images")
    return size[0], size[1]


class _Export:
    """An export of a loaded original.

    Attributes
    ----------
    ends : str
        How far the end results agree.
    """

    def __init__(
        self, adapter: Adapter, metadata: contract.Metadata, inputs: Inputs, options: ExportOptions, steps: Steps
    ) -> None:
        self.adapter, self.metadata, self.inputs, self.options, self.steps = adapter, metadata, inputs, options, steps
        self.ends = ""

    def check(self, output_file: Path) -> None:
        """Trace the original, and write nothing."""
        with self._draft(output_file, self.inputs.checks()) as draft:
            self._trace(draft)

    def _draft(self, output_file: Path, checks: list[tuple[Tensor]]) -> Draft:
        """Return a draft of the file, to be proven with some inputs."""
        options = self.options
        settings = Options(
            dynamic_shapes=self.inputs.dynamic_shapes,
            check_sizes=checks,
            opset_version=options.opset_version,
            input_names=[contract.tasks.INPUT.name],
            output_names=list(self.adapter.output_names),
            portable=options.portable,
            simplify=options.simplify,
            verify=options.verify is not False,
        )
        return Draft(self.adapter, self.inputs.example(), output_file, settings)

    def write(self, output_file: Path, image: Image) -> Report:
        """Write the file, if it passes all comparisons."""
        checks = self.inputs.checks()
        with self._draft(output_file, checks) as draft:
            self._trace(draft)
            self._finish(draft)
            report = None
            if self.options.verify is not False:
                sizes = ", ".join("x".join(map(str, check[0].shape)) for check in checks)
                self.steps.begin(f"comparing ONNX Runtime with torch at {sizes}")
                report = draft.prove(checks, begin=self.steps.begin)
                if report.ok:
                    self.ends = self._compare_ends(draft, image)
            return draft.accept(report)

    def _trace(self, draft: Draft) -> None:
        """Trace the draft quietly; turn errors of torch's exporter into a ValueError of one line."""
        self.steps.begin("exporting with torch's dynamo exporter")
        try:
            with muted():
                draft.trace()
        except (ImportError, OSError):
            raise
        except Exception as error:  # torch's exporters have no common exception
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            reason = next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
            if reason.startswith("export: "):
                raise ValueError(reason) from error
            advice = "; --shape H W makes a file for inputs of one size" if self.inputs.size is None else ""
            raise ValueError(f"export: torch cannot export the original: {reason}{advice}") from error
        random = sorted({node.op_type for node in inspection.every_node(draft.artifact.model)} & _RANDOM)
        if random:
            raise ValueError(
                f"export: the original draws random numbers in each run ({', '.join(random)}), so that no file has its "
                "results; an option of the model may make it draw them once, such as "
                "--cfg-options model.decode_head.ham_kwargs.rand_init=False of SegNeXt"
            )

    def _finish(self, draft: Draft) -> None:
        """Give the model its metadata, which is the last step before the comparison."""
        model = draft.artifact.model
        contract.write(model, self.metadata)
        contract.check("export", model)
        exporters.remove_traces(model)
        model.ir_version = inspection.needed_format(model)  # so that older ONNX Runtimes load it

    def _compare_ends(self, draft: Draft, image: Image) -> str:
        """Compare the end results of the draft with the original's, unless it takes inputs of another size."""
        preprocessing, size, segmentation = self.metadata.preprocessing, self.inputs.size, self.metadata.segmentation
        assert preprocessing is not None
        if size is not None and not (segmentation and segmentation.window) and preprocessing.fixed_shape != size:
            warnings.warn(
                f"the file takes inputs of {size[0]} x {size[1]} only, but {mismatch(preprocessing, *size)}; by "
                "default files take inputs of all sizes",
                FixedSizeWarning,
                stacklevel=2,
            )
            return "end results were not compared, as the original pads no image to the size of the file"
        self.steps.begin("comparing end results with the original's")
        return compare(self.adapter, draft.saved(), image)
