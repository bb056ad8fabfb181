"""The operators in torch's legacy exporter (``dynamo=False``), which torch keeps but no longer develops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
import torch.onnx

from mmort import schemas
from mmort.onnx.export.translations import arrange, is_tensor, replaced, torch_operators

_FIRST_OPSETS = {"aten::grid_sampler": (11, 16, 20)}
"""Opsets from which on torch has translations of its own: each hides what was registered for older ones."""

_TYPES = {"float32": torch.float32, "int64": torch.int64}


def register_symbolics(mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]) -> None:
    """Do what `mmort.onnx.register_symbolics` documents."""
    torch.onnx.register_custom_op_symbolic("aten::unflatten", _unflatten, 11)  # type: ignore[attr-defined]
    for overload, operator in (*torch_operators(operators), *replaced(mmcv_nodes)):
        symbolic = _symbolic(overload, operator)
        for opset in _opsets(overload):
            torch.onnx.register_custom_op_symbolic(  # type: ignore[attr-defined]  # public, but not in the stubs
                overload._schema.name, symbolic, opset
            )


def unregister_symbolics(mmcv_nodes: Collection[str]) -> None:
    """Let torch's own operators be exported as torch does by itself."""
    for overload, _ in replaced(mmcv_nodes):
        for opset in _opsets(overload):
            torch.onnx.unregister_custom_op_symbolic(overload._schema.name, opset)  # type: ignore[attr-defined]


def _unflatten(g: Any, x: Any, dim: torch._C.Value, sizes: torch._C.Value) -> Any:
    """Split an axis: torch's own translation begins at opset 13."""
    rank = x.type().dim()
    if rank is None:
        raise ValueError("aten::unflatten: the rank of its input must be known")
    axis = int(dim.node().t("value")) % rank
    shape = g.op("Shape", x)
    before = g.op("Slice", shape, _indices(g, 0), _indices(g, axis))
    after = g.op("Slice", shape, _indices(g, axis + 1), _indices(g, rank))
    return g.op("Reshape", x, g.op("Concat", before, sizes, after, axis_i=0))


def _indices(g: Any, value: int) -> Any:
    return g.op("Constant", value_t=torch.tensor([value]))


def _opsets(overload: Any) -> tuple[int, ...]:
    return _FIRST_OPSETS.get(overload._schema.name, (11,))


def _symbolic(overload: Any, operator: schemas.Operator) -> Callable[..., Any]:
    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        values = [
            value if is_tensor(argument) else _constant(operator, argument.name, value)
            for argument, value in zip(overload._schema.arguments, args, strict=False)
        ]
        inputs, attributes = arrange(overload, operator, values, kwargs)
        while inputs and _is_none(inputs[-1]):
            inputs.pop()
        suffixes = {"INT": "_i", "FLOAT": "_f", "STRING": "_s", "INTS": "_i"}
        typed = {one.name + suffixes[one.type]: attributes[one.name] for one in operator.attributes}
        results = g.op(f"{operator.domain}::{operator.type}", *inputs, outputs=len(operator.outputs), **typed)
        outputs = (results,) if len(operator.outputs) == 1 else tuple(results)
        for tensor, result in zip(operator.outputs, outputs, strict=True):
            _set_type(tensor, result, inputs, operator, attributes)
        return results

    return symbolic


def _constant(operator: schemas.Operator, name: str, value: Any) -> Any:
    """Return the Python value of an argument that becomes an attribute."""
    if not isinstance(value, torch._C.Value):
        return value
    node = value.node()
    if node.kind() == "prim::ListConstruct":
        return [_constant(operator, name, one) for one in node.inputs()]
    if node.mustBeNone():
        return None
    if node.kind() != "onnx::Constant":
        raise ValueError(f"{operator.kernel}: {name} must not depend on an input's size or values")
    constant = getattr(node, node.kindOf("value"))("value")  # the name of the method that reads this kind of value
    return constant.tolist() if isinstance(constant, torch.Tensor) else constant


def _is_none(value: Any) -> bool:
    return value is None or (isinstance(value, torch._C.Value) and value.node().mustBeNone())


def _set_type(
    tensor: schemas.Tensor,
    result: torch._C.Value,
    inputs: list[Any],
    operator: schemas.Operator,
    attributes: dict[str, Any],
) -> None:
    """Tell torch an output's type and as much of its shape as the table and the inputs say."""
    if tensor.shape == "[...]":
        result.setType(inputs[0].type())
        if tensor.type != operator.inputs[0].type:
            result.setType(inputs[0].type().with_dtype(_TYPES[tensor.type]))
        return
    known: dict[str, int | None] = {name: value for name, value in attributes.items() if isinstance(value, int)}
    for formal, value in zip(operator.inputs, inputs, strict=False):
        sizes = None if _is_none(value) else value.type().sizes()
        names = _dimensions(formal.shape)
        if sizes is not None and len(sizes) == len(names):
            known |= dict(zip(names, sizes, strict=True))
    shape = [int(name) if name.isdigit() else known.get(name) for name in _dimensions(tensor.shape)]
    result.setType(inputs[0].type().with_dtype(_TYPES[tensor.type]).with_sizes(shape))


def _dimensions(shape: str) -> list[str]:
    return shape.strip("[]").split(", ")
