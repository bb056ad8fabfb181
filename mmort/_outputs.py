"""Checks of files that are to be written, made before the work whose results they will hold."""

from __future__ import annotations

import os
from pathlib import Path


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
