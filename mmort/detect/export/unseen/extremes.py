"""The largest and smallest numbers of images, and their products, compared with torch's: few detections show them.

Rotated boxes of neighbouring classes are shifted apart by the largest side, for instance, and with a smaller one they
meet only where boxes of two classes lie at opposite edges.  Products are areas: a pair of corners is dropped if one is
too large a part of another, which is seldom so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.onnx.graph import files
from mmort.onnx.verify.inner_tensors import run_tensors
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import leaves, shapes_text

EXTREME, PRODUCT = "largest or smallest", "product"
REDUCTIONS = {"ReduceMax": EXTREME, "ReduceMin": EXTREME, "ReduceProd": PRODUCT}
CALLS = {
    **dict.fromkeys((torch.ops.aten.amax, torch.ops.aten.amin, torch.ops.aten.max, torch.ops.aten.min), EXTREME),
    torch.ops.aten.prod: PRODUCT,
}
"""What becomes such reductions."""

TOLERANCE = 0.01
"""How far numbers may be apart, as a share: more than rounding, and less than to other numbers."""


def compare_extremes(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each reduction of a file that no call of a module has as its result.

    Compared are the largest and smallest numbers of each image, and the mean magnitude of its products.

    Parameters
    ----------
    draft : Path
    module : nn.Module
        It chooses as the file does, where rounding decides.
    args : tuple of Tensor
        Of a call of the module; the first has a row for each image.
    """
    nodes = [node for node in files.load(draft).graph.node if node.op_type in REDUCTIONS]
    if not nodes:
        return []
    tensors = run_tensors(draft, [node.output[0] for node in nodes], args)
    images = len(args[0])
    expected = _results(module, args)
    rows: list[Row] = []
    for node in nodes:
        name, kind = node.output[0], REDUCTIONS[node.op_type]
        numbers = _of_images(tensors[name], images, kind)
        results = [_of_images(result, images, kind) for result in expected[kind]]
        comparable = [result for result in results if result is not None]
        if numbers is not None and comparable and not any(_are_close(numbers, result) for result in comparable):
            text = np.array2string(numbers, precision=6)
            rows.append(refusal(shapes_text(args), f"{name} is {text}, which torch's is not"))
    return rows


def _results(module: nn.Module, args: Sequence[Tensor]) -> dict[str, list[NDArray[Any]]]:
    """Return the results of the calls that become such reductions, by what they are."""
    results: dict[str, list[NDArray[Any]]] = {EXTREME: [], PRODUCT: []}

    def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if kind := CALLS.get(func.overloadpacket):
            results[kind].extend(tensor.detach().numpy() for tensor in leaves(result))
        return result

    with torch.no_grad(), Intercepted(call):
        module(*args)
    return results


def _of_images(array: NDArray[Any], images: int, kind: str) -> NDArray[Any] | None:
    """Return the number of each image that is compared, or None if an array has none."""
    if array.dtype.kind != "f" or array.size == 0 or array.size % images:
        return None
    if kind == PRODUCT:
        with np.errstate(invalid="ignore", over="ignore"):
            means: NDArray[Any] = np.abs(array.reshape(images, -1)).mean(1)
        return means
    return array.ravel() if array.size == images else None


def _are_close(numbers: NDArray[Any], result: NDArray[Any]) -> bool:
    return np.allclose(numbers, result, rtol=TOLERANCE, atol=0, equal_nan=True)
