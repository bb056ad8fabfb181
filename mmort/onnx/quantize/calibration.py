"""The ranges of feature maps, from runs of the model on typical inputs.

They are the extremes of all inputs, which networks of ReLUs need, and means over the inputs.  SiLUs have long tails on
which little depends: what few inputs have beyond the mean range is clipped, and all else rounded to smaller steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
from numpy.typing import NDArray

import mmort.ort
from mmort.onnx.verify.sessions import feeds, refusals
from mmort.ort.sessions import silent_options

_RANGES, _SCALAR = "mmort/ranges", "mmort/scalar"
_REDUCTIONS = ("ReduceMin", "ReduceMax", "ReduceSum")  # of these, only the sum is always NaN where a number is


class Sample:
    """Some of the sets that pass, evenly spread: all of few, and at least half of `size` of many."""

    def __init__(self, size: int) -> None:
        self.size, self.step = size, 1
        self.sets: list[Sequence[Any]] = []

    def passing(self, sets: Iterable[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Yield the sets, and keep some."""
        for number, values in enumerate(sets):
            if number % self.step == 0:
                if len(self.sets) == self.size:
                    self.sets, self.step = self.sets[::2], 2 * self.step
                if number % self.step == 0:
                    self.sets.append(values)
            yield values


class Ranges(NamedTuple):
    """The ranges of tensors, which contain 0: rows of a minimum and a maximum."""

    extremes: NDArray[np.float32]
    means: NDArray[np.float32]
    """Over the sets for which a tensor has elements."""


def ranges(model: onnx.ModelProto, tensors: Sequence[str], sets: Iterable[Sequence[Any]]) -> tuple[Ranges | None, int]:
    """Return the ranges of tensors in runs on sets of inputs, and the number of sets; None without any.

    Raises
    ------
    ValueError
        If the model does not run on the inputs, or a tensor has no elements in any set, or one that is not finite.
    """
    with refusals("quantize: ONNX Runtime cannot load the model"):
        session = mmort.ort.session(_with_ranges(model, tensors).SerializeToString(), sess_options=silent_options())
    low, high = np.full(len(tensors), np.inf, np.float32), np.full(len(tensors), -np.inf, np.float32)
    total, counts = np.zeros((len(tensors), 2)), np.zeros(len(tensors), np.int64)
    number = 0
    for values in sets:
        inputs = feeds(session, values)
        with refusals("quantize: the model does not run on these inputs"):
            (bounds,) = session.run([_RANGES], inputs)
        bounds[np.isnan(bounds[:, 2])] = np.nan
        low, high = np.minimum(low, bounds[:, 0]), np.maximum(high, bounds[:, 1])
        filled = bounds[:, 0] <= bounds[:, 1]
        total[filled] += bounds[filled, :2]
        counts += filled
        number += 1
    if not number:
        return None, 0
    _require_ranges(tensors, low, high)
    bounds = np.stack([low, high], axis=1), (total / counts[:, None]).astype(np.float32)
    return Ranges(
        *(np.stack([np.minimum(pair[:, 0], 0), np.maximum(pair[:, 1], 0)], axis=1) for pair in bounds)
    ), number


def _require_ranges(tensors: Sequence[str], low: NDArray[np.float32], high: NDArray[np.float32]) -> None:
    """Refuse a calibration by which no scale can be found; the minimum of no numbers is above their maximum."""
    for tensor, smallest, largest in zip(tensors, low, high, strict=True):
        if smallest > largest:
            raise ValueError(
                f"quantize: {tensor} has no elements for any set of inputs; calibrate with images of all kinds of "
                "objects"
            )
        if not np.isfinite([smallest, largest]).all():
            raise ValueError(f"quantize: {tensor} must be finite, got numbers from {smallest} to {largest}")


def _with_ranges(model: onnx.ModelProto, tensors: Sequence[str]) -> onnx.ModelProto:
    """Return a copy of the model whose only output has a row with minimum, maximum and sum of each tensor."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = copy.graph
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([1, 1]), _SCALAR))
    rows = []
    for tensor in tensors:
        numbers = []
        for op_type in _REDUCTIONS:
            name = f"mmort/{op_type}/{tensor}"
            numbers.append(f"{name}/scalar")
            graph.node.append(onnx.helper.make_node(op_type, [tensor], [name], keepdims=0))
            graph.node.append(onnx.helper.make_node("Reshape", [name, _SCALAR], [numbers[-1]]))
        rows.append(f"mmort/row/{tensor}")
        graph.node.append(onnx.helper.make_node("Concat", numbers, [rows[-1]], axis=1))
    graph.node.append(onnx.helper.make_node("Concat", rows, [_RANGES], axis=0))
    del graph.output[:]
    graph.output.append(onnx.helper.make_tensor_value_info(_RANGES, onnx.TensorProto.FLOAT, None))
    return copy
