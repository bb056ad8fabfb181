"""Detectors and parts of one's own: a Python file that registers them is run because the user names it."""

from __future__ import annotations

import importlib.util
import os
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path

from mmort.detect import loading as _loading  # noqa: F401 - registers the names that a file must not take


def run_extension(path: str | os.PathLike[str]) -> None:
    """Run a Python file that registers detectors or parts; it must be trusted, as any program.

    Parameters
    ----------
    path : path
        Of the ``.py`` file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no Python file, or its code raises an error, such as that of a name that is taken.

    Notes
    -----
    In Python, importing a module that registers them does the same.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from mmort.detect.extension import run_extension
    >>> file = pathlib.Path(tempfile.mkdtemp(), "my_parts.py")
    >>> _ = file.write_text('print("registers my parts")')
    >>> run_extension(file)
    registers my parts
    """
    file = Path(path)
    if file.is_dir():
        raise IsADirectoryError(f"file of own detectors must be a file, got a folder: {file}")
    if not file.is_file():
        raise FileNotFoundError(f"file of own detectors does not exist: {file}")
    if file.suffix != ".py":
        raise ValueError(f"file of own detectors must be Python (.py), got {file}")
    name = f"{__name__}:{file}"  # not the file's, which an installed module may have
    loader = SourceFileLoader(name, str(file))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their module up
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        text = error.msg if isinstance(error, SyntaxError) else error
        raise ValueError(f"{_place(error, file)}: {type(error).__name__}: {text}") from error


def _place(error: BaseException, file: Path) -> str:
    """Return the file, with its last line on the way to an error, if it was compiled."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
    if isinstance(error, SyntaxError):
        lines.append(error.lineno)
    return f"{file}, line {lines[-1]}" if lines and lines[-1] is not None else str(file)
