"""Custom operators of torch from numpy functions, whose signatures and rows give schema and fake implementation."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from inspect import Parameter, signature
from itertools import groupby, repeat
from typing import Any

import torch
from torch import Tensor

from mmort import schemas
from mmort.schemas import Dimension, Operator, Product
from mmort.torch.dtypes import check_floating

_SCALARS = {int: "int", float: "float", bool: "bool"}


def define(name: str, function: Callable[..., Any], operator: Operator) -> Callable[..., Any]:
    """Define a custom operator of torch that calls a function of numpy arrays.

    Parameters
    ----------
    name : str
        ``"namespace::name"``.
    function : callable
        A function whose parameters are the operator's inputs and the arguments of its attributes, by name.  The latter
        are annotated with ``int``, ``float``, ``bool``, ``Literal`` of words, or ``int | tuple[int, int]``.  It returns
        new arrays: an array, or a tuple of which the last items are the operator's outputs.
    operator : Operator
        The ONNX operator.  From the shapes of its outputs torch infers the shapes of the results.

    Returns
    -------
    callable
        The operator, also available as ``torch.ops.namespace.name``.  It runs on the CPU and has no gradient;
        ``torch.library.register_autograd`` adds one.

    Raises
    ------
    TypeError
        If the parameters of `function` are not those of `operator`, or an annotation is not supported.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> from mmort.schemas import Attribute, Operator, Tensor
    >>> def scale(x, factor: float = 2.0):
    ...     return x * factor
    >>> x = Tensor("x", "float32", "[...]", False)
    >>> row = Operator("example", "Scale", "scale", (x,), (x,), (Attribute("factor", "FLOAT", 2.0),))
    >>> mmort.torch.define("example::scale", scale, row)(torch.ones(2), 3.0)
    tensor([3., 3.])
    """
    parameters = _parameters(function, operator)
    inputs = {tensor.name: tensor for tensor in operator.inputs}
    defaults = {name: parameter.default for name, parameter in parameters.items()}

    def run(*values: Any) -> Any:
        arguments = dict(zip(parameters, values, strict=False))
        for name, value in arguments.items():
            if isinstance(value, Tensor):
                _check(operator.kernel, inputs[name], value)
                arguments[name] = value.detach().numpy()
        results = function(**arguments)
        tensors = [torch.from_numpy(array) for array in (results if isinstance(results, tuple) else (results,))]
        return tensors[-1] if len(operator.outputs) == 1 else tuple(tensors[-len(operator.outputs) :])

    def fake(*values: Any) -> Any:
        arguments = defaults | dict(zip(parameters, values, strict=False))  # torch drops trailing defaults
        tensors = {name: arguments[name] for name in inputs if arguments.get(name) is not None}
        for name, tensor in tensors.items():
            _check(operator.kernel, inputs[name], tensor)
        outputs = tuple(_fake_outputs(operator, tensors, _attributes(operator, arguments)))
        return outputs[0] if len(outputs) == 1 else outputs

    formals = ", ".join(_formal(parameter, inputs.get(name)) for name, parameter in parameters.items())
    outputs = ", ".join("Tensor" for _ in operator.outputs)
    schema = f"({formals}) -> {outputs if len(operator.outputs) == 1 else f'({outputs})'}"
    custom_operator = torch.library.custom_op(name, run, mutates_args=(), schema=schema)
    custom_operator.register_fake(fake)
    custom_operator.register_autocast("cpu", torch.float32)  # autocast's bfloat16 is none of numpy's dtypes
    return custom_operator


def _parameters(function: Callable[..., Any], operator: Operator) -> dict[str, Parameter]:
    """Return a function's parameters, annotations evaluated; raise TypeError if they are not the operator's."""
    hints = typing.get_type_hints(function)
    parameters = signature(function).parameters
    attributes = set(parameters) - {tensor.name for tensor in operator.inputs}
    expected = {attribute.argument for attribute in operator.attributes}
    if attributes != expected:
        raise TypeError(
            f"mmort.torch.define: {operator.kernel} must have the parameters {sorted(expected)} besides its inputs, "
            f"got {sorted(attributes)}"
        )
    return {name: parameter.replace(annotation=hints.get(name)) for name, parameter in parameters.items()}


def _formal(parameter: Parameter, tensor: schemas.Tensor | None) -> str:
    """Return a parameter as torch's schemas write it."""
    name, hint, default = parameter.name, parameter.annotation, parameter.default
    if tensor:
        return f"Tensor? {name}=None" if tensor.optional else f"Tensor {name}"
    if typing.get_origin(hint) is typing.Literal:
        kind = "str"
    elif hint == int | tuple[int, int]:
        kind = "int[2]"
    elif hint in _SCALARS:
        kind = _SCALARS[hint]
    else:
        raise TypeError(
            f"mmort.torch.define: {name} must be annotated with int, float, bool, Literal or int | tuple[int, int], "
            f"got {hint!r}"
        )
    if default is Parameter.empty:
        return f"{kind} {name}"
    if kind == "float":
        default = float(default)
    return f'{kind} {name}="{default}"' if kind == "str" else f"{kind} {name}={default}"


