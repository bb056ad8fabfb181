"""`AdoptOptions`: what a user says of a file, beside its layout."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class AdoptOptions(NamedTuple):
    """The arguments of `mmort.onnx.adopt`."""

    config: Path | None = None
    preset: str | None = None
    try_image: Path | None = None
    show: Path | None = None
    """Where what the candidates find in that image is drawn."""
    force: bool = False
