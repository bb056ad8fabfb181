"""Export of detectors to ONNX files, the function behind ``mmort export``.

`checks` looks at the `options` before any work; `pipeline` has the steps in order, and `progress` prints them;
`examples` makes the inputs that a file is traced and compared with; `exported_detector`, `graph_masks` and
`graph_panoptic` give the file its inputs and outputs, and `open_vocabulary` the text encoder beside it; `head_outputs`
gives the outputs of heads names, and `proof` chooses the inputs that show most of a detector; `show` is what ``--show``
shows.

Importing this package needs neither torch nor onnx; `export` imports them when it is called.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from mmort.detect.export.options import ExportOptions

if TYPE_CHECKING:
    from mmort.configs.schema import Config
    from mmort.detect.network import TorchNetwork
    from mmort.onnx import Report

__all__ = ["ExportOptions", "export", "export_network"]


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
    """Export a detector to an ONNX file, after comparing its detections in ONNX Runtime with torch's.

    The file is written only if they agree, or if the option `verify` is false.

    * Inputs: ``input`` (N, 3, H, W), as `Preprocessing` makes it, and ``img_shape`` (N, 2) of int64, which may be left
      out: height and width of each image within ``input``; 0 means all of it.  (In portable files, which other run
      times must understand too, and below opset 15, ONNX Runtime lists ``img_shape`` as an overridable initializer,
      and warns of it.)
      Detectors without a network for proposals (Fast R-CNN) also take ``proposals`` (N, P, 4): x1, y1, x2, y2 in pixels
      of ``input``, of which rows of 0 are unused.
    * Outputs: ``dets`` (N, K, 5): x1, y1, x2, y2 in pixels of ``input``, and score; ``labels`` (N, K) of int64; and, if
      the detector has masks, ``masks`` (N, K, h, w).  Unused rows are 0 with label -1.
    * Metadata: ``family``, ``classes``, ``preprocessing``, ``thresholds`` (the config's ``test_cfg``), ``masks``
      (the `mmort.predict.MaskFormat`, if there are masks), ``mmort_contract`` (the version of this contract, and the
      task) and ``mmort_version``, all but the first and last as JSON.

    Parameters
    ----------
    config, checkpoint : path
        Of MMDetection 2.x or 3.x.
    output_file : path, default "tmp.onnx"
        Its directory must exist.
    options : ExportOptions, optional
        By default the file takes inputs of all sizes.
    progress : callable
        Takes the lines to print.

    Returns
    -------
    mmort.onnx.Report
        The comparisons, all of which agree; none if `verify` is false.

    Warns
    -----
    mmort.predict.FixedSizeWarning
        If the file takes inputs of one size only, and the config's test pipeline makes others.

    Raises
    ------
    ImportError
        If a package that the options need is not installed.
    ValueError
        If the config, the checkpoint or an image cannot be read or is not supported, if config and checkpoint do not
        match, if an option is out of range, or if ONNX Runtime's detections differ from torch's.
    OSError
        If a file or the output directory does not exist.
    """
    options = ExportOptions() if options is None else options
    from mmort.detect.export.checks import check

    check(config, checkpoint, Path(output_file), options)
    from mmort.detect.export.export_steps import export_detector

    return export_detector(config, checkpoint, Path(output_file), options, progress)


def export_network(
    network: TorchNetwork,
    config: Config,
    output_file: str | os.PathLike[str],
    options: ExportOptions | None = None,
    *,
    progress: Callable[[str], None] = _print,
) -> Report:
    """Export a detector that is loaded already; `export` describes the file.

    Parameters
    ----------
    network : TorchNetwork
        As `mmort.detect.network.load_network` returns it.
    config : dict
        The config that it was loaded with.
    output_file : path
        Its directory must exist.
    options : ExportOptions, optional
        By default the file takes inputs of all sizes.  `cfg_options` and `flip` change a config, and do nothing here.
    progress : callable
        Takes the lines to print.

    Returns
    -------
    mmort.onnx.Report
        The comparisons, all of which agree; none if `verify` is false.

    Raises
    ------
    ValueError
        If ONNX Runtime's detections differ from torch's.
    """
    from mmort.detect.export.export_steps import export_loaded

    return export_loaded(network, config, Path(output_file), options or ExportOptions(), progress)
