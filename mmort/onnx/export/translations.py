"""The operators in torch's exporter by torch.export ("dynamo"): its table of custom translations."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from inspect import Parameter, Signature
from typing import Any

import onnxscript

from mmort import schemas
from mmort.onnx.export.aten import TRANSLATIONS
from mmort.onnx.export.calls import arrange, exported_operators
from mmort.onnx.op_schemas import VERSION, op_schema

Translation = Callable[..., Any]
"""Takes the arguments of a torch operator, its tensors as onnxscript's, and adds ONNX nodes for it."""


def translation_table(
    mmcv_nodes: Collection[str], operators: Iterable[schemas.Operator]
) -> dict[Callable[..., Any], Translation]:
    """Implement `mmort.onnx.translation_table`."""
    table = dict(TRANSLATIONS)
    for overload, operator in exported_operators(mmcv_nodes, operators):
        table[overload] = _translation(overload, operator)
    return {overload: _with_signature(overload, translation) for overload, translation in table.items()}


def _translation(overload: Any, operator: schemas.Operator) -> Translation:
    """Return the translation of a torch operator to one node."""
    node = onnxscript.values.Op(onnxscript.values.Opset(operator.domain, VERSION), operator.type, op_schema(operator))

    def translate(*args: Any, **kwargs: Any) -> Any:
        inputs, attributes = arrange(overload, operator, args, kwargs)
        return node(*inputs, **attributes)

    return translate


def _with_signature(overload: Any, translation: Translation) -> Translation:
    """Give a translation the signature of torch's operator, by which torch 2.9 prefers it to its own."""

    def translate(*args: Any, **kwargs: Any) -> Any:
        return translation(*args, **kwargs)

    translate.__signature__ = Signature(  # type: ignore[attr-defined]
        [
            Parameter(
                argument.name,
                Parameter.KEYWORD_ONLY if argument.kwarg_only else Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if argument.has_default_value() else Parameter.empty,
            )
            for argument in overload._schema.arguments
        ]
    )
    translate.__annotations__ = {}
    return translate
