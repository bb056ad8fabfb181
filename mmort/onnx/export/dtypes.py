"""Dtypes that a model cannot have in ONNX, refused before torch's exporter works on it for seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mmort.onnx.export.options import Example
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.values import leaves


def refuse_dtypes(example: Example) -> None:
    """Raise ValueError for bfloat16, and for other dtypes than float32 that reach an operator of mmort."""
    tensors = [*leaves(example.args), *example.module.parameters(), *example.module.buffers()]
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()} - {torch.float32}
    if torch.bfloat16 in dtypes:
        raise ValueError(_text("model and args", torch.bfloat16))
    if dtypes:
        with torch.no_grad(), Intercepted(_refuse_other):
            example.module(*example.args)


def _refuse_other(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Refuse a call of one of mmort's operators with another dtype than float32."""
    if func.namespace == "mmort":
        for value in args:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float32:
                raise ValueError(_text(f"the inputs of {func._opname}", value.dtype))
    return func(*args, **kwargs)


def _text(name: str, dtype: torch.dtype) -> str:
    """Return the message, with the remedy."""
    return (
        f"export: {name} must be float32, got {dtype}; export model.float() with float32 args, and reduce the file's "
        "precision afterwards if need be"
    )
