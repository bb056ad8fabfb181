"""MMPreTrain 1.2, for the ConvNeXt and the TIMMBackbone that configs of MMDetection name: its backbones alone.

The whole package does not import: its language models do not know today's transformers.  timm is imported without
torchvision, whose wheels fit one build of torch each; networks need nothing of it.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock


def _without_its_init(name: str, folder: Path) -> None:
    """Let modules of a package be imported without what its ``__init__.py`` imports."""
    package = sys.modules[name] = ModuleType(name)
    package.__path__ = [str(folder)]


if find_spec("torchvision") is None:
    _names = (
        *("torchvision", "torchvision.datasets", "torchvision.models", "torchvision.models.feature_extraction"),
        *("torchvision.ops", "torchvision.ops.misc", "torchvision.transforms", "torchvision.transforms.functional"),
    )
    sys.modules.update(dict.fromkeys(_names, MagicMock()))
    importlib.import_module("timm")
    for _name in _names:  # others look for torchvision, too
        del sys.modules[_name]
_spec = find_spec("mmpretrain")
assert _spec is not None
assert _spec.origin is not None
_folder = Path(_spec.origin).parent
_without_its_init("mmpretrain", _folder)
_without_its_init("mmpretrain.models", _folder / "models")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what MMPreTrain imports warns of its own future
    from mmpretrain.models.backbones import ConvNeXt, TIMMBackbone, timm_backbone

timm_backbone.print_timm_feature_info = lambda info: None  # hundreds of lines, where entries are changed

__all__ = ["ConvNeXt", "TIMMBackbone"]