def _check(operator: str, formal: schemas.Tensor, tensor: Tensor) -> None:
    """Raise ValueError or TypeError if an operator cannot compute with a tensor's device or dtype."""
    if tensor.device.type not in ("cpu", "meta"):
        raise ValueError(f"{operator}: {formal.name} must be on the CPU, got a tensor on {tensor.device}")
    if formal.type == "float32":
        check_floating(operator, formal.name, tensor)


def _attributes(operator: Operator, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the values of the operator's attributes; an argument of two attributes is an integer or a pair."""
    values: dict[str, Any] = {}
    for argument, attributes in groupby(operator.attributes, lambda attribute: attribute.argument):
        names, value = [attribute.name for attribute in attributes], arguments[argument]
        is_pair = len(names) == 2 and not isinstance(value, int)
        values.update(zip(names, value if is_pair else repeat(value), strict=False))
    return values


def _fake_outputs(operator: Operator, tensors: dict[str, Tensor], attributes: dict[str, Any]) -> Iterator[Tensor]:
    """Yield an empty tensor for each output; a size that depends on the inputs' values is a new symbol of torch."""
    inputs = [(formal, tensors[formal.name]) for formal in operator.inputs if formal.name in tensors]
    known = {name: value for name, value in attributes.items() if isinstance(value, int) and value > 0}
    known |= _named_sizes(operator.kernel, inputs)
    symbols: dict[Dimension, Any] = {}  # an unknown dimension of several outputs is one symbol

    def size(dimension: Dimension) -> Any:
        value = _size(dimension, known)
        if value is None and dimension not in symbols:
            symbols[dimension] = torch.library.get_ctx().new_dynamic_size()
        return symbols[dimension] if value is None else value

    floating = [tensor.dtype for formal, tensor in inputs if formal.type == "float32"]
    first = inputs[0][1]
    for output in operator.outputs:
        shape = first.shape if ... in output.dimensions else list(map(size, output.dimensions))
        dtype = reduce(torch.promote_types, floating) if output.type == "float32" else getattr(torch, output.type)
        yield first.new_empty(shape, dtype=dtype)


def _named_sizes(operator: str, inputs: Iterable[tuple[schemas.Tensor, Tensor]]) -> dict[str, Any]:
    """Return the sizes of the dimensions that the inputs' shapes name; raise ValueError if a tensor has too few."""
    sizes: dict[str, Any] = {}
    for formal, tensor in inputs:
        dimensions = [dimension for dimension in formal.dimensions if dimension is not ...]
        if tensor.dim() < len(dimensions):
            raise ValueError(f"{operator}: {formal.name} must be {formal.shape}, got {list(tensor.shape)}")
        for dimension, size in zip(dimensions, tensor.shape, strict=False):
            if isinstance(dimension, str):
                sizes.setdefault(dimension, size)
    return sizes


def _size(dimension: Dimension, known: dict[str, Any]) -> Any:
    """Return the size of an output's dimension; None if it is not known before the run."""
    if isinstance(dimension, str):
        return known.get(dimension)
    if not isinstance(dimension, Product):
        return dimension if isinstance(dimension, int) else None
    factors, divisors = ([_size(factor, known) for factor in part] for part in dimension)
    if any(value is None for value in (*factors, *divisors)):
        return None
    return math.prod(factors) // math.prod(divisors)
