"""The way from a torch model to an ONNX file that is known to compute the same, at other sizes too."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Literal

import onnx
import torch
import torch.onnx

from mmort import schemas
from mmort.onnx import checks, guards, symbolics
from mmort.onnx.detections import DetectionRow
from mmort.onnx.portable import make_portable
from mmort.onnx.schemas import check
from mmort.onnx.translations import translation_table
from mmort.onnx.verification import (
    ATOL,
    RTOL,
    Report,
    Row,
    VerificationError,
    compare,
    leaves,
    open_session,
    refusal,
    shapes_text,
)

# What torch's exporters warn of and users of this module can do nothing about.
_KNOWN_WARNINGS = (
    "`isinstance(treespec, LeafSpec)` is deprecated",
    "You are using the legacy TorchScript-based ONNX export",
    "The feature will be removed. Please remove usage of this function",
    "# The axis name: ",  # another input has it too, or two axes always have the same size
    *(f"The shape inference of {domain}::" for domain in ("mmcv", "mmdeploy", "mmort")),
)
_KNOWN_LOG = "torchvision is not installed"

_LEGACY_OPSETS = 11, 20


def export(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    dynamic_shapes: Mapping[str, Any] | Sequence[Any] | None = None,
    check_sizes: Sequence[Any] | None = None,
    opset_version: int | None = None,
    input_names: Sequence[str] | None = None,
    output_names: Sequence[str] | None = None,
    portable: bool = False,
    simplify: bool = False,
    exporter: Literal["dynamo", "legacy"] = "dynamo",
    mmcv_nodes: Collection[str] = (),
    operators: Sequence[schemas.Operator] = (),
    libraries: Sequence[str | os.PathLike[str]] = (),
    rtol: float = RTOL,
    atol: float = ATOL,
) -> Report:
    """Export a model to an ONNX file, and prove that ONNX Runtime computes with it what torch computes.

    The file appears only if the proof succeeds: torch and ONNX Runtime are run on the example and on inputs of other
    sizes.  torch's exporter may silently freeze a size or a branch that the example took, so that a file is right for
    the example only.

    Parameters
    ----------
    model : torch.nn.Module or function
        In evaluation mode (``model.eval()``).
    args : sequence
        The example's arguments.  Tensors become inputs of the file, all else is constant.  Take a batch of 2 or more,
        height and width that differ, and no multiples of a stride.
    path : path
        The file to write; its folder must exist.  Models above 2 GB get a second file for weights.
    dynamic_shapes : mapping or sequence, optional
        For each argument, in order or by name, None or {axis: dimension}: a name, or torch.export's ``Dim.DYNAMIC``,
        ``Dim.AUTO`` or ``Dim(name, min=..., max=...)``.  By default all sizes are the example's.
    check_sizes : sequence, optional
        The inputs to check with besides the example, one or more: each a shape of the only input ``(2, 3, 64, 96)``,
        shapes by name ``{"image": (2, 3, 64, 96)}``, or a tuple of arguments.  The numbers of the first two are made
        from the example's: maps [N, C, H, W] are random, of others rows are repeated.  Each dynamic axis must get
        another size at least once.  By default two sets: more of everything with images wider than high, and less of
        everything with images higher than wide; without dynamic axes two of the example's shape.
    opset_version : int, optional
        Default: the exporter's own.  "dynamo" has no opset below 18 that can be relied upon; "legacy" has 11 to 20.
    input_names, output_names : sequence of str, optional
        Default: the names of the arguments, and the exporter's own.
    portable : bool, default False
        Add definitions of mmort's operators, so that the file also runs without the library: `make_portable`.  It is
        then checked both ways, and refused if an operator has no definition.
    simplify : bool, default False
        Let onnxslim remove nodes.  That has not been seen to make models faster.
    exporter : {"dynamo", "legacy"}, default "dynamo"
        torch's exporter by torch.export, or the one by tracing (``dynamo=False``), which freezes every size that Python
        code looks at.
    mmcv_nodes : collection of str, default ()
        As for `translation_table`.
    operators : sequence of mmort.schemas.Operator, default ()
        Operators of others, as for `translation_table`; their library goes into `libraries`.
    libraries : sequence of paths, default ()
        Further libraries of custom operators that the check needs.
    rtol, atol : float
        As for `verify`.

    Returns
    -------
    Report
        The rows of the check, all of which are ok.

    Raises
    ------
    VerificationError
        A ValueError: the file does not compute what the model does.  The text has the table, and names the size or
        branch that was frozen where torch.export tells it; ``report`` has the rows.
    ValueError
        If an argument is not as said above, or the model itself fails at a size to check with.
    ImportError
        If onnxslim or ONNX Runtime is needed and not installed.
    torch.onnx's exceptions
        If the model cannot be exported at all.

    Notes
    -----
    The example in the models that were tried: an NMS in the middle, levels of features, masks.  ``docs/export.md`` says
    how a model must be written so that all sizes work.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import torch
    >>> import mmort.onnx
    >>> path = pathlib.Path(tempfile.mkdtemp(), "pool.onnx")
    >>> report = mmort.onnx.export(lambda x: x.amax(), (torch.rand(2, 3, 5),), path, dynamic_shapes=({0: "n"},))
    >>> report.ok, path.exists()
    (True, True)
    """
    if exporter not in ("dynamo", "legacy"):
        raise ValueError(f"export: exporter must be 'dynamo' or 'legacy', got {exporter!r}")
    path, args = Path(path), tuple(args)
    function = model.forward if isinstance(model, torch.nn.Module) else model
    arguments = checks.argument_names(function, len(args))
    module = model if isinstance(model, torch.nn.Module) else _Function(model, arguments)
    training = next((name or "model" for name, one in module.named_modules() if one.training), None)
    if training is not None:
        raise ValueError(
            f"export: model must be in evaluation mode, call model.eval(); got {training} in training mode"
        )
    specs = checks.by_argument(dynamic_shapes, arguments)
    axes = [pair for value, spec in zip(args, specs, strict=True) for pair in checks.dynamic_axes(value, spec)]
    names = _input_names(input_names, arguments, args)
    inputs = _inputs(args, axes, check_sizes, names)
    with tempfile.TemporaryDirectory(prefix=".mmort-", dir=path.parent) as folder:
        draft = Path(folder, path.name)
        to_file = _export_dynamo if exporter == "dynamo" else _export_legacy
        hints = to_file(
            module,
            args,
            draft,
            specs=specs,
            axes=axes,
            opset_version=opset_version,
            input_names=names,
            output_names=output_names,
            mmcv_nodes=mmcv_nodes,
            operators=operators,
        )
        _check_file(draft, opset_version, exporter, operators)
        if simplify:
            _simplify(draft)
        if portable:
            _make_portable(draft)
        report = _verify(draft, module, inputs, libraries, rtol, atol)
        if portable and report.ok:
            alone = _verify(draft, module, inputs, libraries, rtol, atol, own_library=False)
            rows = (dataclasses.replace(row, inputs=f"{row.inputs}, no library") for row in alone.rows)
            report = Report((*report.rows, *rows))
        frozen = _frozen_axes(draft, axes)
        if frozen or not report.ok:
            causes = frozen + hints + _violated_guards(module, args, tuple(specs), inputs, report)
            raise VerificationError(_explanation(path, causes, report), report)
        for file in Path(folder).iterdir():
            os.replace(file, path.parent / file.name)
    return report


class _Function(torch.nn.Module):
    """A function as a module, which torch.export wants; with named arguments, as torch 2.9 fails with ``*args``."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        super().__init__()

        def forward(*args: Any) -> Any:
            return function(*args)

        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        forward.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward
        self.eval()


