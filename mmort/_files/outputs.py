"""Files that are to be written: checked before the work whose results they hold, written whole or not at all.

Names that come from data, such as those of images, go through `inside`; names that a user has typed do not.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from mmort._files.drafts import draft_file, replace_by, write_draft

_OPEN_FILES = "/dev/stdout", "/dev/stderr", "/dev/fd/", "/proc/"
"""Where the files are that a process has open already."""


def require_name(file: str | os.PathLike[str]) -> None:
    """Refuse an empty name, which would mean the current directory."""
    if not os.fspath(file):
        raise ValueError("output file must have a name, got ''")


def require_directory(file: str | os.PathLike[str]) -> None:
    """Refuse a file whose directory does not exist, or cannot be written to."""
    directory = Path(file).parent
    if not directory.is_dir():
        raise FileNotFoundError(f"output directory does not exist: {directory}")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise PermissionError(f"output directory is not writable: {directory}")


def require_output(file: str | os.PathLike[str]) -> None:
    """Refuse a file that cannot be written, because of its directory or as its name is a directory's or empty."""
    require_name(file)
    require_directory(file)
    if Path(file).is_dir():
        raise IsADirectoryError(f"output file is a directory: {file}")


def require_new(file: str | os.PathLike[str]) -> None:
    """Refuse a file that exists, unless it is a pipe or a device."""
    if os.path.isfile(file):
        raise FileExistsError(f"output file exists: {file}; force=True replaces it")


def require_onnx_output(file: str | os.PathLike[str]) -> None:
    """Refuse a file for a model that cannot be written, or whose name is that of another format, such as ``d.pth``."""
    require_output(file)
    if Path(file).suffix.lower() != ".onnx":
        raise ValueError(f"output file must end with .onnx, got {file}")


def require_folder(directory: str | os.PathLike[str]) -> None:
    """Refuse a directory for outputs that can be neither written to nor created, or that has no name."""
    if not os.fspath(directory):
        raise ValueError("output directory must have a name, got ''")
    existing = next(path for path in (Path(directory), *Path(directory).parents, Path()) if os.path.exists(path))
    if not os.path.isdir(existing):
        raise NotADirectoryError(f"output directory must not be a file, got {existing}")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise PermissionError(f"output directory is not writable: {existing}")


def inside(directory: str | os.PathLike[str], name: str | os.PathLike[str]) -> Path:
    """Return the path of an output file below a directory.

    Parameters
    ----------
    directory : path
        Chosen by the user; it may be a link, and need not exist.
    name : path
        Relative to it.

    Raises
    ------
    ValueError
        If the name leads out of the directory, or a part of it is a link, which could.

    Examples
    --------
    >>> from mmort._files.outputs import inside
    >>> inside("results", "val/a.png").as_posix()
    'results/val/a.png'
    >>> inside("results", "../a.png")
    Traceback (most recent call last):
      ...
    ValueError: output file must be inside results, got ../a.png
    """
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in os.fspath(name):
        raise ValueError(f"output file must be inside {directory}, got {name}")
    path = Path(directory)
    for part in relative.parts:
        path /= part
        if path.is_symlink():
            raise ValueError(f"output file must be inside {directory}, but {path} is a link; remove it")
    return path


@contextlib.contextmanager
def naming(file: str | os.PathLike[str]) -> Iterator[None]:
    """Give an error of the system that names no file, as that of a full disk, the name of the one that is written."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(file)
        raise


def write_output(file: str | os.PathLike[str], content: bytes | str) -> None:
    """Write a file so that it has its former content, or all of the new one, whenever the process or machine stops.

    Text becomes UTF-8; lone surrogates become escapes.  A pipe or a device, such as ``/dev/stdout``, is written
    directly.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    with naming(file):
        _write(file, data)


def _write(file: str | os.PathLike[str], data: bytes) -> None:
    """Write a pipe or a device directly, and another file by a draft that replaces it."""
    path = os.path.realpath(file)  # a link stays, and what it leads to is replaced
    is_open = os.path.abspath(file).startswith(_OPEN_FILES)  # a shell may have redirected it to a regular file
    if is_open or (os.path.exists(file) and not os.path.isfile(file)):
        # A pipe without a reader is an error.
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | getattr(os, "O_NONBLOCK", 0))
        os.set_blocking(descriptor, True)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
        return
    require_directory(path)  # the system's error would name the draft
    with draft_file(os.path.dirname(path)) as draft:
        write_draft(draft, data)
        mode = os.stat(path).st_mode & 0o7777 if os.path.exists(path) else None
        replace_by(draft, path, mode)


def make_folder(directory: str | os.PathLike[str], *, parents: bool = True) -> None:
    """Make a directory for outputs, and those above it, unless it exists."""
    Path(directory).mkdir(parents=parents, exist_ok=True)
