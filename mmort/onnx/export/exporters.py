"""torch's two exporters, each as a function that writes a draft and returns hints about frozen sizes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.onnx

from mmort.onnx.export import symbolics
from mmort.onnx.export.options import Example, Options
from mmort.onnx.export.torch_internals import quiet
from mmort.onnx.export.translations import translation_table

_LEGACY_OPSETS = range(11, 21)


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


def dynamo(example: Example, draft: Path, options: Options) -> list[str]:
    """Export by torch.export, which gives no hints."""
    with quiet(), torch.no_grad(), _collecting_later():
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
        program.save(draft)
    return []


def legacy(example: Example, draft: Path, options: Options) -> list[str]:
    """Export by tracing; return the tracer's warnings, one for each number that Python code read and so froze."""
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
    return traced


EXPORTERS: dict[str, Callable[[Example, Path, Options], list[str]]] = {"dynamo": dynamo, "legacy": legacy}
