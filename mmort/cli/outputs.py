"""The files that a command writes at its end, checked before work that may take hours."""

from __future__ import annotations

import os
from pathlib import Path


def check_outputs(*files: str | None) -> None:
    """Refuse files that cannot be written, because of their directory or as their name is a directory's or empty."""
    for file in files:
        if file is None:
            continue
        if not file:
            raise ValueError("output file must have a name, got ''")
        if not Path(file).parent.is_dir():
            raise FileNotFoundError(f"output directory does not exist: {Path(file).parent}")
        if not os.access(Path(file).parent, os.W_OK | os.X_OK):
            raise PermissionError(f"output directory is not writable: {Path(file).parent}")
        if Path(file).is_dir():
            raise IsADirectoryError(f"output file is a directory: {file}")
