"""The largest and smallest numbers of whole images, compared with torch's: few images show them in what is detected.

Rotated boxes of neighbouring classes are shifted apart by the largest side, for instance, and with a smaller one they
meet only where boxes of two classes lie at opposite edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.export.head_outputs import run_tensors
from mmort.onnx.graph import files
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import leaves, shapes_text

REDUCTIONS = "ReduceMax", "ReduceMin"
CALLS = torch.ops.aten.amax, torch.ops.aten.amin, torch.ops.aten.max, torch.ops.aten.min

TOLERANCE = 0.01
"""How far numbers may be apart, as a share: more than rounding, and less than to other numbers."""


def compare_extremes(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each reduction of a file to a number for each image that no call of a module has as its result.

    Parameters
    ----------
    draft : Path
    module : nn.Module
        It chooses as the file does, where rounding decides.
    args : tuple of Tensor
        Of a call of the module; the first has a row for each image.
    """
    names = [node.output[0] for node in files.load(draft).graph.node if node.op_type in REDUCTIONS]
    if not names:
        return []
    tensors = run_tensors(draft, names, args)
    images = len(args[0])
    expected = [result for result in _results(module, args) if result.size == images]
    return [
        refusal(shapes_text(args), f"{name} is {np.array2string(tensor, precision=6)}, which torch's is not")
        for name, tensor in tensors.items()
        if tensor.size == images and tensor.dtype == np.float32
        if expected and not any(_are_close(tensor, result) for result in expected)
    ]


def _results(module: nn.Module, args: Sequence[Tensor]) -> list[NDArray[Any]]:
    """Return the results of the calls that become such reductions."""
    results: list[NDArray[Any]] = []

    def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if func.overloadpacket in CALLS:
            results.extend(tensor.detach().numpy() for tensor in leaves(result) if tensor.is_floating_point())
        return result

    with torch.no_grad(), Intercepted(call):
        module(*args)
    return results


def _are_close(tensor: NDArray[Any], result: NDArray[Any]) -> bool:
    return np.allclose(tensor.ravel(), result.ravel(), rtol=TOLERANCE, atol=0, equal_nan=True)
