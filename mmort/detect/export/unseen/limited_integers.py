"""Integers that a file limits, such as indices, compared with torch's: no image may have one beyond a wrong limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.detect.export.unseen.constants import LIMITING, constants_of, limits_of
from mmort.onnx.graph import files
from mmort.onnx.verify.inner_tensors import run_tensors
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.report import Row
from mmort.onnx.verify.values import shapes_text

MIN_DIFFERENT = 10
"""How many different numbers tell a tensor from others, so that equal numbers are the same tensor."""


def compare_limited_integers(draft: Path, module: nn.Module, args: Sequence[Tensor]) -> list[Row]:
    """Return a row for each limit of integers in a file with which torch limits the same integers in no call.

    Parameters
    ----------
    draft : Path
    module : nn.Module
        It chooses as the file does, where rounding decides.
    args : tuple of Tensor
        Of a call of the module.
    """
    graph = files.load(draft).graph
    constants = dict(constants_of(graph, draft.parent))
    limited = list(_limited(graph, constants))
    if not limited:
        return []
    tensors = run_tensors(draft, [name for _, name, _ in limited], args)
    calls = _limiting_calls(module, args)
    rows: list[Row] = []
    for name, read, limit in limited:
        numbers = tensors[read].ravel()
        expected = {number for integers, limits in calls if np.array_equal(integers, numbers) for number in limits}
        if len(np.unique(numbers)) >= MIN_DIFFERENT and expected and limit not in expected:
            text = " or ".join(map(str, sorted(expected)))
            rows.append(refusal(shapes_text(args), f"{name} limits integers to {limit}, torch to {text}"))
    return rows


def _limited(graph: onnx.GraphProto, constants: Mapping[str, NDArray[Any]]) -> Iterator[tuple[str, str, int]]:
    """Yield the names of a graph's clips of integers, what they read, and their constant limits."""
    for node in graph.node:
        read = [name for name in node.input if name and name not in constants]
        for limit in limits_of(node, constants) if len(read) == 1 else ():
            if isinstance(limit, int):
                yield f"{node.op_type} {node.output[0]}", read[0], limit


def _limiting_calls(module: nn.Module, args: Sequence[Tensor]) -> list[tuple[NDArray[Any], list[int]]]:
    """Return the integers that a module's calls limit, flat, and their limits."""
    calls: list[tuple[NDArray[Any], list[int]]] = []

    def call(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if func.overloadpacket in LIMITING and not args[0].is_floating_point():
            values = [
                value.item() if isinstance(value, Tensor) and value.numel() == 1 else value
                for value in (*args[1:], *kwargs.values())
            ]
            limits = [value for value in values if isinstance(value, int)]
            calls.append((args[0].detach().numpy().ravel().copy(), limits))
        return func(*args, **kwargs)

    with torch.no_grad(), Intercepted(call):
        module(*args)
    return calls
