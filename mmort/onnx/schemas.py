"""The operators as `onnx.defs.OpSchema`: what the exporters build nodes from, and what the ONNX checker checks."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
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
    >>> row = next(row for row in mmort.schemas.operators() if row.type == "NonMaxSuppression")
    >>> schema = mmort.onnx.schemas.op_schema(row)
    >>> schema.domain, schema.name, [one.name for one in schema.inputs], schema.attributes["iou_threshold"].required
    ('mmcv', 'NonMaxSuppression', ['boxes', 'scores'], True)
    """
    return OpSchema(
        operator.type,
        operator.domain,
        VERSION,
        inputs=[_formal(one) for one in operator.inputs],
        outputs=[_formal(one) for one in operator.outputs],
        attributes=[attribute for one in operator.attributes for attribute in _attributes(one)],
    )


def register(operators: Iterable[schemas.Operator] | None = None) -> None:
    """Make ``onnx.checker`` know the operators: it then refuses nodes with other inputs or attributes than theirs.

    Parameters
    ----------
    operators : iterable of mmort.schemas.Operator, optional
        By default mmort's own.  What is registered already stays.

    Examples
    --------
    >>> import onnx.defs
    >>> import mmort.onnx.schemas
    >>> mmort.onnx.schemas.register()
    >>> onnx.defs.has("MMCVRoiAlign", "mmcv")
    True
    """
    for operator in schemas.operators() if operators is None else operators:
        if not onnx.defs.has(operator.type, operator.domain):
            onnx.defs.register_schema(op_schema(operator))


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
