"""torch's two exporters, each as a function that writes a draft and returns how it was traced.

Before: dtypes that a model cannot have in ONNX are refused.  After: `remove_traces` removes what the exporters note.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import torch
import torch.onnx

from mmort.onnx.export import symbolics
from mmort.onnx.export.options import Example, Options
from mmort.onnx.export.torch_internals import linear_rewriting, quiet
from mmort.onnx.export.translations import translation_table
from mmort.onnx.graph import inspection, structure
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.onnx.verify.values import leaves

_LEGACY_OPSETS = range(11, 21)


def refuse_dtypes(example: Example) -> None:
    """Raise ValueError for bfloat16, and for other dtypes than float32 that reach an operator of mmort."""
    tensors = [*leaves(example.args), *example.module.parameters(), *example.module.buffers()]
    dtypes = {tensor.dtype for tensor in tensors if tensor.is_floating_point()} - {torch.float32}
    if torch.bfloat16 in dtypes:
        raise ValueError(_dtype_text("model and args", torch.bfloat16))
    if dtypes:
        with torch.no_grad(), Intercepted(_refuse_other):
            example.module(*example.args)


def _refuse_other(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Refuse a call of one of mmort's operators with another dtype than float32."""
    if func.namespace == "mmort":
        for value in args:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float32:
                raise ValueError(_dtype_text(f"the inputs of {func._opname}", value.dtype))
    return func(*args, **kwargs)


def _dtype_text(name: str, dtype: torch.dtype) -> str:
    """Return the message, with the remedy."""
    return (
        f"export: {name} must be float32, got {dtype}; export model.float() with float32 args, and reduce the file's "
        "precision afterwards if need be"
    )


@contextmanager
def _collecting_later() -> Iterator[None]:
    """Keep Python from looking for garbage among what tracing allocates: there is little, and it adds a fifth."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@dataclass(frozen=True)
class Traced:
    """A by-product of an exporter, beside the draft of the file."""

    program: torch.export.ExportedProgram | None = None
    """The program that was translated; None of the exporter that traces."""
    hints: Sequence[str] = ()
    """A line for each number that Python code read, and that tracing froze."""


def dynamo(example: Example, draft: Path, options: Options) -> Traced:
    """Export by torch.export."""
    with quiet(), torch.no_grad(), _collecting_later(), linear_rewriting():
        program = torch.onnx.export(
            example.module,
            example.positional,
            dynamo=True,
            verbose=False,
            dynamic_shapes=tuple(example.specs) if any(dynamic for _, dynamic in example.axes) else None,
            opset_version=options.opset_version,
            input_names=example.names,
            output_names=options.output_names,
            custom_translation_table=translation_table(options.mmcv_nodes, options.operators),
        )
        assert program is not None  # as dynamo=True
        program.save(draft, external_data=True)  # weights stay in a file until the draft is accepted
    return Traced(program.exported_program)


def legacy(example: Example, draft: Path, options: Options) -> Traced:
    """Export by tracing."""
    if options.opset_version is not None and options.opset_version not in _LEGACY_OPSETS:
        raise ValueError(
            f"export: opset_version must be {_LEGACY_OPSETS[0]} to {_LEGACY_OPSETS[-1]} with the legacy exporter, got "
            f"{options.opset_version}"
        )
    symbolics.register_symbolics(options.mmcv_nodes, options.operators)
    dynamic_axes = {
        name: {
            axis: dim if isinstance(dim, str) else getattr(dim, "__name__", f"{name}_{axis}")
            for axis, dim in dynamic.items()
        }
        for name, (_, dynamic) in zip(example.names, example.axes, strict=True)
    }
    try:
        with quiet() as traced, torch.no_grad():
            torch.onnx.export(
                example.module,
                example.positional,
                draft,
                dynamo=False,
                dynamic_axes=dynamic_axes,
                opset_version=options.opset_version,
                input_names=example.names,
                output_names=options.output_names,
            )
    finally:
        symbolics.unregister_symbolics(options.mmcv_nodes)
    return Traced(hints=traced)


EXPORTERS: dict[str, Callable[[Example, Path, Options], Traced]] = {"dynamo": dynamo, "legacy": legacy}


def remove_traces(model: onnx.ModelProto) -> None:
    """Remove what torch's exporter notes at nodes and tensors: stack traces, with paths of this machine."""
    inner = [graph for node in inspection.every_node(model) for graph in structure.graphs(node)]
    for graph in (model.graph, *inner):
        for part in (graph, *graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
            del part.metadata_props[:]
    for function in model.functions:
        for part in (function, *function.node, *function.value_info):
            del part.metadata_props[:]
