"""The draft of an exported file: torch writes it, it is edited, compared, and only then moved into place.

All that changes the file comes before the verification, so that the bytes written are the bytes that were compared.
The model is read once, after torch has written it, and written once, when it is accepted.
"""

from __future__ import annotations

import dataclasses
import gc
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cached_property
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray

from mmort import schemas
from mmort.contract.metadata import BY_TOLERANCE, VERIFIED
from mmort.onnx import op_schemas
from mmort.onnx.artifact import Artifact
from mmort.onnx.export import inputs
from mmort.onnx.export.exporters import EXPORTERS, Traced, refuse_dtypes
from mmort.onnx.export.frozen import frozen_axes, violated_guards
from mmort.onnx.export.options import Example, Options
from mmort.onnx.graph import files, inspection
from mmort.onnx.portable import make_portable
from mmort.onnx.portable.forms import FORMS, Form
from mmort.onnx.verify.comparators import compare, run_in_torch
from mmort.onnx.verify.numbers import refusal
from mmort.onnx.verify.program import Program
from mmort.onnx.verify.proof import prove
from mmort.onnx.verify.report import Report, Row, VerificationError
from mmort.onnx.verify.values import leaves, shapes_text
from mmort.tolerances import Tolerances

ALONE = ", no library"
"""The suffix of the inputs in rows of a comparison without mmort's library."""


class Draft:
    """A file in the making, in steps: `trace`, changes of `artifact`, `prove`, and `accept`.

    As a context manager it holds the draft's file.  At the end of the block that gets the name of `path`, unless the
    block raises, as `accept` does if the draft differs from its model.

    Parameters
    ----------
    model, args
        As for `mmort.onnx.export`.
    path : path
        What the draft is to become.
    options : Options

    Attributes
    ----------
    artifact : Artifact
        The draft, once it is traced.
    output_names : list of str
        The names of the model's outputs in it, of which a change may have made other values of the graph.
    """

    artifact: Artifact

    def __init__(
        self,
        model: torch.nn.Module | Callable[..., Any],
        args: Sequence[Any],
        path: str | os.PathLike[str],
        options: Options,
    ) -> None:
        if options.exporter not in EXPORTERS:
            raise ValueError(f"export: exporter must be 'dynamo' or 'legacy', got {options.exporter!r}")
        if options.portable not in (False, True, *FORMS):
            forms = ", ".join(map(repr, FORMS))
            raise ValueError(f"export: portable must be False, True or one of {forms}, got {options.portable!r}")
        if isinstance(args, torch.Tensor):
            raise TypeError("export: args must be a tuple of arguments, got a tensor: write (tensor,)")
        if not callable(model):
            raise TypeError(f"export: model must be a module or a function of tensors, got {type(model).__name__}")
        if any(isinstance(value, np.ndarray) for value in leaves(args)):
            raise TypeError("export: args must have tensors, got a numpy array; torch.from_numpy makes a tensor of it")
        self.path, self.options = Path(path), options
        self._example = _example(model, tuple(args), options)
        refuse_dtypes(self._example)
        names = self._example.names
        self._checks = inputs.check_inputs(self._example.args, self._example.axes, options.check_sizes, names)
        self._traced = Traced()
        self.output_names: list[str] = []
        self._frozen: list[str] = []
        self._block = ExitStack()

    def __enter__(self) -> Draft:
        self._file = self._block.enter_context(files.replacing(self.path))
        return self

    def __exit__(self, *exception: Any) -> bool | None:
        return self._block.__exit__(*exception)

    def trace(self) -> None:
        """Let torch write the draft; check it, and simplify it and make it portable if the options ask for it."""
        self._traced = _exported(self._example, self._file, self.options)
        self.artifact = Artifact(files.load(self._file), self._file.parent, self.options.libraries)
        self.output_names = [value.name for value in self.artifact.model.graph.output]
        self._frozen = _check_and_complete(self._example, self.artifact, self._file, self.options)
        gc.collect()  # the exporters leave cycles of graphs and weights

    @cached_property
    def program(self) -> Program | None:
        """The program that the draft was made of; None if torch's exporter traced the model instead."""
        exported = self._traced.program
        return None if exported is None else Program(exported, self.output_names)

    def prove(
        self,
        checks: Sequence[tuple[Any, ...]] | None = None,
        **further: Any,
    ) -> Report:
        """Prove the draft for some arguments, by default all inputs of the options, with `further` ones of `prove`.

        Where there is no program, and where the options have tolerances, outputs are compared instead.
        """
        checks, module, options = self._checks if checks is None else checks, self._example.module, self.options
        if self.program is not None and options.rtol is None and options.atol is None:
            return prove(self.artifact, self.program, module, checks, portable=options.portable, **further)
        self.artifact.model.metadata_props.add(key=VERIFIED, value=BY_TOLERANCE)
        # Before a session is open: both would hold the memory of a run at once.
        references = [expected_outputs(module, values) for values in checks]
        return compare_draft(self.artifact, self.path, self.output_names, checks, references, options)

    def saved(self) -> Path:
        """Save the draft as it is, and return its file, so that it can be tried as files are."""
        self.artifact.save(self._file)
        return self._file

    def accept(self, report: Report | None) -> Report:
        """Raise VerificationError if the draft differs from its model; mark a draft without a comparison as unverified.

        Returns
        -------
        Report
            The comparison; an empty one if there was none.
        """
        if report is None:
            self.artifact.model.metadata_props.add(key=VERIFIED, value="false")
        comparison = Report(()) if report is None else report
        if self._frozen or not (report is None or report.ok):
            causes = [
                *self._frozen,
                *_causes(self._example, self._checks, comparison, self._traced.hints, self.options),
            ]
            raise VerificationError(_explanation(self.path, causes, comparison), comparison)
        self.artifact.save(self._file)
        return comparison


