"""ONNX Runtime sessions for comparisons: open them with libraries of operators, feed them nested arrays and tensors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

import mmort.ort
from mmort.onnx.verify.values import as_array, leaves
from mmort.ort.sessions import require_bounded_model, require_model_name, silent_options

if TYPE_CHECKING:
    import onnx
    import onnxruntime


def open_session(
    source: str | os.PathLike[str] | onnx.ModelProto,
    libraries: Sequence[str | os.PathLike[str]] = (),
    own_library: bool = True,
) -> onnxruntime.InferenceSession:
    """Open a file, or a model in memory, with mmort's operators and those of other libraries.

    A model in which functions of its own have the names of mmort's operators is opened without mmort's library, which
    would take their place.

    Raises
    ------
    ValueError
        If ONNX Runtime does not load the file or a library, or the file has both functions of its own with names of
        mmort's operators and other operators of mmort.
    OSError
        If the file cannot be read.
    ImportError
        If onnxruntime is not installed.
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("mmort.onnx.verify needs ONNX Runtime: pip install onnxruntime") from None
    if isinstance(source, (str, os.PathLike)):
        require_model_name(source)
        name = os.fspath(source)
    else:
        name = "the model"
    options = silent_options()
    # An arena would keep the memory of the largest run until the end.
    options.enable_cpu_mem_arena = False
    # Threads that wait by spinning take time from torch, which runs in turn with the file.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = False
    with refusals(f"verify: ONNX Runtime cannot load {name}"):
        for library in libraries:
            if os.path.exists(library) and not os.path.isfile(library):
                raise ValueError(f"library must be a regular file, got {os.fspath(library)}")
            options.register_custom_ops_library(os.fspath(library))
        content = os.fspath(source) if isinstance(source, (str, os.PathLike)) else source.SerializeToString()
        if own_library and not _has_functions_of_our_names(source, name):
            return mmort.ort.session(content, sess_options=options)
        require_bounded_model(content)
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _has_functions_of_our_names(source: str | os.PathLike[str] | onnx.ModelProto, name: str) -> bool:
    """Return whether nodes named as mmort's operators call functions of the model; raise ValueError if only some do."""
    try:
        from mmort.onnx.graph import files, inspection

        model = files.load(source) if isinstance(source, (str, os.PathLike)) else source
    except (ModuleNotFoundError, OSError, ValueError):  # without onnx; or ONNX Runtime will tell what is wrong
        return False
    functions = inspection.own_functions(model)
    called = {
        (node.domain, node.op_type) for node in inspection.every_node(model) if inspection.operator_of(node) is not None
    }
    if called & functions and called - functions:
        function, operator = ("::".join(sorted(names)[0]) for names in (called & functions, called - functions))
        raise ValueError(
            f"verify: {name} has its own function {function}, which mmort's library would replace, and "
            f"{operator} of the library: rename the function"
        )
    return bool(called & functions)


def feeds(session: onnxruntime.InferenceSession, values: Sequence[Any]) -> dict[str, NDArray[Any]]:
    """Name the arrays and tensors in `values` as a session's inputs; those that may be left out come last.

    Raises
    ------
    ValueError
        If the number of arrays is not that of the session's inputs.
    """
    arrays = [as_array(value) for value in leaves(values)]
    required, optional = (
        [tensor.name for tensor in tensors] for tensors in (required_inputs(session), optional_inputs(session))
    )
    if not len(required) <= len(arrays) <= len(required) + len(optional):
        raise ValueError(f"verify: inputs must have length {len(required)} ({', '.join(required)}), got {len(arrays)}")
    return dict(zip((required + optional)[: len(arrays)], arrays, strict=True))


def required_inputs(session: onnxruntime.InferenceSession) -> list[onnxruntime.NodeArg]:
    """Return the inputs that a session cannot run without."""
    return [tensor for tensor in session.get_inputs() if not tensor.type.startswith("optional(")]


def optional_inputs(session: onnxruntime.InferenceSession) -> list[onnxruntime.NodeArg]:
    """Return the inputs that may be left out: those of an optional type, and those with a default value."""
    inputs = [tensor for tensor in session.get_inputs() if tensor.type.startswith("optional(")]
    return inputs + session.get_overridable_initializers()


@contextlib.contextmanager
def refusals(text: str) -> Iterator[None]:
    """Turn ONNX Runtime's exceptions, which have no common base class, into ValueError; their texts become one line."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise ValueError(f"{text}: {one_line(error)}") from None


def one_line(error: Exception) -> str:
    """Write an exception's text on one line."""
    return " ".join(str(error).split())
