"""How a numpy function becomes a custom operator of torch: its schema and its fake implementation are derived."""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from inspect import Parameter, signature
from typing import Any

import torch
from torch import Tensor

from mmort import schemas
from mmort.schemas import Operator

_SCALARS = {int: "int", float: "float", bool: "bool"}
_FLOATING = torch.float16, torch.float32, torch.float64


def define(name: str, function: Callable[..., Any], operator: Operator) -> Callable[..., Any]:
    """Make a custom operator of torch from a function of numpy arrays.

    Parameters
    ----------
    name : str
        ``"namespace::name"``.
    function : callable
        Takes arrays and other arguments, and returns fresh arrays: one, or as many as the ONNX operator has outputs.
        Its annotations say what the other arguments are: ``int``, ``float``, ``bool``, ``Literal`` of words, or
        ``int | tuple[int, int]``.
    operator : Operator
        The ONNX operator.  Its inputs are the function's arrays, by name; its outputs' shapes say what torch knows of
        the results before they are computed; its attributes stand in the order of the other arguments.

    Returns
    -------
    callable
        The operator, which ``torch.ops.namespace.name`` is too.  It runs on the CPU.  Without gradients: they are
        registered by ``torch.library.register_autograd``.

    Raises
    ------
    TypeError
        If an annotation is another.

    Examples
    --------
    >>> import torch
    >>> import mmort.torch
    >>> from mmort.schemas import Attribute, Operator, Tensor
    >>> def scale(x, factor: float = 2.0):
    ...     return x * factor
    >>> x = Tensor("x", "float32", "[...]", False)
    >>> face = Operator("example", "Scale", "scale", (x,), (x,), (Attribute("factor", "FLOAT", 2.0),))
    >>> mmort.torch.define("example::scale", scale, face)(torch.ones(2), 3.0)
    tensor([3., 3.])
    """
    parameters = _parameters(function)
    arrays = {formal.name: formal for formal in operator.inputs}
    names = list(parameters)

    def run(*values: Any) -> Any:
        given = dict(zip(names, values, strict=False))
        for key, value in given.items():
            if isinstance(value, Tensor):
                _check(operator.kernel, arrays[key], value)
                given[key] = value.detach().numpy()
        returned = function(**given)
        results = [torch.from_numpy(array) for array in (returned if isinstance(returned, tuple) else (returned,))]
        return results[-1] if len(operator.outputs) == 1 else tuple(results[-len(operator.outputs) :])

    def fake(*values: Any) -> Any:
        given = dict(zip(names, values, strict=False))
        given |= {key: one.default for key, one in parameters.items() if key not in given}
        tensors = {key: value for key, value in given.items() if key in arrays and value is not None}
        for key, value in tensors.items():
            _check(operator.kernel, arrays[key], value)
        attributes = _attributes(operator, [value for key, value in given.items() if key not in arrays])
        results = tuple(_fakes(operator, tensors, attributes))
        return results[0] if len(results) == 1 else results

    formals = [_formal(one, arrays.get(key)) for key, one in parameters.items()]
    outputs = ["Tensor"] * len(operator.outputs)
    result = outputs[0] if len(outputs) == 1 else f"({', '.join(outputs)})"
    custom = torch.library.custom_op(name, run, mutates_args=(), schema=f"({', '.join(formals)}) -> {result}")
    custom.register_fake(fake)
    return custom


def _parameters(function: Callable[..., Any]) -> dict[str, Parameter]:
    hints = typing.get_type_hints(function)
    return {name: one.replace(annotation=hints.get(name, Any)) for name, one in signature(function).parameters.items()}


def _formal(parameter: Parameter, array: schemas.Tensor | None) -> str:
    """Write a parameter as torch's schemas do."""
    name, hint, default = parameter.name, parameter.annotation, parameter.default
    if array:
        return f"Tensor? {name}=None" if array.optional else f"Tensor {name}"
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
    if tensor.device.type not in ("cpu", "meta"):
        raise ValueError(f"{operator}: {formal.name} must be on the CPU, got a tensor on {tensor.device}")
    if formal.type == "float32" and tensor.dtype not in _FLOATING:
        raise TypeError(f"{operator}: {formal.name} must be float16, float32 or float64, got {tensor.dtype}")


def _attributes(operator: Operator, values: Iterable[Any]) -> dict[str, Any]:
    """Name arguments as the attributes they become: a pair is one of integers, or two."""
    formals = iter(operator.attributes)
    attributes = {}
    for value in values:
        formal = next(formals)
        if isinstance(value, (list, tuple)) and formal.type != "INTS":
            attributes[formal.name], attributes[next(formals).name] = value
        else:
            attributes[formal.name] = value
    return attributes


def _fakes(operator: Operator, tensors: dict[str, Any], attributes: dict[str, Any]) -> Iterator[Tensor]:
    given = [(formal, tensors[formal.name]) for formal in operator.inputs if formal.name in tensors]
    sizes: dict[str, Any] = {}
    for formal, tensor in given:
        names = [one for one in _dimensions(formal.shape) if one != "..."]
        if tensor.dim() < len(names):
            raise ValueError(f"{operator.kernel}: {formal.name} must be {formal.shape}, got {list(tensor.shape)}")
        for name, size in zip(names, tensor.shape, strict=False):
            if name.isidentifier():
                sizes.setdefault(name, size)
    dtypes = {"int64": torch.int64}
    dtypes["float32"] = reduce(
        torch.promote_types, [tensor.dtype for formal, tensor in given if formal.type == "float32"]
    )
    first = given[0][1]
    dynamic: dict[str, Any] = {}  # the same unknown is the same in all outputs
    for output in operator.outputs:
        dimensions = _dimensions(output.shape)
        shape = first.shape if "..." in dimensions else [_size(one, sizes, attributes, dynamic) for one in dimensions]
        yield first.new_empty(shape, dtype=dtypes[output.type])


def _dimensions(shape: str) -> list[str]:
    return [one for one in re.split(r"[\[\], ]+", shape) if one]


def _size(dimension: str, sizes: dict[str, Any], attributes: dict[str, Any], dynamic: dict[str, Any]) -> Any:
    if dimension.isdigit():
        return int(dimension)
    factors = dimension.split("*")
    if all(one in sizes for one in factors):
        return math.prod(sizes[one] for one in factors)
    if attributes.get(dimension, 0) > 0:
        return attributes[dimension]
    if dimension not in dynamic:
        dynamic[dimension] = torch.library.get_ctx().new_dynamic_size()
    return dynamic[dimension]
