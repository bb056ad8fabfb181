"""The library of operators for ONNX Runtime: its path, and its description of its operators."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

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
    path = Path(__file__).resolve().parents[1] / _NAME
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