def _input_names(names: Sequence[str] | None, arguments: Sequence[str], args: Sequence[Any]) -> list[str]:
    """Name the inputs: as asked for, or as the arguments, with numbers where one has several tensors."""
    default: list[str] = []
    for argument, value in zip(arguments, args, strict=True):
        count = len(leaves(value))
        default += [argument] if isinstance(value, torch.Tensor) else [f"{argument}_{i}" for i in range(count)]
    if names is not None and len(names) != len(default):
        raise ValueError(f"export: input_names must be {len(default)}, one for each tensor in args, got {len(names)}")
    return default if names is None else list(names)


def _inputs(
    args: tuple[Any, ...],
    axes: Sequence[tuple[torch.Tensor, dict[int, Any]]],
    check_sizes: Sequence[Any] | None,
    names: Sequence[str],
) -> list[tuple[Any, ...]]:
    if check_sizes is not None:
        others = checks.given(args, check_sizes, names)
        checks.assert_other_sizes(axes, others, names)
    else:
        others = checks.derive(args, axes)
        if not others:
            shapes = [tensor.shape for tensor, _ in axes]
            others = [checks.resized(args, shapes, seed) for seed in range(2)]
    return [args, *others]


def _export_dynamo(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    path: Path,
    *,
    specs: Sequence[Any],
    axes: Sequence[tuple[torch.Tensor, dict[int, Any]]],
    opset_version: int | None,
    input_names: list[str],
    output_names: Sequence[str] | None,
    mmcv_nodes: Collection[str],
    operators: Sequence[schemas.Operator],
) -> list[str]:
    with _quiet(), torch.no_grad():
        program = torch.onnx.export(
            module,
            _positional(args),
            dynamo=True,
            verbose=False,
            dynamic_shapes=tuple(specs) if any(spec for _, spec in axes) else None,
            opset_version=opset_version,
            input_names=input_names,
            output_names=output_names,
            custom_translation_table=translation_table(mmcv_nodes=mmcv_nodes, operators=operators),
        )
        assert program is not None  # it is with dynamo=True
        program.save(path)
    return []


