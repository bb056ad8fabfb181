"""Importing OpenMMLab's packages on today's torch: they are executed from here on, because the user said so."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

import torch

from mmort.configs.packages import Package


@cache
def import_package(package: Package) -> ModuleType:
    """Import a package with all that it registers, and return its ``registry``.

    Raises
    ------
    ImportError
        If it is not installed, or lacks a package; the message has the command that installs both.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs, of numpy's and torch's next versions
        try:
            importlib.import_module("mmengine")
            importlib.import_module("mmort.mmcv")
            _import_torchvision()
            _import_coco_masks()
            with _importable(package):
                for part in ("models", "datasets"):
                    importlib.import_module(f"{package.module}.{part}")
                return importlib.import_module(f"{package.module}.registry")
        except ImportError as error:
            raise ImportError(
                f"mmort export --original runs {package.name}'s own code, and it cannot be imported: {error}; these "
                f"versions fit each other: {package.command}"
            ) from error
        except AssertionError as error:  # of a version of MMCV or MMEngine that the package does not take
            raise ImportError(
                f"{package.name} does not take an installed version: {error}; these fit each other: {package.command}"
            ) from error


_UNUSED = "imgaug", "imgaug.augmenters", "lmdb", "skimage", "skimage.morphology"
"""Modules that MMOCR imports for training, other formats of data, and postprocessors that are not supported.

imgaug cannot be imported with numpy 2.
"""


class _Unused(ModuleType):
    """Stands for a module, and for all that is in it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # as packages have it

    def __getattr__(self, name: str) -> _Unused:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Unused(f"{self.__name__}.{name}")


@contextmanager
def _importable(package: Package) -> Iterator[None]:
    """Let MMOCR be imported in the block: beside the MMDetection that fits MMCV 2.1, and without what it does not need.

    MMOCR 1.0.1 takes MMDetection below 3.2, which takes MMCV below 2.1 only.
    """
    if package.module != "mmocr":
        yield
        return
    mmdet: Any = importlib.import_module("mmdet")
    version, unused = mmdet.__version__, [name for name in _UNUSED if name not in sys.modules]
    mmdet.__version__ = "3.1.0"
    sys.modules.update({name: _Unused(name) for name in unused})
    try:
        yield
    finally:
        mmdet.__version__ = version
        for name in unused:
            del sys.modules[name]


_LIBRARIES: list[Any] = []
"""torch forgets operators with the object that defined them."""


def _import_torchvision() -> None:
    """Import torchvision, whose compiled half need not load: only its transforms of images are used.

    ``torchvision/_meta_registrations.py`` describes operators that its compiled half defines, and fails without it.
    """
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError:
        return  # the package that needs it says so
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        library: Any = torch.library.Library("torchvision", "DEF")  # type: ignore[no-untyped-call]
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _LIBRARIES.append(library)
        importlib.import_module("torchvision")


def _import_coco_masks() -> None:
    """Let xtcocotools have the masks of pycocotools, of which it is a copy, where its own are compiled for numpy 1."""
    try:
        importlib.import_module("xtcocotools._mask")
    except ModuleNotFoundError:
        return  # only MMPose needs it, and says so
    except ValueError:  # numpy.dtype size changed, may indicate binary incompatibility
        sys.modules["xtcocotools._mask"] = importlib.import_module("pycocotools._mask")
