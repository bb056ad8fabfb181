"""The options of an export, and what can be checked of them before any work starts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mmort._files.inputs import refuse_address, require_regular
from mmort._files.outputs import require_onnx_output
from mmort.configs.captions import Texts
from mmort.contract import path_of_encoder
from mmort.onnx.portable.forms import Form
from mmort.ort.sessions import require_model_name

MIN_OPSET = 11
MIN_DYNAMO_OPSET = 18  # torch's older exporter makes lower ones

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`; ``mmort export`` has an argument for each.

    Parameters
    ----------
    cfg_options : dict or list of str, optional
        Overrides of the config by dotted key, a dict or ``key=value`` texts.
    texts : str, sequence of str or dict, optional
        What a detector with a language model looks for: names, a caption whose names end with ``". "``, or a dict of
        a ``text`` and its ``tokens_positive``.  The file then has them as constants, and they are its classes.
        Default: the classes of the config's test data set.
    open_vocabulary : bool, default False
        Make a file whose words are chosen when it runs (Grounding DINO), and beside ``FILE.onnx`` the text encoder's,
        ``FILE.texts.onnx``, which `mmort.Predictor` needs for them.  There are no `texts` then.
    vocabulary : path, optional
        The ``vocab.txt`` of the language model.  Default: that in the folder which the config names.
    input_img : path, optional
        Image to try the export with.  Default: one that comes with mmort; the choice hardly matters.
    test_img : path, optional
        Image for `verify` and `show`.  Default: `input_img`.
    shape : (int, int), optional
        Height and width of the file's input, or if `dynamic_export` is True, of the example only.
    opset_version : int, optional
        Default: that of torch's exporter.  Below 18, torch's older exporter is used, which has 11 to 17; it freezes all
        sizes that it cannot trace, and a file with a wrongly frozen size is refused like any other that differs.
    dynamic_export : bool, optional
        Whether batch, height and width vary.  Default: True, unless there is a `shape`.  If False, the file takes
        single images of `shape` or, without one, of the smallest size that holds every image of the test pipeline.
    skip_postprocess : bool, default False
        Export the heads' raw outputs (`Detector.raw`).
    paste_masks : bool, default False
        Output masks (N, K, H, W) of 0 and 1 over the whole input, as MMDetection's export does, instead of
        probabilities (N, K, h, w) over the area of each box.  Of a panoptic segmentation, output its map ``panoptic``
        (N, H, W) too.
    flip : bool, default True
        Detect in the mirror images too if the config's test pipeline does and the family has a flip test (CornerNet).
        The file then takes twice the time.
    simplify : bool, default False
    portable : bool or {"functions", "inlined"}, default False
        As for `mmort.onnx.export`.
    verify : bool, optional
        True: compare on `test_img`, too.  In a file for all sizes, that is on `test_img` or else `input_img` and on its
        mirror image, at 1.5 times the example's size.  False: compare nothing, and write an unproven file, whose
        metadata has ``verified``: ``false``.
    show : bool, default False
        Print the graph and the detections in `test_img`, and write an image of them beside the file, with the suffix
        ``.png``; with a display, open it.
    """

    cfg_options: Mapping[str, Any] | Iterable[str] | None = None
    texts: Texts | None = None
    open_vocabulary: bool = False
    vocabulary: PathLike | None = None
    input_img: PathLike | None = None
    test_img: PathLike | None = None
    shape: tuple[int, int] | None = None
    opset_version: int | None = None
    dynamic_export: bool | None = None
    skip_postprocess: bool = False
    paste_masks: bool = False
    flip: bool = True
    simplify: bool = False
    portable: bool | Form = False
    verify: bool | None = None
    show: bool = False

    @property
    def dynamic(self) -> bool:
        """Whether the file takes inputs of all sizes."""
        return self.shape is None if self.dynamic_export is None else self.dynamic_export

    @property
    def exporter(self) -> str:
        """The one of torch's exporters that has the opset."""
        legacy = self.opset_version is not None and self.opset_version < MIN_DYNAMO_OPSET
        return "legacy" if legacy else "dynamo"


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
