"""The ONNX Runtime library: its path, its description of its operators, and sessions that know them.

The library needs no Python.  In other languages, pass the path that `library_path` returns to ONNX Runtime's function
for custom-operator libraries (``RegisterCustomOpsLibrary_V2`` in C).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmort._binding import Binding

if TYPE_CHECKING:
    import onnxruntime

__all__ = ["Binding", "describe", "library_path", "operators", "register", "session"]

_NAME = "libmmort_ort" + {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def library_path() -> str:
    """Return the path of the custom-operator library.

    Returns
    -------
    str
        An absolute path; the file exists.

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library; the message names the command that builds it.

    Examples
    --------
    >>> import mmort.ort
    >>> mmort.ort.library_path()
    '...libmmort_ort.so'
    """
    path = Path(__file__).resolve().parent / _NAME
    if not path.exists():
        raise FileNotFoundError(
            f"mmort was built without its ONNX Runtime library ({_NAME}); build it with: "
            "WITH_ORT=1 pip install --force-reinstall --no-deps . (in mmort's source folder), or "
            "WITH_ORT=1 pip install --force-reinstall --no-deps --no-binary mmort mmort"
        )
    return str(path)


def describe(library: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return a library's description of itself.

    Parameters
    ----------
    library : path, optional
        A library built with `mmort.build`.  Default: mmort's own.

    Returns
    -------
    dict
        ``version`` (of the package that the library belongs to), ``abi`` (the version of this description), ``simd``
        (the instruction set that the kernels use on this machine) and ``operators`` (as `operators` returns them).

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.
    OSError
        If `library` cannot be loaded.
    ValueError
        If `library` was not built with `mmort.build`.

    Examples
    --------
    >>> import mmort, mmort.ort
    >>> mmort.ort.describe()["version"] == mmort.__version__
    True
    """
    path = library_path() if library is None else os.fspath(library)
    try:
        function = ctypes.CDLL(path).mmort_describe
    except AttributeError:
        raise ValueError(f"mmort.ort.describe: library must be built with mmort.build, got {path}") from None
    function.restype, function.argtypes = ctypes.c_size_t, [ctypes.c_char_p, ctypes.c_size_t]
    text = ctypes.create_string_buffer(function(None, 0) + 1)
    function(text, len(text))
    description: dict[str, Any] = json.loads(text.value)
    description.pop("numpy_only", None)  # a library that an older mmort built has none
    for operator in description["operators"]:
        for attribute in operator["attributes"]:
            for key in ("argument", "words", "flag"):  # they describe the Python functions, as `mmort.schemas` does
                attribute.pop(key, None)
    return description


def operators(library: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """List the operators in a library.

    Parameters
    ----------
    library : path, optional
        As for `describe`.

    Returns
    -------
    list of dict
        One for each domain and operator type, with the keys ``domain``, ``type``, ``kernel`` (the name of the numpy
        function), ``inputs`` and ``outputs`` (lists of dicts with ``name``, ``type``, ``shape`` and ``optional``), and
        ``attributes`` (a list of dicts with ``name``, ``type`` and ``default``, which is None if the attribute is
        required; where they apply, also ``choices`` and ``former_name``).

    Raises
    ------
    FileNotFoundError, OSError, ValueError
        For the same reasons as `describe`.

    Examples
    --------
    >>> import mmort.ort
    >>> [(row["domain"], row["kernel"]) for row in mmort.ort.operators() if row["type"] == "MMCVCornerPool"]
    [('mmcv', 'corner_pool')]
    """
    rows: list[dict[str, Any]] = describe(library)["operators"]
    return rows


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


def refuse_pipe(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for a pipe or a device, which could block forever."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise ValueError(f"{path} is not an ONNX model: it is a pipe or a device")


def session(model: str | os.PathLike[str] | bytes, **kwargs: Any) -> onnxruntime.InferenceSession:
    """Create a session that knows the operators.

    Parameters
    ----------
    model : path or bytes
        The ONNX model, or the path of its file.
    **kwargs
        Arguments of ``onnxruntime.InferenceSession``.  The operators are registered in ``sess_options``, if given;
        ``providers`` defaults to the CPU.

    Returns
    -------
    onnxruntime.InferenceSession

    Raises
    ------
    FileNotFoundError
        If mmort was built without the library.
    ImportError
        If onnxruntime is not installed.
    ValueError
        If the domains of these operators are already registered in ``sess_options``, or the path is a pipe's.
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
    options = kwargs.pop("sess_options", None) or onnxruntime.SessionOptions()
    register(options)
    kwargs.setdefault("providers", ["CPUExecutionProvider"])
    source = model if isinstance(model, bytes) else os.fspath(model)
    if not isinstance(source, bytes):
        refuse_pipe(source)
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
