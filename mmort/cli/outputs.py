"""Files that a command writes: its arguments, and checks of the paths before work that may take hours."""

from __future__ import annotations

import argparse
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from mmort._files.outputs import require_new, require_onnx_output, require_output
from mmort.cli.terminal import UsageError


def add_output(
    container: argparse._ActionsContainer, *aliases: str, force: bool = False, help: str, **settings: Any
) -> None:
    """Add ``--output``, the file or folder that a command writes, and its former names.

    With `force`, there is ``--force`` too, for `check_new_outputs`.
    """
    container.add_argument("-o", "--output", *aliases, help=help, **settings)
    if force:
        add_force(container)


def add_force(container: argparse._ActionsContainer) -> None:
    """Add ``--force``, for `check_new_outputs`."""
    container.add_argument("--force", action="store_true", help="replace files that exist")


def check_new_outputs(*files: str | None, force: bool) -> None:
    """Refuse files that cannot be written, and existing ones unless they may be replaced; None was not asked for."""
    for file in _wanted(files):
        require_output(file)
    for file in _wanted(files):
        if not force:
            require_new(file)


def check_new_models(*files: str | None, force: bool) -> None:
    """Do what `check_new_outputs` does for ONNX files, but first refuse names of other formats."""
    for file in _wanted(files):
        require_onnx_output(file)
    check_new_outputs(*files, force=force)


def check_new_folder(option: str, folder: str | None, suffixes: Collection[str], advice: str = "") -> None:
    """Refuse the name of a file of another kind for a folder that does not exist yet."""
    if folder is not None and Path(folder).suffix.lower() in suffixes and not os.path.isdir(folder):
        raise UsageError(f"{option} must be a folder, got {folder}{advice and f'; {advice}'}")


def print_written(path: object, note: str = "") -> None:
    """Print that a file, or a directory of files, was written; `note` is what is in it."""
    print(f"wrote {path}{note and f' ({note})'}", flush=True)


def _wanted(files: Iterable[str | None]) -> list[str]:
    """Return the files that were asked for."""
    return [file for file in files if file is not None]
