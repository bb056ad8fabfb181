"""The model, example and options of an export."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mmort import schemas
from mmort.onnx.export.inputs import DynamicAxes
from mmort.onnx.portable.forms import Form


@dataclass(frozen=True)
class Options:
    """The keyword arguments of `mmort.onnx.export`, which documents them."""

    dynamic_shapes: Any = None
    check_sizes: Sequence[Any] | None = None
    opset_version: int | None = None
    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    portable: bool | Form = False
    simplify: bool = False
    exporter: str = "dynamo"
    mmcv_nodes: Collection[str] = ()
    operators: Sequence[schemas.Operator] = ()
    libraries: Sequence[str | os.PathLike[str]] = ()
    rtol: float | None = None
    atol: float | None = None
    verify: bool = True


@dataclass(frozen=True)
class Example:
    """A model, the arguments to export it with, and their dynamic axes."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    specs: Sequence[Any]
    """For each argument the caller's dynamic shapes."""
    axes: Sequence[DynamicAxes]
    """For each tensor its dynamic axes."""
    names: list[str]
    """For each tensor the name of the input."""

    @property
    def positional(self) -> tuple[Any, ...]:
        """The arguments, protected from torch.onnx, which takes a dict at the end for keyword arguments."""
        return (*self.args, {}) if self.args and isinstance(self.args[-1], dict) else self.args
