"""Importing OpenMMLab's packages on today's torch: they are executed from here on, because the user said so."""

from __future__ import annotations

import importlib
import sys
import warnings
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
