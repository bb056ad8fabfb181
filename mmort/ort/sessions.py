"""Sessions of ONNX Runtime that know the operators."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from mmort.ort.function_expansion import require_bounded_functions
from mmort.ort.library import library_path

if TYPE_CHECKING:
    import onnxruntime


def register(session_options: onnxruntime.SessionOptions) -> None:
    """Register the operators for sessions that are created with these options.

    Parameters
    ----------
    session_options : onnxruntime.SessionOptions
        ONNX Runtime accepts each domain once: call this once, and do not also register the library of MMCV or MMDeploy.

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.

    Examples
    --------
    >>> import onnxruntime
    >>> import mmort.ort
    >>> options = onnxruntime.SessionOptions()
    >>> mmort.ort.register(options)
    """
    session_options.register_custom_ops_library(library_path())


def silent_options() -> onnxruntime.SessionOptions:
    """Return options of a session that logs nothing: errors are raised anyway, and warnings concern no result."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return options


def require_model_name(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a pipe or a device, which could block forever, and for a name that ONNX Runtime refuses."""
    try:
        os.fspath(path).encode()
    except UnicodeEncodeError:
        raise ValueError(f"the name of an ONNX file must be UTF-8, got {os.fspath(path)!r}") from None
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is not an ONNX model: it is a pipe or a device")


def require_bounded_model(model: str | bytes) -> None:
    """Raise ValueError, which names the file, if `require_bounded_functions` does."""
    try:
        require_bounded_functions(model)
    except ValueError as error:
        raise ValueError(f"{'the model' if isinstance(model, bytes) else model}: {error}") from None


def session(model: str | os.PathLike[str] | bytes, **kwargs: Any) -> onnxruntime.InferenceSession:
    """Create a session that knows the operators.

    Parameters
    ----------
    model : path or bytes
        The ONNX model, or the path of its file.
    **kwargs
        Arguments of ``onnxruntime.InferenceSession``.  The operators are registered in ``sess_options``, which
        by default logs errors only; ``providers`` defaults to the CPU.

    Returns
    -------
    onnxruntime.InferenceSession

    Raises
    ------
    OSError
        If the file cannot be read, or mmort was built without the library.
    ImportError
        If onnxruntime is not installed.
    ValueError
        If the domains of these operators are already registered in ``sess_options``, or the path is a pipe's or not
        UTF-8, or the model's functions call themselves or become too many nodes, or it is not written as protobuf does.
    Exception
        Any exception of onnxruntime, if the model cannot be loaded.

    Examples
    --------
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.ort
    >>> node = oh.make_node("MMCVCornerPool", ["x"], ["y"], domain="mmcv", mode=3)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 1, 1, 3]) for name in "xy")
    >>> model = oh.make_model(oh.make_graph([node], "example", [x], [y]), opset_imports=[oh.make_opsetid("mmcv", 1)],
    ...                       ir_version=8)
    >>> session = mmort.ort.session(model.SerializeToString())
    >>> session.run(None, {"x": np.array([[[[1, 0, 2]]]], np.float32)})
    [array([[[[1., 1., 2.]]]], dtype=float32)]
    """
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ImportError("mmort.ort.session needs ONNX Runtime: pip install onnxruntime") from None
    options = kwargs.pop("sess_options", None)
    if options is None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # old files list each weight as an input, which gives a warning for each
    register(options)
    kwargs.setdefault("providers", ["CPUExecutionProvider"])
    source = model if isinstance(model, bytes) else os.fspath(model)
    if not isinstance(source, bytes):
        require_model_name(source)
        open(source, "rb").close()  # Python's error names the file in one line
    require_bounded_model(source)
    try:
        return onnxruntime.InferenceSession(source, options, **kwargs)
    except Exception as error:
        if "Domain already set in registry" not in str(error):
            raise
        raise ValueError(
            "mmort.ort.session: sess_options must not have a library for the domains mmcv, mmdeploy or mmort (that of "
            "MMCV, MMDeploy or mmort itself, which this function registers), got ONNX Runtime's error: "
            f"{error}"
        ) from error