def export_model(
    model: torch.nn.Module | Callable[..., Any],
    args: Sequence[Any],
    path: str | os.PathLike[str],
    options: Options,
) -> Report:
    """Implement `mmort.onnx.export`."""
    with Draft(model, args, path, options) as draft:
        draft.trace()
        return draft.accept(draft.prove() if options.verify else None)


def _example(model: torch.nn.Module | Callable[..., Any], args: tuple[Any, ...], options: Options) -> Example:
    """Return the model and its arguments as torch's exporters take them; refuse a model in training mode."""
    function = model.forward if isinstance(model, torch.nn.Module) else model
    arguments = inputs.argument_names(function, len(args))
    module = model if isinstance(model, torch.nn.Module) else _Function(model, arguments)
    training = next((name or "model" for name, part in module.named_modules() if part.training), None)
    if training is not None:
        raise ValueError(
            f"export: model must be in evaluation mode, call model.eval(); got {training} in training mode"
        )
    specs = inputs.by_argument(options.dynamic_shapes, arguments)
    axes = [pair for value, spec in zip(args, specs, strict=True) for pair in inputs.dynamic_axes(value, spec)]
    return Example(module, args, specs, axes, _input_names(options.input_names, arguments, args))


class _Function(torch.nn.Module):
    """A function as a module, as torch.export requires; with named arguments, as torch 2.9 fails with ``*args``."""

    def __init__(self, function: Callable[..., Any], names: Sequence[str]) -> None:
        super().__init__()

        def forward(*args: Any) -> Any:
            return function(*args)

        parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
        forward.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        self.forward = forward
        self.eval()


def _input_names(names: Sequence[str] | None, arguments: Sequence[str], args: Sequence[Any]) -> list[str]:
    """Return the given names or, by default, the arguments', numbered where an argument has several tensors."""
    default: list[str] = []
    for argument, value in zip(arguments, args, strict=True):
        count = len(leaves(value))
        default += [argument] if isinstance(value, torch.Tensor) else [f"{argument}_{index}" for index in range(count)]
    if names is not None and len(names) != len(default):
        raise ValueError(f"export: input_names must have length {len(default)}, a name per tensor, got {len(names)}")
    return default if names is None else list(names)


def _exported(example: Example, draft: Path, options: Options) -> Traced:
    """Let torch write the draft; if that fails because the model fails, say so instead of quoting the exporter."""
    try:
        return EXPORTERS[options.exporter](example, draft, options)
    except Exception:
        try:
            with torch.no_grad():
                example.module(*example.args)
        except Exception as error:
            raise ValueError(
                f"export: args must suit the model, which fails with {shapes_text(example.args)}: {error}"
            ) from error
        raise


def _check_and_complete(example: Example, artifact: Artifact, draft: Path, options: Options) -> list[str]:
    """Do all that changes the draft after the exporter; return the axes that it froze."""
    op_schemas.check(draft, (*schemas.operators(), *options.operators))
    _check_inputs(artifact.model, example)
    _check_opset(artifact.model, options)
    if options.simplify:
        _simplify(artifact, draft)
    frozen = frozen_axes(artifact.model, example.axes)
    if options.portable:
        _make_portable(artifact.model, options.portable)
    return frozen


def _check_inputs(model: onnx.ModelProto, example: Example) -> None:
    """Refuse a graph without some of the inputs."""
    lost = set(example.names) - {tensor.name for tensor in model.graph.input}
    if lost:
        raise ValueError(
            f"export: args must be used by the model; the exported graph does not depend on {', '.join(sorted(lost))}. "
            "Leave out what is not used; what is converted to numpy or to Python numbers becomes a constant"
        )


