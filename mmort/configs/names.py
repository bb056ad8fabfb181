"""Names of types, which MMDetection 3 may put a scope before."""

from __future__ import annotations

from typing import Any


def plain_type(name: Any) -> str:
    """Return a type's name without the scope that MMDetection 3 may put before it (``mmdet.FCOSHead``)."""
    return str(name).rpartition(".")[2]
