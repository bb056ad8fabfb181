"""The files that a command writes at its end, checked before work that may take hours."""

from __future__ import annotations

from pathlib import Path


def check_outputs(*files: str | None) -> None:
    """Refuse files that cannot be written: in a directory that does not exist, or the name of a directory."""
    for file in filter(None, files):
        if not Path(file).parent.is_dir():
            raise FileNotFoundError(f"output directory does not exist: {Path(file).parent}")
        if Path(file).is_dir():
            raise IsADirectoryError(f"output file is a directory: {file}")