def _check_opset(model: onnx.ModelProto, options: Options) -> None:
    """Refuse an opset other than the requested one."""
    opset = inspection.opset_of(model)
    if options.opset_version not in (None, opset):
        advice = "; exporter='legacy' has 11 to 20" if options.exporter == "dynamo" else ""
        raise ValueError(
            f"export: opset_version must be one that the {options.exporter} exporter supports, got "
            f"{options.opset_version}, which it turned into {opset}{advice}"
        )


def _simplify(artifact: Artifact, draft: Path) -> None:
    """Let onnxslim rewrite the draft, which contains its tensors then if they fit."""
    try:
        import onnxslim
    except ModuleNotFoundError:
        raise ImportError("export: simplify needs onnxslim: pip install onnxslim") from None
    onnxslim.slim(os.fspath(draft), os.fspath(draft))
    artifact.model = files.load(draft)


def _make_portable(model: onnx.ModelProto, portable: bool | Form) -> None:
    """Define mmort's operators in the model, each of which needs a definition."""
    for row in make_portable(model, form="functions" if isinstance(portable, bool) else portable):
        if row.missing is not None:
            raise ValueError(f"export: portable must be False, as {row.operator} has no definition: {row.missing}")


def compare_draft(
    artifact: Artifact,
    path: Path,
    names: Sequence[str],
    checks: Sequence[tuple[Any, ...]],
    references: Sequence[Sequence[NDArray[Any]]],
    options: Options,
) -> Report:
    """Compare the draft of a file with the expected outputs for some arguments.

    The `names` are those of all expected outputs, of which the file may have some as inner values only, or not at all.
    A portable one is also compared without mmort's library, which an inlined one ignores.  Messages name `path`, which
    the draft is to become.
    """
    graph = artifact.model.graph
    computed = {value.name for value in graph.output} | {name for node in graph.node for name in node.output}
    kept = [index for index, name in enumerate(names) if name in computed]
    names = [names[index] for index in kept]
    references = [
        [outputs[index] for index in kept] if len(outputs) > max(kept, default=-1) else outputs
        for outputs in references
    ]
    report = _compare(artifact, path, names, checks, references, options, own_library=options.portable != "inlined")
    if options.portable and options.portable != "inlined" and report.ok:
        alone = _compare(artifact, path, names, checks, references, options, own_library=False)
        rows = (dataclasses.replace(row, inputs=f"{row.inputs}{ALONE}") for row in alone.rows)
        report = Report((*report.rows, *rows))
    return report


def expected_outputs(module: torch.nn.Module, values: tuple[Any, ...]) -> list[NDArray[Any]]:
    """Run a module without gradients."""
    try:
        return run_in_torch(module, values)
    except Exception as error:
        raise ValueError(
            f"export: check_sizes must suit the model, which fails with {shapes_text(values)}: {error}"
        ) from error


def _compare(
    artifact: Artifact,
    path: Path,
    names: Sequence[str],
    checks: Sequence[tuple[Any, ...]],
    references: Sequence[Sequence[NDArray[Any]]],
    options: Options,
    own_library: bool = True,
) -> Report:
    """Compare the draft with the model's outputs on all inputs."""
    try:
        session = artifact.session(names, own_library=own_library)
    except ValueError as error:
        text = str(error).removeprefix("verify: ").replace("the model", str(path))
        return Report((refusal("-", text),))
    rows: list[Row] = []
    for values, expected in zip(checks, references, strict=True):
        rows += compare(session, values, expected, Tolerances.stated(options.rtol, options.atol))
    return Report(tuple(rows))


def _causes(
    example: Example, checks: Sequence[tuple[Any, ...]], report: Report, hints: Sequence[str], options: Options
) -> list[str]:
    """Name what may explain that the outputs differ: what the exporter froze, by its own account.

    A frozen size or branch is the example's, so it explains nothing if the example differs too.
    """
    differing = {row.inputs for row in report.rows if row.problem}
    passed, failed = (
        [values for values in checks if (shapes_text(values) in differing) == differs] for differs in (False, True)
    )
    if shapes_text(example.args) in differing or not failed:
        return []
    if options.exporter == "legacy":
        return list(hints)
    return violated_guards(example.module, example.args, tuple(example.specs), passed, failed)


def _explanation(path: Path, causes: Sequence[str], report: Report) -> str:
    """Return the text of a VerificationError."""
    lines = [f"export: {path} was not written, as its outputs in ONNX Runtime differ from the model's"]
    lines += [f"cause: {cause}" for cause in dict.fromkeys(causes)]
    return "\n".join([*lines, str(report)])
