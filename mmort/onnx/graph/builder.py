"""Writing ONNX nodes as if they were Python: a call adds a node, and its result can be used in arithmetic.

``op.Relu(x)`` adds a node, methods in lower case (``op.size(x, 0)``) add common combinations.  The portable definitions
are written with a `FunctionBuilder`; `mmort.onnx.export.translations` has a builder that adds nodes to what torch
exports, so that both share their definitions.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
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

END = 2**62
"""The end of a Slice that goes to the end of the axis."""

TensorType = tuple[int, Sequence[int | None] | None]
"""An element type and a shape, in which None is any size; None instead of a shape is any number of dimensions."""


class NotCoveredError(Exception):
    """A node's attributes ask for something that its definition does not cover; the text gives the reason."""


class Reference(NamedTuple):
    """The value of an attribute of the function's node, which is not known in the function."""

    name: str
    type: int = onnx.AttributeProto.INT


class Value:
    """The result of a node.  Arithmetic and comparisons add further nodes."""

    def __init__(self, builder: Builder, handle: Any) -> None:
        self.builder = builder
        self.handle = handle
        """The builder's own reference to the result: in a function its name."""

    def __add__(self, other: Any) -> Value:
        return self.builder.node("Add", self, other)

    def __sub__(self, other: Any) -> Value:
        return self.builder.node("Sub", self, other)

    def __rsub__(self, other: Any) -> Value:
        return self.builder.node("Sub", other, self)

    def __mul__(self, other: Any) -> Value:
        return self.builder.node("Mul", self, other)

    def __truediv__(self, other: Any) -> Value:
        """Divide.  The quotient of integers is truncated."""
        return self.builder.node("Div", self, other)

    def __neg__(self) -> Value:
        return self.builder.node("Neg", self)

    def __gt__(self, other: Any) -> Value:
        return self.builder.node("Greater", self, other)

    def __ge__(self, other: Any) -> Value:
        return self.builder.node("GreaterOrEqual", self, other)

    def __le__(self, other: Any) -> Value:
        return self.builder.node("LessOrEqual", self, other)

    def __lt__(self, other: Any) -> Value:
        return self.builder.node("Less", self, other)

    def __and__(self, other: Any) -> Value:
        return self.builder.node("And", self, other)

    def __or__(self, other: Any) -> Value:
        return self.builder.node("Or", self, other)

    def __invert__(self) -> Value:
        return self.builder.node("Not", self)

    def to(self, element_type: int) -> Value:
        """Convert the elements."""
        return self.builder.node("Cast", self, to=element_type)


