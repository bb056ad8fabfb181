"""What the arguments of a torch operator become in a node: inputs and attributes, by name."""

import numpy as np
import torch

import mmort.torch
from mmort.onnx.export.calls import arrange
from mmort.schemas import Attribute, Operator, Tensor

TENSOR = Tensor("x", "float32", "[...]", optional=False)


def test_attributes_are_matched_by_name():
    """Their order in the row is not that of the function's parameters, and a pair fills two of them."""

    def resize(x: np.ndarray, scale: float, size: int | tuple[int, int] = 1, shift: float = 0.5) -> np.ndarray:
        return x

    attributes = (
        Attribute("shift", "FLOAT", 0.5),
        Attribute("height", "INT", 1, argument="size"),
        Attribute("width", "INT", 1, argument="size"),
        Attribute("factor", "FLOAT", None, argument="scale"),
    )
    row = Operator("calls", "Resize", "resize", (TENSOR,), (TENSOR,), attributes)
    mmort.torch.define("calls::resize", resize, row)
    overload = torch.ops.calls.resize.default
    x = torch.ones(2)
    inputs, settings = arrange(overload, row, (x, 3.0, [4, 5]), {})
    assert inputs == [x]
    assert settings == {"shift": 0.5, "height": 4, "width": 5, "factor": 3.0}
    assert arrange(overload, row, (x, 3.0), {"shift": 2.0})[1] == {
        "shift": 2.0,
        "height": 1,
        "width": 1,
        "factor": 3.0,
    }


def test_inputs_are_matched_by_name():
    def scale(factor: np.ndarray, x: np.ndarray) -> np.ndarray:
        return x * factor

    factor = Tensor("factor", "float32", "[...]", optional=False)
    row = Operator("calls", "Scale", "scale", (TENSOR, factor), (TENSOR,), ())
    mmort.torch.define("calls::scale", scale, row)
    first, second = torch.zeros(1), torch.ones(1)
    assert arrange(torch.ops.calls.scale.default, row, (first, second), {}) == ([second, first], {})


def test_attributes_of_other_names_are_matched_in_order():
    row = Operator("aten", "cummax", "cummax", (TENSOR,), (TENSOR,), (Attribute("axis", "INT", None),))
    assert arrange(torch.ops.aten.cummax.default, row, (torch.ones(2), 0), {})[1] == {"axis": 0}
