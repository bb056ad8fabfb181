"""Functions of standard operators that define nodes: one for each node, or one for all nodes of an operator.

If nodes need different definitions, the function for all has each of them, and chooses by the attributes that decide.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from mmort import schemas
from mmort.onnx.graph import inspection
from mmort.onnx.graph.builder import FunctionBuilder, NotCoveredError, TensorType, Value
from mmort.onnx.portable.definitions import DEFINITIONS

Attributes = Mapping[str, schemas.Value]

_NUMBERS = "INT", "FLOAT"
"""The types of attributes that a function can choose by: Equal compares no text before opset 19."""


Definitions = dict[tuple[Any, ...], tuple[onnx.FunctionProto, list[str]]]
"""Definitions and the attributes that they refer to, by what they depend on: models have thousands of equal nodes."""


def of(
    operator: schemas.Operator,
    node: onnx.NodeProto,
    opset: int,
    inlined: bool = False,
    definitions: Definitions | None = None,
) -> onnx.FunctionProto:
    """Return a node's definition; name the node in errors.

    The attributes that it refers to are written into the node, which may rely on defaults.  Nodes of equal attributes
    share one of `definitions`, which must not be changed.
    """
    if operator.kernel not in DEFINITIONS:
        raise NotCoveredError(f"no definition of {inspection.name_of(node)}: the operator has none")
    attributes = inspection.attributes_of(node, operator)
    try:
        _check_inputs(operator, node)
        has_input = tuple(map(bool, node.input))
        key = operator, has_input, tuple(attributes.items()), opset, inlined
        definitions = {} if definitions is None else definitions
        if key not in definitions:
            op = FunctionBuilder(opset, inlined=inlined)
            results = _results(op, operator, has_input, attributes)
            definitions[key] = _function(operator, len(has_input), op, results), sorted(op.references)
        function, references = definitions[key]
        _write_attributes(node, operator, references)
        return function
    except NotCoveredError as reason:
        raise NotCoveredError(f"no definition of {inspection.name_of(node)}: {reason}") from None
    except ValueError as error:
        raise ValueError(f"{inspection.name_of(node)}: {error}") from None


def own(operator: schemas.Operator, nodes: Sequence[onnx.NodeProto], opset: int) -> list[onnx.FunctionProto]:
    """Return a function for each node, which is renamed to it, to be inlined."""
    functions, definitions = [], Definitions()
    for index, node in enumerate(nodes):
        function = onnx.FunctionProto()
        function.CopyFrom(of(operator, node, opset, inlined=True, definitions=definitions))
        function.name = node.op_type = f"{function.name}_{index}"
        functions.append(function)
    return functions


def shared(operator: schemas.Operator, nodes: Sequence[onnx.NodeProto], opset: int) -> onnx.FunctionProto:
    """Return one function for all nodes, or raise NotCoveredError if numbers do not tell which definition a node needs.

    A function may have overloads, but ONNX Runtime up to 1.23 silently uses the last one for all nodes.
    """
    definitions = Definitions()
    functions = [of(operator, node, opset, definitions=definitions) for node in nodes]
    distinct = {id(function) for function in functions if function is not functions[0] and function != functions[0]}
    different = [node for node, function in zip(nodes, functions, strict=True) if id(function) in distinct]
    if not different:
        return functions[0]
    attributes = [inspection.attributes_of(node, operator) for node in nodes]
    names = _deciding(operator, attributes, functions)
    if names is None or len({tuple(map(bool, node.input)) for node in nodes}) > 1:
        first, other = inspection.name_of(nodes[0]), inspection.name_of(different[0])
        raise NotCoveredError(f"one definition must serve all nodes, and {first} and {other} need different ones")
    cases = {tuple(values[name] for name in names): values for values in attributes}
    op = FunctionBuilder(opset)
    has_input = tuple(map(bool, nodes[0].input))
    function = _function(operator, len(has_input), op, _chosen(op, operator, has_input, names, list(cases.values())))
    for node in nodes:
        _write_attributes(node, operator, op.references)
    return function


def _deciding(
    operator: schemas.Operator, attributes: Sequence[Attributes], functions: Sequence[onnx.FunctionProto]
) -> tuple[str, ...] | None:
    """Return the fewest attributes that tell which function a node needs; None if numbers alone do not tell."""
    numbers = [formal.name for formal in operator.attributes if formal.type in _NUMBERS]
    for count in range(1, len(numbers) + 1):
        for names in itertools.combinations(numbers, count):
            needed: dict[tuple[schemas.Value, ...], onnx.FunctionProto] = {}
            keys = [tuple(values[name] for name in names) for values in attributes]
            if all(needed.setdefault(key, function) == function for key, function in zip(keys, functions, strict=True)):
                return names
    return None


def _chosen(
    op: FunctionBuilder,
    operator: schemas.Operator,
    has_input: Sequence[bool],
    names: Sequence[str],
    cases: list[Attributes],
) -> tuple[Value, ...]:
    """Return the results of the definition for the case whose attributes the node has.

    Each choice but the first has the results so far as its other branch: ONNX Runtime 1.31 crashes on three nested Ifs.
    """
    types: list[TensorType] = [(helper.np_dtype_to_tensor_dtype(np.dtype(out.type)), None) for out in operator.outputs]

    def holds(case: Attributes) -> Value:
        equal = op.value(True)
        for name in names:
            value = op.number(name) if isinstance(case[name], float) else op.integer(name)
            equal = equal & op.Squeeze(op.Equal(value, case[name]), [0])
        return equal

    def defined(case: Attributes) -> Callable[[FunctionBuilder], tuple[Value, ...]]:
        return lambda op: _results(op, operator, has_input, case)

    def found(results: tuple[Value, ...]) -> Callable[[FunctionBuilder], tuple[Value, ...]]:
        return lambda op: results

    first, *middle, last = cases
    results = op.choose(holds(first), defined(first), defined(last), types)
    for case in middle:
        results = op.choose(holds(case), defined(case), found(results), types)
    return results


def _results(
    op: FunctionBuilder, operator: schemas.Operator, has_input: Sequence[bool], attributes: Attributes
) -> tuple[Value, ...]:
    """Write the definition of a node that has some of the inputs, with these attributes."""
    inputs = [
        Value(op, formal.name) if is_given else None
        for formal, is_given in zip(operator.inputs, has_input, strict=False)
    ]
    results = DEFINITIONS[operator.kernel](op, *inputs, attributes=attributes)
    return results if isinstance(results, tuple) else (results,)


def _function(
    operator: schemas.Operator, inputs: int, op: FunctionBuilder, results: Sequence[Value]
) -> onnx.FunctionProto:
    """Return a function of the first inputs with these results."""
    names = [formal.name for formal in operator.inputs][:inputs]
    outputs = [formal.name for formal in operator.outputs]
    for name, result in zip(outputs, results, strict=True):
        op.nodes.append(helper.make_node("Identity", [result.handle], [name]))
    return helper.make_function(
        operator.domain,
        operator.type,
        names,
        outputs,
        op.nodes,
        [helper.make_opsetid("", op.opset)],
        attributes=sorted(op.references),
        doc_string=inspection.DEFINITION_NOTE,
    )


def _write_attributes(node: onnx.NodeProto, operator: schemas.Operator, names: Iterable[str]) -> None:
    """Write attributes into a node, under their current names, which may rely on defaults."""
    values = inspection.attributes_of(node, operator)
    for name in sorted(names):
        stated = helper.make_attribute(name, values[name])
        remaining = [attribute for attribute in node.attribute if attribute.name != name]
        if stated not in node.attribute:
            del node.attribute[:]
            node.attribute.extend([*remaining, stated])


def _check_inputs(operator: schemas.Operator, node: onnx.NodeProto) -> None:
    """Raise ValueError if a node lacks an input or has too many; remove optional ones that are left out at the end."""
    if len(node.input) > len(operator.inputs):
        raise ValueError(f"there must be at most {len(operator.inputs)} inputs, got {len(node.input)}")
    for index, formal in enumerate(operator.inputs):
        if not formal.optional and not any(node.input[index : index + 1]):
            raise ValueError(f"input {formal.name} is missing")
    while node.input and not node.input[-1]:
        del node.input[-1]
