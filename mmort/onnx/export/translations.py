"""What becomes of torch operators in torch's exporter ("dynamo"): nodes of the operators' own, or standard ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from inspect import Parameter, Signature
from typing import Any

import onnxscript
import torch

from mmort import schemas
from mmort.onnx.export import aten
from mmort.onnx.op_schemas import VERSION, op_schema

Translation = Callable[..., Any]

MMCV_NODES = ("cummax", "cummin", "grid_sample")
"""torch's own operators of which MMCV's exporter made nodes of domain mmcv."""


def translation_table(
    mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]
) -> dict[Callable[..., Any], Translation]:
    """Do what `mmort.onnx.translation_table` documents."""
    table = dict(aten.TRANSLATIONS)
    for overload, operator in (*torch_operators(operators), *replaced(mmcv_nodes)):
        table[overload] = _translation(overload, operator)
    return {overload: _with_signature(overload, translation) for overload, translation in table.items()}


def torch_operators(others: Iterable[schemas.Operator] = ()) -> Iterator[tuple[Any, schemas.Operator]]:
    """Pair mmort's torch operators, and others', with the ONNX operators that they become."""
    import mmort.torch  # noqa: F401  it defines the torch operators

    for kernel, operator in _preferred().items():
        yield getattr(torch.ops.mmort, kernel).default, operator
    for operator in others:
        try:
            yield getattr(getattr(torch.ops, operator.domain), operator.kernel).default, operator
        except AttributeError:
            raise ValueError(
                f"export: operators must have torch operators, got {operator.domain}::{operator.type} without "
                f"torch.ops.{operator.domain}.{operator.kernel}"
            ) from None


def replaced(names: Collection[str]) -> Iterator[tuple[Any, schemas.Operator]]:
    """Pair those of torch's own operators that are to become ``mmcv`` nodes with these."""
    for name in names:
        if name not in MMCV_NODES:
            raise ValueError(f"export: mmcv_nodes must be of {', '.join(MMCV_NODES)}, got {name!r}")
        aten = {"grid_sample": "grid_sampler"}.get(name, name)
        yield getattr(torch.ops.aten, aten).default, _preferred()[name]


def arrange(overload: Any, operator: schemas.Operator, args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the node's inputs and attributes for the arguments of a torch operator's call."""
    arguments = overload._schema.arguments
    values = [*args, *(kwargs.get(one.name, one.default_value) for one in arguments[len(args) :])]
    inputs = [value for argument, value in zip(arguments, values, strict=True) if is_tensor(argument)]
    settings = [
        [value] * argument.N
        if isinstance(value, int) and argument.N
        else value  # torch takes one integer for int[2] too
        for argument, value in zip(arguments, values, strict=True)
        if not is_tensor(argument)
    ]
    if len(settings) == len(operator.attributes) - 1:  # a pair fills two attributes
        place = next(i for i, value in enumerate(settings) if isinstance(value, (list, tuple)))
        settings[place : place + 1] = settings[place]
    attributes = {
        attribute.name: _value(operator, attribute, value)
        for attribute, value in zip(operator.attributes, settings, strict=True)
    }
    return inputs, attributes


def is_tensor(argument: Any) -> bool:
    """Whether an argument of a torch operator is a tensor, and so an input of the node."""
    return str(argument.type) in ("Tensor", "Optional[Tensor]")


def _preferred() -> dict[str, schemas.Operator]:
    operators = schemas.operators()
    return {operator.kernel: operator for operator in reversed(operators)}  # the first of a kernel stays


def _value(operator: schemas.Operator, attribute: schemas.Attribute, value: Any) -> Any:
    if attribute.type == "INT":
        if isinstance(value, str):
            value = attribute.words.index(value)
        if isinstance(value, torch.SymInt) or not isinstance(value, int):
            raise ValueError(
                f"{operator.kernel}: {attribute.name} must not depend on an input's size or values, got {value}"
            )
        return int(value)
    return {"FLOAT": float, "STRING": str, "INTS": list}[attribute.type](value)


def _translation(overload: Any, operator: schemas.Operator) -> Translation:
    node = onnxscript.values.Op(onnxscript.values.Opset(operator.domain, VERSION), operator.type, op_schema(operator))

    def translate(*args: Any, **kwargs: Any) -> Any:
        inputs, attributes = arrange(overload, operator, args, kwargs)
        return node(*inputs, **attributes)

    return translate


def _with_signature(overload: Any, translation: Translation) -> Translation:
    """Name a translation's arguments as torch's operator does: torch 2.9 chooses by that, and else takes its own."""

    def translate(*args: Any, **kwargs: Any) -> Any:
        return translation(*args, **kwargs)

    translate.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                one.name,
                Parameter.KEYWORD_ONLY if one.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=one.default_value if one.has_default_value() else Parameter.empty,
            )
            for one in overload._schema.arguments
        ]
    )
    translate.__annotations__ = {}
    return translate
