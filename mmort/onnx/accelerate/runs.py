"""Measurements of the nodes of a model in a run: times, types and shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from mmort.onnx.graph.patterns import name_of


class Run(NamedTuple):
    """The measurements of a node."""

    seconds: float
    types: tuple[str, ...]
    """ONNX Runtime's names of the inputs' element types; inputs that were left out are missing."""
    shapes: tuple[tuple[int, ...], ...]


Runs = Mapping[str, Run]
"""Measurements of nodes, by their names."""


def run_of(node: ir.Node, runs: Runs) -> Run:
    """Return the measurements of a node."""
    return runs[name_of(node)]
