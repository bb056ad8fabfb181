"""The operators as `onnx.defs.OpSchema`, from which torch's exporter builds nodes and onnx's checker checks them."""

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
"""The version of the operators' domains."""


def op_schema(operator: schemas.Operator) -> OpSchema:
    """Return an operator's schema for onnx.

    An attribute with a former name may be left out, as old files have it under that name; both are of the same type.

    Examples
    --------
    >>> import mmort.schemas
    >>> from mmort.onnx.op_schemas import op_schema
    >>> row = next(row for row in mmort.schemas.operators() if row.type == "MMCVCornerPool")
    >>> schema = op_schema(row)
    >>> schema.domain, schema.name, [tensor.name for tensor in schema.inputs], schema.attributes["mode"].required
    ('mmcv', 'MMCVCornerPool', ['input'], True)
    """
    return OpSchema(
        operator.type,
        operator.domain,
        VERSION,
        inputs=[_formal(tensor) for tensor in operator.inputs],
        outputs=[_formal(tensor) for tensor in operator.outputs],
        attributes=[formal for attribute in operator.attributes for formal in _attributes(attribute)],
    )


def check(model: onnx.ModelProto | str | os.PathLike[str], operators: Iterable[schemas.Operator] | None = None) -> None:
    """Check a model as ``onnx.checker`` does, including the inputs and attributes of the operators' nodes.

    Parameters
    ----------
    model : onnx.ModelProto or path
    operators : iterable of mmort.schemas.Operator, optional
        Default: mmort's own.  They are registered with onnx during the check only, as its reference evaluator cannot be
        imported while two domains have an operator of the same name.

    Raises
    ------
    onnx.checker.ValidationError
        If the model is invalid.

    Examples
    --------
    >>> import onnx.helper as oh
    >>> from mmort.onnx.op_schemas import check
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode="left")
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]), opset_imports=[oh.make_opsetid("mmcv", 1)])
    >>> check(model)
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
    """Return the schema of an input or output."""
    option = OpSchema.FormalParameterOption.Optional if tensor.optional else OpSchema.FormalParameterOption.Single
    return OpSchema.FormalParameter(tensor.name, schemas.ELEMENT_TYPES[tensor.type], tensor.shape, param_option=option)


def _attributes(attribute: schemas.Attribute) -> list[OpSchema.Attribute]:
    """Return the schema of an attribute, one for each of its names if it has a former one."""
    attribute_type = getattr(OpSchema.AttrType, attribute.type)
    if attribute.former_name is not None:
        names = attribute.name, attribute.former_name
        return [OpSchema.Attribute(name, attribute_type, required=False) for name in names]
    if attribute.default is None:
        return [OpSchema.Attribute(attribute.name, attribute_type, required=True)]
    value = list(attribute.default) if isinstance(attribute.default, tuple) else attribute.default
    if attribute.type == "FLOAT":
        value = float(value)  # type: ignore[arg-type]
    return [OpSchema.Attribute(attribute.name, onnx.helper.make_attribute(attribute.name, value))]
