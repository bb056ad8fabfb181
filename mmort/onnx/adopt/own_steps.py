"""`OwnSteps`: the preprocessing that a file does itself, before its network, as files of YOLOv6 may.

The image is followed through the nodes that only move, convert or scale its values, up to the first that does not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

_MOVING = {"Cast", "Concat", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
"""Operators that leave values as they are."""

_SCALING = {"Div", "Mul"}

MIN_DIVISOR = 100.0
"""A file that divides an image by this or more takes values from 0 to 255, as usual by 255 or 127.5."""


class OwnSteps(NamedTuple):
    """The steps on an image that a file does before its network."""

    divides: bool
    """Whether it divides values from 0 to 255."""
    reverses: bool
    """Whether it reverses the order of channels."""


def own_steps(model: onnx.ModelProto, image: str) -> OwnSteps:
    """Return the steps that a file does on its input of this name."""
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    reached, divides, reverses = {image}, False, False
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            constants[node.output[0]] = node.attribute[0].t
        if not reached & set(node.input) or node.op_type not in _MOVING | _SCALING:
            continue
        others = [onnx.numpy_helper.to_array(constants[name]) for name in node.input if name in constants]
        if node.op_type in _SCALING:
            if len(others) != 1:
                continue
            with np.errstate(divide="ignore"):
                divisors = others[0] if node.op_type == "Div" else 1 / others[0].astype(np.float64)
            divides |= bool((np.isfinite(divisors) & (divisors >= MIN_DIVISOR)).all())
        reverses |= _reverses(node, others)
        reached |= set(node.output)
    return OwnSteps(divides, reverses)


def _reverses(node: onnx.NodeProto, constants: list[NDArray[np.generic]]) -> bool:
    """Return whether a node with these constants after its image takes three channels from the last to the first."""
    if node.op_type == "Gather":
        return len(constants) == 1 and constants[0].tolist() == [2, 1, 0]
    return node.op_type == "Slice" and len(constants) == 4 and constants[3].tolist() == [-1]
