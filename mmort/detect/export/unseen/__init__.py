"""What hardly any input shows of a file: constants and attributes, extremes and products, limits of integers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor, nn

from mmort.detect.export.unseen.constants import compare_constants
from mmort.detect.export.unseen.extremes import compare_extremes
from mmort.detect.export.unseen.limited_integers import compare_limited_integers
from mmort.onnx.verify.replay import ReplayingModule
from mmort.onnx.verify.report import Row


def compare_unseen(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each number of a file that is not the module's.

    Parameters
    ----------
    draft : Path
    module : nn.Module
    args : tuple of Tensor
        Of a call of the module; the first has a row for each image.
    """
    # Which of many scores of 0 are the best, areas show, but no detections.
    replaying = ReplayingModule(module, draft)
    return [
        *compare_constants(draft, module, args),
        *compare_extremes(draft, replaying, args),
        *compare_limited_integers(draft, replaying, args),
    ]
