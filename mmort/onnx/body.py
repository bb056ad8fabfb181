"""Writing the body of an ONNX function as if it were Python: a node for every call, a `Value` for every result."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper

FLOAT, INT64, BOOL, DOUBLE = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.INT64,
    onnx.TensorProto.BOOL,
    onnx.TensorProto.DOUBLE,
)


Kind = tuple[int, Sequence[int | None]]
"""An element type and a shape, in which None is any size."""


class Reference(NamedTuple):
    """In place of an attribute's value: that of the node's attribute, which stays out of the body."""

    name: str
    type: int = onnx.AttributeProto.INT


class Value:
    """The result of a node; arithmetic and comparisons write further nodes."""

    def __init__(self, body: Body, name: str) -> None:
        self.body = body
        self.name = name

    def __add__(self, other: Any) -> Value:
        return self.body.node("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.body.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.body.node("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.body.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        """Divide; integers are truncated."""
        return self.body.node("Div", self, other)

    def __neg__(self) -> Value:
        return self.body.node("Neg", self)

    def __gt__(self, other: Any) -> Value:
        return self.body.node("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.body.node("GreaterOrEqual", self, other)

    def __le__(self, other: Any) -> Value:
        return self.body.node("LessOrEqual", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.body.node("Less", self, other)

    def __and__(self, other: Any) -> Value:
        return self.body.node("And", self, other)

    def __or__(self, other: Any) -> Value:
        return self.body.node("Or", self, other)

    def __invert__(self) -> Value:
        return self.body.node("Not", self)

    def to(self, element_type: int) -> Value:
        """Convert the elements."""
        return self.body.node("Cast", self, to=element_type)


class Body:
    """The nodes of a function, or of a graph within it: ``op.Relu(x)`` adds one and returns its result.

    Inputs that are no `Value` become constants: floats are float32, integers int64, an array keeps its type.  None
    leaves an optional input out.  Values of a surrounding graph may be inputs, but their operators (``+``) write there,
    and references to attributes belong there.
    """

    def __init__(self, opset: int, numbers: Iterator[int] | None = None) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.references: set[str] = set()
        self._numbers = numbers or itertools.count()  # names in graphs must not hide those outside

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, **attributes: self._add(op_type, inputs, **attributes)

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Value:
        """Add a node of one output, and return that."""
        output: Value = self._add(op_type, inputs, **attributes)
        return output

    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int = 1, **attributes: Any) -> Any:
        node_name = self._name(op_type)  # ONNX Runtime 1.20's optimizer fails with nodes that have none
        results = tuple(Value(self, self._name(op_type)) for _ in range(outputs))
        names = ["" if one is None else self._value(one).name for one in inputs]
        plain = {name: value for name, value in attributes.items() if not isinstance(value, Reference)}
        node = onnx.helper.make_node(op_type, names, [one.name for one in results], node_name, **plain)
        for name, value in attributes.items():
            if isinstance(value, Reference):
                node.attribute.add(name=name, ref_attr_name=value.name, type=value.type)
                self.references.add(value.name)
        self.nodes.append(node)
        return results if outputs > 1 else results[0]

    def integer(self, name: str) -> Value:
        """Return the value of the node's attribute, as a list of one number."""
        return self.node("Unsqueeze", self.node("Constant", value_int=Reference(name)), [0])

    def pair(self, name: str) -> tuple[Value, Value]:
        """Return the two values of the node's attribute, each as a list of one number."""
        values = self.node("Constant", value_ints=Reference(name, onnx.AttributeProto.INTS))
        return self.node("Slice", values, [0], [1]), self.node("Slice", values, [1], [2])

    def number(self, name: str) -> Value:
        """Return the value of the node's attribute, as a list of one number."""
        reference = Reference(name, onnx.AttributeProto.FLOAT)
        return self.node("Unsqueeze", self.node("Constant", value_float=reference), [0])

    def graph(
        self,
        write: Callable[..., Sequence[Value]],
        inputs: Sequence[Kind],
        outputs: Sequence[Kind],
    ) -> onnx.GraphProto:
        """Return a graph for Loop, Scan or If: ``write(op, *inputs)`` gives its outputs; types and shapes are given."""
        inner = Body(self.opset, self._numbers)
        parameters = [Value(inner, self._name("input")) for _ in inputs]
        results = [inner.node("Identity", one) for one in write(inner, *parameters)]  # an output must be a node's
        return onnx.helper.make_graph(
            inner.nodes,
            "graph",
            [onnx.helper.make_tensor_value_info(one.name, *kind) for one, kind in zip(parameters, inputs, strict=True)],
            [onnx.helper.make_tensor_value_info(one.name, *kind) for one, kind in zip(results, outputs, strict=True)],
        )

    def _name(self, stem: str) -> str:
        return f"{stem}_{next(self._numbers)}"

    def _value(self, value: Any) -> Value:
        if isinstance(value, Value):
            return value
        array = np.asarray(value)
        if array.dtype == np.float64 and not isinstance(value, np.ndarray):
            array = array.astype(np.float32)
        return self.node("Constant", value=onnx.numpy_helper.from_array(array))