def _positional(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments of which torch.onnx does not take the last one, a dict, for the keyword arguments."""
    return (*args, {}) if args and isinstance(args[-1], dict) else args


def _export_legacy(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    path: Path,
    *,
    specs: Sequence[Any],
    axes: Sequence[tuple[torch.Tensor, dict[int, Any]]],
    opset_version: int | None,
    input_names: list[str],
    output_names: Sequence[str] | None,
    mmcv_nodes: Collection[str],
    operators: Sequence[schemas.Operator],
) -> list[str]:
    """Return what the tracer warned of: each time Python looked at a number that it then froze."""
    if opset_version is not None and not _LEGACY_OPSETS[0] <= opset_version <= _LEGACY_OPSETS[1]:
        raise ValueError(
            f"export: opset_version must be {_LEGACY_OPSETS[0]} to {_LEGACY_OPSETS[1]} with the legacy exporter, got "
            f"{opset_version}"
        )
    symbolics.register_symbolics(mmcv_nodes=mmcv_nodes, operators=operators)
    dynamic_axes = {
        name: {
            axis: dim if isinstance(dim, str) else getattr(dim, "__name__", f"{name}_{axis}")
            for axis, dim in spec.items()
        }
        for name, (_, spec) in zip(input_names, axes, strict=True)
    }
    try:
        with _quiet() as traced, torch.no_grad():
            torch.onnx.export(
                module,
                _positional(args),
                path,
                dynamo=False,
                dynamic_axes=dynamic_axes,
                opset_version=opset_version,
                input_names=input_names,
                output_names=output_names,
            )
    finally:
        symbolics.unregister_symbolics(mmcv_nodes)
    return traced


@contextlib.contextmanager
def _quiet() -> Iterator[list[str]]:
    """Keep back what torch's exporters tell and users can do nothing about; list what its tracer warned of."""
    traced: list[str] = []
    log = logging.getLogger("torch.onnx._internal.exporter._registration")
    log.addFilter(_is_news)
    log_graph = torch._C._jit_onnx_log  # when it fails, the older exporter prints all of the graph
    torch._C._jit_onnx_log = lambda *_: None
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield traced
    finally:
        log.removeFilter(_is_news)
        torch._C._jit_onnx_log = log_graph
    for one in caught:
        if one.category.__name__ == "TracerWarning":  # a name that torch has, but not in its stubs
            text = str(one.message).split(". ")[0]
            traced.append(f"{text} ({one.filename}:{one.lineno})")
        elif not str(one.message).startswith(_KNOWN_WARNINGS):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno, source=one.source)


