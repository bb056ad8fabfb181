"""The unsupported parts of a config, all at once, where building a detector stops at the first problem.

A detector is built without memory for its weights, so that this takes less than a second for any size.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn

from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import Config
from mmort.contract import Preprocessing
from mmort.detect.claims import branch_of, family_of
from mmort.detect.entries import PARTS, Parts, Schema
from mmort.detect.loading import build

_Entries = TypeVar("_Entries", bound=Schema)
_SHARED_ENTRIES = ("backbone", "neck")
"""Entries of a model that can be built even if its family is not known."""


def unsupported(config: Config) -> list[str]:
    """List what of a config is not supported.

    Parameters
    ----------
    config : dict
        As `mmort.configs.read_config` returns it.

    Returns
    -------
    list of str
        A sentence for each part or entry, with the entry's name; empty if the detector can be exported.

    Examples
    --------
    >>> from mmort.detect import unsupported
    >>> backbone = {"type": "ResNet", "depth": 50, "colour": "red"}
    >>> for line in unsupported({"model": {"type": "SOLO", "backbone": backbone, "neck": {"type": "SSH"}}}):
    ...     print(line)
    model.type 'SOLO' without a head, such as bbox_head or roi_head, is not supported
    backbone 'ResNet' with colour is not supported
    neck 'SSH' is not supported
    preprocessing: the config has no test pipeline
    """
    collector = _Collector(PARTS)
    layout = DetectorConfig(config)
    if layout.package is not None:  # parts of other packages need not be listed
        collector.attempt(family_of, layout)
        return collector.problems
    with torch.device("meta"):
        collector.attempt(build, config, collector)
        model = collector.attempt(_described, layout)
        if collector.problems and isinstance(model, dict):
            for entry in _SHARED_ENTRIES:
                if model.get(entry) is not None and entry not in collector.kinds:
                    collector.build(entry, model[entry])
    if layout.has_model:
        collector.attempt(Preprocessing.from_config, config)
    return collector.problems


def _described(layout: DetectorConfig) -> Config:
    """Return the detector's config; the whole model, if that is around a detector in a way that is not known."""
    return layout.model if layout.around is None or branch_of(layout) is not None else layout.outer_model


class _Collector(Parts):
    """Parts that are replaced by a `_Substitute` if they cannot be built; `problems` has the reasons.

    `kinds` has the kinds of the parts that were to be built.
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.types)
        self.problems: list[str] = []
        self.kinds: set[str] = set()

    def build(
        self,
        kind: str,
        config: Any,
        types: Mapping[str, type[Any]] | None = None,
        *,
        test_cfg: Config | None = None,
    ) -> Any:
        """Build a part, or a substitute."""
        self.kinds.add(kind)
        return self.attempt(partial(super().build, test_cfg=test_cfg), kind, config, types)

    def construct(self, kind: str, part_class: type[Any], config: Config, *, test_cfg: Config | None = None) -> Any:
        """Build a part, or a substitute."""
        return self.attempt(partial(super().construct, test_cfg=test_cfg), kind, part_class, config)

    def read(self, name: str, schema: type[_Entries], config: Any) -> _Entries:
        """Read a dict by its schema; if there are entries that it does not name, without them."""
        try:
            return super().read(name, schema, config)
        except ValueError as error:
            if not isinstance(config, dict):
                raise
            self.add(error)
            known = {entry.name for entry in dataclasses.fields(schema)}
            spelled = schema.respelled(name, config)
            return super().read(name, schema, {key: value for key, value in spelled.items() if key in {*known, "type"}})

    def attempt(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function; return a substitute if it fails."""
        try:
            return function(*arguments)
        except ValueError as error:
            if not isinstance(error.__cause__, _SubstituteError):  # what lacks a part is no further problem
                self.add(error)
        except Exception:
            if not self.problems:  # otherwise it comes from a substitute
                raise
        return _Substitute()

    def add(self, error: ValueError) -> None:
        """Add an error's first clause: what follows lists what is supported."""
        problem = str(error).removeprefix("detect.build: ").partition("; supported")[0]
        if problem not in self.problems:
            self.problems.append(problem)


class _SubstituteError(AttributeError):
    """Something was asked of a part that could not be built."""


class _Substitute(nn.Module):
    """Stands for a part that could not be built."""

    def __getattr__(self, name: str) -> Any:
        raise _SubstituteError(name)
