"""The options of an export.  The help of ``mmort export`` is made from their documentation, so this imports little."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmort.configs.captions import Texts
    from mmort.onnx.portable.forms import Form

MIN_DYNAMO_OPSET = 18  # torch's older exporter makes lower ones

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The options of `export`; ``mmort export`` has an argument for each, whose help is the first sentence here.

    Parameters
    ----------
    cfg_options : dict or list of str, optional
        Overrides of the config by dotted key, a dict or ``key=value`` texts.
    texts : str, sequence of str or dict, optional
        What a detector with a language model looks for: names, a caption whose names end with ``". "``, or a dict of
        a ``text`` and its ``tokens_positive``.  The file then has them as constants, and they are its classes.
        Default: the classes of the config's test data set.
    open_vocabulary : bool, default False
        Make a file whose words are chosen when it runs (Grounding DINO), and the text encoder's, ``FILE.texts.onnx``,
        beside it.  `mmort.Predictor` needs that for them.  There are no `texts` then.
    vocabulary : path, optional
        The ``vocab.txt`` of the language model.  Default: that in the folder which the config names.
    input_img : path, optional
        Image to try the export with; the choice hardly matters.  Default: one that comes with mmort.
    test_img : path, optional
        Image for `verify` and `show`.  Default: `input_img`.
    shape : (int, int), optional
        Make a file for inputs of this height and width only; with `dynamic_export`, the size to try the export with.
    opset_version : int, optional
        ONNX opset; below 18, torch's older exporter is used.  Default: that of torch's exporter.  The older one has 11
        to 17; it freezes all sizes that it cannot trace, and a file with a wrongly frozen size is refused like any
        other that differs.
    dynamic_export : bool, optional
        Make a file for batches and inputs of all sizes.  Default: True, unless there is a `shape`.  If False, the file
        takes single images of `shape` or, without one, of the smallest size that holds every image of the test
        pipeline.
    skip_postprocess : bool, default False
        Export the heads' raw outputs (`Detector.raw`).
    paste_masks : bool, default False
        Output masks (N, K, H, W) of 0 and 1 over the whole input, as MMDetection's export does, or the map ``panoptic``
        (N, H, W) of a panoptic segmentation.  Otherwise masks are probabilities (N, K, h, w) over the area of each box.
    flip : bool, default True
        Detect in the mirror images too if the config's test pipeline does and the family has a flip test (CornerNet).
        The file then takes twice the time.
    simplify : bool, default False
        Remove redundant nodes with onnxslim.
    portable : bool or {"functions", "inlined"}, default False
        As for `mmort.onnx.export`.
    verify : bool, optional
        Also compare on `test_img`; if False, compare nothing, and write a file whose metadata says that it is not
        verified.  Of a file for all sizes, the additional images are `test_img` or else `input_img` and its mirror
        image, at 1.5 times the example's size.
    show : bool, default False
        Print the graph and the detections in `test_img`, and write an image of them beside the file, as ``FILE.png``.
        With a display, open it.
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
