"""Calls of torch operators as ONNX nodes, for both of torch's exporters: the operator, its inputs and attributes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch

from mmort import schemas

# torch's name of the operator of each kernel that MMCV's exporter made an mmcv node of.
_ATEN = {"cummax": "cummax", "cummin": "cummin", "grid_sample": "grid_sampler"}

MMCV_NODES = tuple(_ATEN)
"""torch's own operators that may become nodes of domain mmcv, by kernel."""


def exported_operators(
    mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]
) -> Iterator[tuple[Any, schemas.Operator]]:
    """Pair torch operators with the ONNX operators that they become: mmort's, the given ones, and torch's own."""
    import mmort.torch  # noqa: F401  it defines the torch operators

    for kernel, operator in schemas.kernels().items():
        if operator.type:  # numpy-only kernels have none
            yield getattr(torch.ops.mmort, kernel).default, operator
    for operator in operators:
        try:
            yield getattr(getattr(torch.ops, operator.domain), operator.kernel).default, operator
        except AttributeError:
            raise ValueError(
                f"export: operators must have torch operators, got {operator.domain}::{operator.type} without "
                f"torch.ops.{operator.domain}.{operator.kernel}"
            ) from None
    yield from mmcv_operators(mmcv_nodes)


def mmcv_operators(names: Collection[str]) -> Iterator[tuple[Any, schemas.Operator]]:
    """Pair torch's own operators of these names with nodes of domain mmcv."""
    for name in names:
        if name not in _ATEN:
            raise ValueError(f"export: mmcv_nodes must be among {', '.join(MMCV_NODES)}, got {name!r}")
        yield getattr(torch.ops.aten, _ATEN[name]).default, schemas.kernels()[name]


def is_tensor(argument: Any) -> bool:
    """Return whether an argument of a torch operator is a tensor, and so an input of the node."""
    return str(argument.type) in ("Tensor", "Optional[Tensor]")


def arrange(overload: Any, operator: schemas.Operator, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the node's inputs and attributes for the arguments of a call: by name, or in order if names differ."""
    arguments = overload._schema.arguments
    values = [*args, *(kwargs.get(argument.name, argument.default_value) for argument in arguments[len(args) :])]
    tensors: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    for argument, value in zip(arguments, values, strict=True):
        if is_tensor(argument):
            tensors[argument.name] = value
        elif isinstance(value, int) and argument.N:  # torch accepts one integer for int[2], too
            numbers[argument.name] = [value] * argument.N
        else:
            numbers[argument.name] = value
    inputs = _in_order_of(tensors, [tensor.name for tensor in operator.inputs])
    settings = _in_order_of(numbers, [attribute.argument for attribute in operator.attributes])
    if len(settings) == len(operator.attributes) - 1:  # a pair fills two attributes
        index = next(index for index, value in enumerate(settings) if isinstance(value, (list, tuple)))
        settings[index : index + 1] = settings[index]
    attributes = {
        attribute.name: _value(operator, attribute, value)
        for attribute, value in zip(operator.attributes, settings, strict=True)
    }
    return inputs, attributes


def _in_order_of(values: dict[str, Any], names: list[str]) -> list[Any]:
    """Return the values in the order of the names, or in their own if theirs are other names."""
    return [values[name] for name in dict.fromkeys(names)] if values.keys() == set(names) else list(values.values())


def _value(operator: schemas.Operator, attribute: schemas.Attribute, value: Any) -> Any:
    """Convert an argument to the attribute's type."""
    if attribute.type == "INT":
        if isinstance(value, str):
            value = attribute.words.index(value)
        if isinstance(value, torch.SymInt) or not isinstance(value, int):
            raise ValueError(
                f"{operator.kernel}: {attribute.name} must not depend on an input's size or values, got {value}"
            )
        return int(value)
    return {"FLOAT": float, "STRING": str, "INTS": list}[attribute.type](value)