def _is_news(record: logging.LogRecord) -> bool:
    return not record.getMessage().startswith(_KNOWN_LOG)


def _check_file(path: Path, opset_version: int | None, exporter: str, operators: Sequence[schemas.Operator]) -> None:
    """Let onnx check the file, mmort's nodes too, and refuse another opset than the one asked for."""
    check(path, (*schemas.operators(), *operators))
    imports = onnx.load(path, load_external_data=False).opset_import
    (got,) = (one.version for one in imports if one.domain in ("", "ai.onnx"))
    if opset_version not in (None, got):
        advice = "; exporter='legacy' has 11 to 20" if exporter == "dynamo" else ""
        raise ValueError(
            f"export: opset_version must be one that the {exporter} exporter can make, got {opset_version}, which it "
            f"turned into {got}{advice}"
        )


def _simplify(path: Path) -> None:
    try:
        import onnxslim
    except ModuleNotFoundError:
        raise ImportError("export: simplify needs onnxslim: pip install onnxslim") from None
    onnxslim.slim(os.fspath(path), os.fspath(path))


def _make_portable(path: Path) -> None:
    for row in make_portable(path):
        if row.missing is not None:
            raise ValueError(f"export: portable must be False, as {row.operator} has no definition: {row.missing}")


def _verify(
    path: Path,
    module: torch.nn.Module,
    inputs: Sequence[tuple[Any, ...]],
    libraries: Sequence[str | os.PathLike[str]],
    rtol: float,
    atol: float,
    own_library: bool = True,
) -> Report:
    try:
        session = open_session(path, libraries, own_library)
    except ValueError as error:
        return Report((refusal("-", str(error).removeprefix("verify: ")),))
    rows: list[Row | DetectionRow] = []
    for values in inputs:
        try:
            with torch.no_grad():
                expected = module(*values)
        except Exception as error:
            raise ValueError(
                f"export: check_sizes must be sizes that the model takes, it fails with {shapes_text(values)}: {error}"
            ) from error
        rows += compare(session, values, expected, rtol=rtol, atol=atol)
    return Report(tuple(rows))


def _frozen_axes(path: Path, axes: Sequence[tuple[torch.Tensor, dict[int, Any]]]) -> list[str]:
    """Name the inputs' axes that were to be dynamic and are not."""
    inputs = onnx.load(path, load_external_data=False).graph.input
    causes = []
    for formal, (_, spec) in zip(inputs, axes, strict=False):
        dims = formal.type.tensor_type.shape.dim
        causes += [
            f"axis {axis} of {formal.name} was to be dynamic and is frozen at {dims[axis].dim_value}"
            for axis in spec
            if dims[axis].HasField("dim_value")
        ]
    return causes


def _violated_guards(
    module: torch.nn.Module, args: tuple[Any, ...], specs: Any, inputs: Sequence[tuple[Any, ...]], report: Report
) -> list[str]:
    failed = {row.inputs for row in report.rows if not row.ok}
    good: list[tuple[Any, ...]] = []
    bad: list[tuple[Any, ...]] = []
    for values in inputs:
        (bad if shapes_text(values) in failed else good).append(values)
    with _quiet(), torch.no_grad():
        return guards.violated(module, args, specs, good, bad)


def _explanation(path: Path, causes: Sequence[str], report: Report) -> str:
    lines = [f"export: {path} was not written, as ONNX Runtime does not compute with it what the model does"]
    lines += [f"cause: {cause}" for cause in dict.fromkeys(causes)]
    return "\n".join([*lines, str(report)])
