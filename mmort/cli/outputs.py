"""The files that a command writes at its end, checked before work that may take hours."""

from __future__ import annotations

from mmort._outputs import require_output


def check_outputs(*files: str | None) -> None:
    """Refuse files that cannot be written; None are those that were not asked for."""
    for file in files:
        if file is not None:
            require_output(file)
