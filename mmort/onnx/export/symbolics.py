"""The operators in torch's legacy exporter (``dynamo=False``), which torch keeps but no longer develops."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
import torch.onnx

from mmort import schemas
from mmort.onnx.export.calls import arrange, exported_operators, is_tensor, mmcv_operators

_FIRST_OPSETS = {"aten::grid_sampler": (11, 16, 20)}
"""The opsets at which torch has a new translation, which hides what is registered for older opsets."""


def register_symbolics(mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]) -> None:
    """Implement `mmort.onnx.register_symbolics`."""
    torch.onnx.register_custom_op_symbolic("aten::unflatten", _unflatten, 11)  # type: ignore[attr-defined]
    for overload, operator in exported_operators(mmcv_nodes, operators):
        symbolic = _symbolic(overload, operator)
        for opset in _opsets(overload):
            torch.onnx.register_custom_op_symbolic(  # type: ignore[attr-defined]  # public, but not in the stubs
                overload._schema.name, symbolic, opset
            )


def unregister_symbolics(mmcv_nodes: Collection[str]) -> None:
    """Restore torch's own translations of its operators."""
    for overload, _ in mmcv_operators(mmcv_nodes):
        for opset in _opsets(overload):
            torch.onnx.unregister_custom_op_symbolic(overload._schema.name, opset)  # type: ignore[attr-defined]


def _unflatten(g: Any, x: Any, dim: torch._C.Value, sizes: torch._C.Value) -> Any:
    """Translate ``unflatten``, which torch itself translates from opset 13 on."""
    rank = x.type().dim()
    if rank is None:
        raise ValueError("aten::unflatten: the rank of its input must be known")
    axis = int(dim.node().t("value")) % rank
    shape = g.op("Shape", x)
    before = g.op("Slice", shape, _index(g, 0), _index(g, axis))
    after = g.op("Slice", shape, _index(g, axis + 1), _index(g, rank))
    return g.op("Reshape", x, g.op("Concat", before, sizes, after, axis_i=0))


def _index(g: Any, value: int) -> Any:
    """Add a constant list of one number."""
    return g.op("Constant", value_t=torch.tensor([value]))


def _opsets(overload: Any) -> tuple[int, ...]:
    """Return the opsets to register an operator for."""
    return _FIRST_OPSETS.get(overload._schema.name, (11,))


def _symbolic(overload: Any, operator: schemas.Operator) -> Callable[..., Any]:
    """Return the function that adds a node for a call of a torch operator."""

    def symbolic(g: Any, *args: Any, **kwargs: Any) -> Any:
        values = [
            value if is_tensor(argument) else _constant(operator, argument.name, value)
            for argument, value in zip(overload._schema.arguments, args, strict=False)
        ]
        inputs, attributes = arrange(overload, operator, values, kwargs)
        while inputs and _is_none(inputs[-1]):
            inputs.pop()
        suffixes = {"INT": "_i", "FLOAT": "_f", "STRING": "_s", "INTS": "_i"}
        typed = {formal.name + suffixes[formal.type]: attributes[formal.name] for formal in operator.attributes}
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
        return [_constant(operator, name, item) for item in node.inputs()]
    if node.mustBeNone():
        return None
    if node.kind() != "onnx::Constant":
        raise ValueError(f"{operator.kernel}: {name} must not depend on an input's size or values")
    constant = getattr(node, node.kindOf("value"))("value")  # the method that reads this kind of value
    return constant.tolist() if isinstance(constant, torch.Tensor) else constant


def _is_none(value: Any) -> bool:
    """Return whether an argument is None, in Python or in the traced graph."""
    return value is None or (isinstance(value, torch._C.Value) and value.node().mustBeNone())


def _set_type(
    tensor: schemas.Tensor,
    result: torch._C.Value,
    inputs: list[Any],
    operator: schemas.Operator,
    attributes: dict[str, Any],
) -> None:
    """Set an output's type, and as much of its shape as follows from the row and the inputs."""
    dtype = getattr(torch, tensor.type)
    if tensor.dimensions == (...,):  # all those of the first input
        result.setType(
            inputs[0].type() if tensor.type == operator.inputs[0].type else inputs[0].type().with_dtype(dtype)
        )
        return
    known: dict[Any, int | None] = {name: value for name, value in attributes.items() if isinstance(value, int)}
    for formal, value in zip(operator.inputs, inputs, strict=False):
        sizes = None if _is_none(value) else value.type().sizes()
        if sizes is not None and len(sizes) == len(formal.dimensions):
            known |= dict(zip(formal.dimensions, sizes, strict=True))
    shape = [size if isinstance(size, int) else known.get(size) for size in tensor.dimensions]
    result.setType(inputs[0].type().with_dtype(dtype).with_sizes(shape))
