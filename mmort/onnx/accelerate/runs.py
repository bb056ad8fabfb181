"""What the nodes of a model did when it was run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import onnx_ir as ir

from mmort.onnx.graph.patterns import name_of


class Run(NamedTuple):
    """What a node did when the model was run."""

    seconds: float
    types: tuple[str, ...]
    """ONNX Runtime's names of the inputs' element types; inputs that were left out are missing."""
    shapes: tuple[tuple[int, ...], ...]


Runs = Mapping[str, Run]
"""What nodes did, by their names."""


def run_of(node: ir.Node, runs: Runs) -> Run:
    """Return what a node did."""
    return runs[name_of(node)]
