"""`mmort.torch.define`: what it derives from a function and a row, and the functions that it refuses."""

from typing import Literal

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import mmort.torch
from mmort.schemas import Attribute, Operator, Tensor

X = Tensor("x", "float32", "[N, C]", False)


def row(*outputs, attributes=(), inputs=(X,)):
    return Operator("example", "Example", "example", inputs, outputs, attributes)


def test_schema_and_attributes_by_name():
    """Attributes are found by their argument's name in any order, two of one argument are a pair."""

    def resize(x, mode: Literal["a", "b"], size: int | tuple[int, int] = 1, scale: float = 2, flip: bool = False):
        return np.zeros((*np.broadcast_to(size, 2), x.shape[1] * 3), np.float32)

    attributes = (
        Attribute("scale", "FLOAT", 2.0),
        Attribute("height", "INT", 1, argument="size"),
        Attribute("width", "INT", 1, argument="size"),
        Attribute("method", "INT", None, argument="mode"),
        Attribute("flip", "INT", 0),
    )
    output = Tensor("y", "float32", "[height, width, C*3]", False)
    operator = mmort.torch.define("example::resize", resize, row(output, attributes=attributes))
    schema = str(torch.ops.example.resize.default._schema)
    assert schema == ("example::resize(Tensor x, str mode, int[2] size=1, float scale=2., bool flip=False) -> Tensor")
    assert operator(torch.ones(4, 5), "a", (2, 3)).shape == (2, 3, 15)
    with FakeTensorMode(shape_env=ShapeEnv()):
        assert operator(torch.ones(4, 5), "a", (2, 3)).shape == (2, 3, 15)
        assert operator(torch.ones(4, 5), "a").shape == (1, 1, 15)


def test_further_results_are_dropped():
    """The last ones are the operator's, as the indices of `mmort.nms` are."""
    first, second = (Tensor(name, "float32", "[N, C]", False) for name in ("first", "second"))

    def steps(x):
        return x, x + 1, x + 2

    both = mmort.torch.define("example::both", steps, row(first, second))
    last = mmort.torch.define("example::last", steps, row(second))
    x = torch.zeros(1, 1)
    assert [tensor.item() for tensor in both(x)] == [1, 2]
    assert last(x).item() == 2


def test_unknown_sizes_are_symbols():
    """The same unknown is the same symbol in all outputs."""
    outputs = Tensor("a", "float32", "[?, C/2]", False), Tensor("b", "int64", "[?, K]", False)
    operator = mmort.torch.define("example::some", lambda x: (x, x), row(*outputs))
    with FakeTensorMode(shape_env=ShapeEnv()):
        a, b = operator(torch.ones(3, 4))
    assert isinstance(a.shape[0], torch.SymInt)
    assert isinstance(b.shape[1], torch.SymInt)
    assert str(a.shape[0]) == str(b.shape[0]) != str(b.shape[1])
    assert (a.shape[1], a.dtype, b.dtype) == (2, torch.float32, torch.int64)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x, r"must have the parameters \['factor'\] besides its inputs, got \[\]"),
        (lambda x, scale: x, r"must have the parameters \['factor'\] besides its inputs, got \['scale'\]"),
        (lambda x, factor: x, r"factor must be annotated with int, float, bool, Literal or int \| tuple\[int, int\]"),
    ],
    ids=["missing", "another name", "no annotation"],
)
def test_functions_that_do_not_fit_are_refused(function, text):
    factor = Attribute("factor", "FLOAT", 1.0)
    with pytest.raises(TypeError, match=rf"^mmort\.torch\.define: .*{text}"):
        mmort.torch.define("example::refused", function, row(X, attributes=(factor,)))