class Builder(ABC):
    """Adds nodes: ``op.Relu(x)`` adds one and returns its result, or a tuple of as many results as ``outputs=`` states.

    Inputs that are not a `Value` become constants: Python floats are float32, integers int64, an array keeps its type.
    None leaves an optional input out.
    """

    def __init__(self, opset: int, numbers: Iterator[int] | None = None, prefix: str = "") -> None:
        self.opset = opset
        self.prefix = prefix
        """The prefix of the names of results, also in graphs, so that no other nodes have them."""
        self._numbers = numbers or itertools.count()  # shared with graphs, whose names must not hide those outside
        self.references: set[str] = set()
        """The names of the function's attributes that nodes refer to, also nodes in graphs."""

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if not op_type[0].isupper():
            raise AttributeError(op_type)
        return lambda *inputs, outputs=1, **attributes: self._add(op_type, inputs, outputs, attributes)

    @abstractmethod
    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int, attributes: dict[str, Any]) -> Any:
        """Add a node; return its result, or a tuple of several."""

    def node(self, op_type: str, *inputs: Any, **attributes: Any) -> Value:
        """Add a node with one output, and return it."""
        output: Value = self._add(op_type, inputs, 1, attributes)
        return output

    def value(self, value: Any) -> Value:
        """Return a `Value` unchanged, and anything else as a constant."""
        if isinstance(value, Value):
            return value
        array = np.asarray(value)
        if array.dtype == np.float64 and not isinstance(value, np.ndarray):
            array = array.astype(np.float32)
        return self.node("Constant", value=onnx.numpy_helper.from_array(array))

    def graph(
        self,
        write: Callable[..., Sequence[Value]],
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
    ) -> onnx.GraphProto:
        """Return a graph for Loop, Scan or If, whose outputs ``write(op, *inputs)`` returns.

        Within a function the graph may use values of the surrounding graph, but their operators (``+``) add nodes
        there.
        """
        op = FunctionBuilder(self.opset, self._numbers, prefix=self.prefix)
        op.references = self.references
        parameters = [Value(op, op.name("input")) for _ in inputs]
        results = [op.node("Identity", value) for value in write(op, *parameters)]  # an output must be a node's
        input_infos, output_infos = (
            [
                onnx.helper.make_tensor_value_info(value.handle, *tensor_type)
                for value, tensor_type in zip(values, types, strict=True)
            ]
            for values, types in ((parameters, inputs), (results, outputs))
        )
        return onnx.helper.make_graph(op.nodes, "graph", input_infos, output_infos)

    def size(self, x: Value, axis: int) -> Value:
        """Return a dimension, as a list of one number."""
        return self.node("Shape", x, start=axis, end=axis + 1)

    def reshape(self, x: Value, *sizes: Value | int) -> Value:
        """Reshape to sizes that are lists of one number, or numbers.  0 means 0, not the input's size."""
        lists = [[size] if isinstance(size, int) else size for size in sizes]
        return self.node("Reshape", x, self.node("Concat", *lists, axis=0), allowzero=1)

    def slice(self, x: Value, begin: int, end: int, axis: int) -> Value:
        """Return the elements from `begin` to `end` along an axis."""
        return self.node("Slice", x, [begin], [end], [axis])

    def reduce(self, op_type: str, x: Value, axis: int, keepdims: int = 0) -> Value:
        """Reduce along an axis by ReduceMax or ReduceMin, whose axes are an attribute before opset 18."""
        if self.opset < 18:
            return self.node(op_type, x, axes=[axis], keepdims=keepdims)
        return self.node(op_type, x, [axis], keepdims=keepdims)

    def largest(self, integers: Value, least: int) -> Value:
        """Return the largest of some integers, in a tensor of one, or `least` if that is larger or there are none."""
        return self.ReduceMax(self.Concat(self.Reshape(integers, [-1]), [least], axis=0), keepdims=1)

    def range(self, count: Value) -> Value:
        """Return 0, 1, ... up to `count` - 1, where `count` is a list of one number."""
        return self.node("Range", 0, self.node("Squeeze", count, [0]), 1)

    def choose(
        self,
        condition: Value,
        then: Callable[[FunctionBuilder], tuple[Value, ...]],
        otherwise: Callable[[FunctionBuilder], tuple[Value, ...]],
        types: Sequence[TensorType],
    ) -> tuple[Value, ...]:
        """Return the results of `then` if the condition holds, else of `otherwise`; only that branch is computed."""
        branches = {"then_branch": self.graph(then, [], types), "else_branch": self.graph(otherwise, [], types)}
        results = self._add("If", [condition], len(types), branches)
        return results if isinstance(results, tuple) else (results,)

    def stack(self, count: Value, write: Callable[[FunctionBuilder, Value], Value], result: TensorType) -> Value:
        """Return the results of ``write(op, i)`` for i from 0 to `count` - 1, a list of one number, as one tensor."""

        def step(op: FunctionBuilder, i: Value, go_on: Value) -> tuple[Value, ...]:
            return go_on, write(op, i)

        body = self.graph(step, [(INT64, []), (BOOL, [])], [(BOOL, []), result])
        number = self.node("Squeeze", count, [0]) if self.opset >= 13 else self.node("Squeeze", count, axes=[0])
        return self.node("Loop", number, True, body=body)


class FunctionBuilder(Builder):
    """Builds the nodes of a function, or of a graph within it."""

    def __init__(
        self, opset: int, numbers: Iterator[int] | None = None, inlined: bool = False, prefix: str = ""
    ) -> None:
        super().__init__(opset, numbers, prefix)
        self.nodes: list[onnx.NodeProto] = []
        self.inlined = inlined
        """Whether the function's nodes will stand in the model's graph, for OpenVINO and GPUs too."""

    def _add(self, op_type: str, inputs: Sequence[Any], outputs: int, attributes: dict[str, Any]) -> Any:
        node_name = self.name(op_type)  # ONNX Runtime 1.20's optimizer fails with nodes that have none
        results = tuple(Value(self, self.name(op_type)) for _ in range(outputs))
        names = ["" if value is None else self.value(value).handle for value in inputs]
        plain = {name: value for name, value in attributes.items() if not isinstance(value, Reference)}
        node = onnx.helper.make_node(op_type, names, [result.handle for result in results], node_name, **plain)
        for name, value in attributes.items():
            if isinstance(value, Reference):
                node.attribute.add(name=name, ref_attr_name=value.name, type=value.type)
                self.references.add(value.name)
        self.nodes.append(node)
        return results if outputs > 1 else results[0]

    def integer(self, name: str) -> Value:
        """Return the value of the node's INT attribute, as a list of one number."""
        return self.node("Unsqueeze", self.node("Constant", value_int=Reference(name)), [0])

    def pair(self, name: str) -> tuple[Value, Value]:
        """Return the two values of the node's INTS attribute, each as a list of one number."""
        values = self.node("Constant", value_ints=Reference(name, onnx.AttributeProto.INTS))
        return self.node("Slice", values, [0], [1]), self.node("Slice", values, [1], [2])

    def number(self, name: str) -> Value:
        """Return the value of the node's FLOAT attribute, as a list of one number."""
        reference = Reference(name, onnx.AttributeProto.FLOAT)
        return self.node("Unsqueeze", self.node("Constant", value_float=reference), [0])

    def name(self, stem: str) -> str:
        """Return a name that no other result has."""
        return f"{self.prefix}{stem}_{next(self._numbers)}"
