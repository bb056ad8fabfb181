"""The operators as `onnx.defs.OpSchema`: what the exporters build nodes from, and what the ONNX checker checks."""

from __future__ import annotations

import os
from collections.abc import Iterable

import onnx
import onnx.checker
import onnx.defs
import onnx.helper
from onnx.defs import OpSchema

from mmort import schemas

VERSION = 1
"""Of the operators' domains."""

_TYPES = {"float32": "tensor(float)", "int64": "tensor(int64)"}


def op_schema(operator: schemas.Operator) -> OpSchema:
    """Return an operator's schema for onnx.

    An attribute with a former name may be left out, as old files have it under that name; both are of the same type.

    Examples
    --------
    >>> import mmort.onnx.schemas, mmort.schemas
    >>> row = next(row for row in mmort.schemas.operators() if row.type == "MMCVCornerPool")
    >>> schema = mmort.onnx.schemas.op_schema(row)
    >>> schema.domain, schema.name, [one.name for one in schema.inputs], schema.attributes["mode"].required
    ('mmcv', 'MMCVCornerPool', ['input'], True)
    """
    return OpSchema(
        operator.type,
        operator.domain,
        VERSION,
        inputs=[_formal(one) for one in operator.inputs],
        outputs=[_formal(one) for one in operator.outputs],
        attributes=[attribute for one in operator.attributes for attribute in _attributes(one)],
    )


def check(model: onnx.ModelProto | str | os.PathLike[str], operators: Iterable[schemas.Operator] | None = None) -> None:
    """Check a model as ``onnx.checker`` does, the operators' nodes too: other inputs or attributes are refused.

    Parameters
    ----------
    model : onnx.ModelProto or path
    operators : iterable of mmort.schemas.Operator, optional
        By default mmort's own.  onnx knows them during the check only: its reference evaluator cannot be imported while
        two domains have an operator of the same name.

    Raises
    ------
    onnx.checker.ValidationError
        If something is wrong.

    Examples
    --------
    >>> import onnx.helper as oh
    >>> import mmort.onnx.schemas
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode="left")
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]), opset_imports=[oh.make_opsetid("mmcv", 1)])
    >>> mmort.onnx.schemas.check(model)
    Traceback (most recent call last):
    onnx.onnx_cpp2py_export.checker.ValidationError: Mismatched attribute type in ' : mode'...
    """
    registered = []
    try:
        for operator in schemas.operators() if operators is None else operators:
            if not onnx.defs.has(operator.type, operator.domain):
                onnx.defs.register_schema(op_schema(operator))
                registered.append(operator)
        onnx.checker.check_model(model)
    finally:
        for operator in registered:
            onnx.defs.deregister_schema(operator.type, VERSION, operator.domain)


def _formal(tensor: schemas.Tensor) -> OpSchema.FormalParameter:
    option = OpSchema.FormalParameterOption.Optional if tensor.optional else OpSchema.FormalParameterOption.Single
    return OpSchema.FormalParameter(tensor.name, _TYPES[tensor.type], tensor.shape, param_option=option)


def _attributes(attribute: schemas.Attribute) -> list[OpSchema.Attribute]:
    kind = getattr(OpSchema.AttrType, attribute.type)
    if attribute.former_name is not None:
        names = attribute.name, attribute.former_name
        return [OpSchema.Attribute(name, kind, required=False) for name in names]
    if attribute.default is None:
        return [OpSchema.Attribute(attribute.name, kind, required=True)]
    value = list(attribute.default) if isinstance(attribute.default, tuple) else attribute.default
    if attribute.type == "FLOAT":
        value = float(value)  # type: ignore[arg-type]
    return [OpSchema.Attribute(attribute.name, onnx.helper.make_attribute(attribute.name, value))]
