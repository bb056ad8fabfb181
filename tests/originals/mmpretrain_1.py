"""MMPreTrain 1.2, for the ConvNeXt that configs of MMDetection name: its backbones alone.

The whole package does not import: its language models do not know today's transformers.
"""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType


def _without_its_init(name: str, folder: Path) -> None:
    """Let modules of a package be imported without what its ``__init__.py`` imports."""
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = [str(folder)]


_spec = find_spec("mmpretrain")
assert _spec is not None
assert _spec.origin is not None
_folder = Path(_spec.origin).parent
_without_its_init("mmpretrain", _folder)
_without_its_init("mmpretrain.models", _folder / "models")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what MMPreTrain imports warns of its own future
    from mmpretrain.models.backbones import ConvNeXt

__all__ = ["ConvNeXt"]
