"""Models of OpenMMLab's other packages, exported from the packages' own code: ``mmort export --original``.

Models of MMPretrain, MMSegmentation, MMPose and MMOCR are not written again here.  Their packages build the model of a
config, on today's torch with `mmort.mmcv` in place of MMCV's compiled half, and `mmort.onnx.export` traces it and
proves the file.  Config and checkpoint are read as ever, without executing either, but **the packages' code is
executed**, which is what the option says.

`packages` imports a package with what today's torch needs; `building` builds and loads a model; `known` stands for the
information on images that a model may read; `cut` ends the original at a call, whose tensors are the file's outputs,
and runs the rest of it on a file's; `shims` are the lines of the originals that torch cannot trace; `adapters`,
`poses` and `texts` have a class for each task, `inputs` the sizes to export and prove with, `ends` the comparison of
the end results, and `exporting` the steps.

Importing this package needs neither torch nor the packages; `export` imports them when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mmort.detect.export.options import ExportOptions
    from mmort.onnx import Report

__all__ = ["check", "export"]


def _print(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def export(
    config: str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    output_file: str | os.PathLike[str] = "tmp.onnx",
    options: ExportOptions | None = None,
    *,
    progress: Callable[[str], None] = _print,
) -> Report:
    """Export a model of MMPretrain, MMSegmentation, MMPose or MMOCR to an ONNX file, from the package's own code.

    The file is written only if it is proven, and if the end results of an image are the original's.

    * Input: ``input`` (N, 3, H, W), as `mmort.predict.Preprocessing` makes it.
    * Output of a classifier: ``scores`` (N, K), the probability of each class.
    * Output of a semantic segmentation: ``logits`` (N, K, H, W), of each class in each pixel of ``input``.
    * Outputs of a top-down pose estimator: what its codec decodes, ``simcc_x`` and ``simcc_y``, ``heatmaps`` or
      ``points``; the input is a part of an image around a box.
    * Output of a text recognition: ``characters`` (N, T, K), the probability of each character at each step.
    * Output of a text detection: ``probability`` (N, H, W), of a text in each pixel of ``input``.
    * Metadata: those of detectors' files; ``mmort_contract`` states the task, ``segmentation`` the windows that the
      config slides over an image, ``pose`` the codec and the keypoints, ``recognition`` the characters,
      ``text_detection`` how polygons are made, and ``palette`` the colours of classes.

    Parameters
    ----------
    config, checkpoint : path
        Of MMPretrain 1, MMSegmentation 1, MMPose 1 or MMOCR 1.
    output_file : path, default "tmp.onnx"
        Its directory must exist.
    options : ExportOptions, optional
        Those that are not for detectors only.  By default files of segmentations and text detections take images of all
        sizes, and others any number of images of the size that the test pipeline makes.
    progress : callable
        Takes the lines to print.

    Returns
    -------
    mmort.onnx.Report
        The comparisons, all of which agree; none if `verify` is false.

    Raises
    ------
    ImportError
        If a package is not installed; the message has the command that installs it.
    ValueError
        If the config is not of these packages, config and checkpoint do not match, an option is for detectors only,
        the original reads what a file cannot know, torch cannot trace it, or the file does not compute the same.
    OSError
        If a file or the output directory does not exist.
    """
    from mmort.detect.export.checks import check
    from mmort.detect.export.options import ExportOptions

    options = ExportOptions() if options is None else options
    check(config, checkpoint, Path(output_file), options)
    from mmort.original.exporting import export_original

    return export_original(config, checkpoint, Path(output_file), options, progress)


def check(
    config: str | os.PathLike[str],
    options: ExportOptions | None = None,
    *,
    progress: Callable[[str], None] = _print,
) -> str:
    """Build a config's model with random weights and trace it, and write nothing.

    Parameters
    ----------
    config, options, progress
        As for `export`.

    Returns
    -------
    str
        What the model is: the types of its head and its backbone.

    Raises
    ------
    ImportError, ValueError, OSError
        As for `export`.
    """
    from mmort.detect.export.options import ExportOptions
    from mmort.original.exporting import check_original

    return check_original(config, ExportOptions() if options is None else options, progress)
