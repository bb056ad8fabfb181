"""Which size or branch of the example an export froze: the causes in the text of a VerificationError."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import torch

from mmort.onnx.export import torch_internals
from mmort.onnx.export.inputs import DynamicAxes, is_dynamic


def frozen_axes(model: onnx.ModelProto, axes: Sequence[DynamicAxes]) -> list[str]:
    """Name the inputs' axes that should be dynamic and are not."""
    causes = []
    for tensor, (_, dynamic) in zip(model.graph.input, axes, strict=False):
        dims = tensor.type.tensor_type.shape.dim
        causes += [
            f"axis {axis} of {tensor.name} was to be dynamic and is frozen at {dims[axis].dim_value}"
            for axis in dynamic
            if dims[axis].HasField("dim_value")
        ]
    return causes


def violated_guards(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    dynamic_shapes: tuple[Any, ...],
    passed: Sequence[tuple[Any, ...]],
    failed: Sequence[tuple[Any, ...]],
) -> list[str]:
    """Name the conditions that hold for all inputs that passed, but not for all that failed.

    torch.onnx.export discards these conditions, so the model is captured again, only for the text of an error.
    """
    try:
        with torch_internals.quiet(), torch.no_grad():
            program = torch.export.export(module, args, dynamic_shapes=_automatic(dynamic_shapes))
    except Exception as error:  # any failure of torch.export explains the difference
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return ["torch.export reports: " + " ".join(lines[:4])]
    signature = inspect.signature(module.forward)
    good, bad = ([signature.bind(*values).arguments for values in inputs] for inputs in (passed, failed))
    return [
        f"{guard} was taken for granted at {guard.location}"
        for guard in torch_internals.guards(program)
        if all(map(guard.holds, good)) and not all(map(guard.holds, bad))
    ]


def _automatic(spec: Any) -> Any:
    """Replace dynamic dimensions by AUTO, so that torch.export freezes axes instead of refusing the model."""
    if isinstance(spec, Mapping):
        return {key: _automatic(value) for key, value in spec.items()}
    if isinstance(spec, (list, tuple)):
        return type(spec)(map(_automatic, spec))
    return torch.export.Dim.AUTO if is_dynamic(spec) else spec
