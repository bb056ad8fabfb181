"""The limits of a file's clips, compared with the numbers that torch computes with: few inputs reach the limits.

Sides of a box that grows to 62 times its anchor, for instance, lie outside of the image, wherever exactly the limit is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx.numpy_helper
import torch
from torch import Tensor, nn

from mmort.onnx.graph import files
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import leaves, shapes_text

CLIPS = "Clip", "Max", "Min"
ACTIVATIONS = 0.0, 1.0, 3.0, 6.0
"""Limits that exporters write for activations, which torch computes without naming them."""


def compare_limits(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each limit in a file's main graph that is no number with which a module computes."""
    computed = np.array([*ACTIVATIONS, *_numbers(module, args)])
    with np.errstate(over="ignore"):  # a logit clips a probability at both ends, of which torch gets one
        numbers = {*np.concatenate([computed, 1 - computed]).astype(np.float32).tolist()}
    return [
        refusal(shapes_text(args), f"{name} limits numbers to {limit:g}, which is none of torch's numbers")
        for name, limit in _limits(files.load(draft).graph)
        if np.isfinite(limit) and abs(limit) < np.finfo(np.float32).max and limit not in numbers
    ]


def _numbers(module: nn.Module, args: Sequence[Tensor]) -> list[float]:
    """Return the numbers, and the tensors of one number, that operators get while a module runs."""
    numbers: list[float] = []

    def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        numbers.extend(float(value) for value in (*args, *kwargs.values()) if isinstance(value, (int, float)))
        tensors = [tensor for tensor in leaves([*args, kwargs]) if isinstance(tensor, Tensor)]
        numbers.extend(float(tensor) for tensor in tensors if tensor.numel() == 1)
        return func(*args, **kwargs)

    with torch.no_grad(), Intercepted(note):
        module(*args)
    return numbers


def _limits(graph: onnx.GraphProto) -> Iterator[tuple[str, float]]:
    """Yield the names of a graph's clips and their constant limits, if these are a floating-point number."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    constants |= {
        node.output[0]: attribute.t
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    }
    for node in graph.node:
        for name in node.input if node.op_type in CLIPS else ():
            tensor = constants.get(name)
            if tensor is not None and tensor.data_type == onnx.TensorProto.FLOAT:
                array = onnx.numpy_helper.to_array(tensor)
                if array.size == 1:
                    yield f"{node.op_type} {node.output[0]}", float(array.item())
