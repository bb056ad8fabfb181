"""The attributes of mmort's operators and of poolings in a file, compared with torch's calls: images hardly show some.

A threshold matters where a score is near it, a window's position where the largest number is at its edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.helper
import torch

from mmort import schemas
from mmort.onnx.export.calls import arrange, exported_operators
from mmort.onnx.graph.inspection import attributes_of, operator_of
from mmort.onnx.verify.operator_calls import arguments_by_name

MAX_POOL = "MaxPool"

Attributes = Mapping[str, Any]


class AttributesOfCalls:
    """The attributes that torch's calls give a file's nodes."""

    def __init__(self) -> None:
        self._of_types: dict[str, list[Attributes]] = {}

    def note(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Remember the attributes of a call's node."""
        if func in (torch.ops.aten.max_pool2d.default, torch.ops.aten.max_pool2d_with_indices.default):
            self._add(MAX_POOL, _of_max_pool(arguments_by_name(func, args, kwargs)))
        elif (operator := _operators().get(func)) is not None:
            self._add(operator.type, arrange(func, operator, args, kwargs)[1])

    def _add(self, op_type: str, attributes: Attributes) -> None:
        calls = self._of_types.setdefault(op_type, [])
        attributes = _as_in_files(attributes)
        if attributes not in calls:
            calls.append(attributes)

    def problems(self, nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
        """Yield what is wrong with the attributes of some nodes; those of types that torch did not call are right."""
        for node in nodes:
            calls = self._of_types.get(node.op_type)
            attributes = _of_node(node)
            if calls and attributes is not None and attributes not in calls:
                names = min(([name for name in call if call[name] != attributes[name]] for call in calls), key=len)
                yield f"{node.op_type} {node.output[0]} has another {' and '.join(names)} than torch's calls"


def _of_node(node: onnx.NodeProto) -> Attributes | None:
    """Return the attributes of a node; None if they are not compared."""
    operator = operator_of(node)
    if operator is not None:
        return _as_in_files(attributes_of(node, operator))
    if node.op_type != MAX_POOL:
        return None
    given = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    defaults = {"kernel_shape": None, "strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "ceil_mode": 0}
    return {name: given.get(name, default) for name, default in defaults.items()}


def _of_max_pool(arguments: Mapping[str, Any]) -> Attributes:
    """Return the attributes of the node of torch's pooling."""
    lists = {name: value for name, value in arguments.items() if isinstance(value, list) and value}
    pairs = {name: [*value] * (2 // len(value)) for name, value in lists.items()}
    return {
        "kernel_shape": pairs["kernel_size"],
        "strides": pairs.get("stride", pairs["kernel_size"]),
        "pads": pairs["padding"] * 2,
        "dilations": pairs["dilation"],
        "ceil_mode": int(arguments["ceil_mode"]),
    }


def _as_in_files(attributes: Attributes) -> Attributes:
    """Return attributes in the precision, and with the sequences, of a file's."""
    return {
        name: float(np.float32(value)) if isinstance(value, float) else [*value] if isinstance(value, tuple) else value
        for name, value in attributes.items()
    }


@cache
def _operators() -> dict[Any, schemas.Operator]:
    """Return mmort's operators by torch's that are exported as their nodes."""
    return dict(exported_operators((), ()))
