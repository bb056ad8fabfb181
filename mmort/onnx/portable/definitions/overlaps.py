"""Overlaps of upright boxes, in the kernels' order of operations: for the definitions of suppression."""

from __future__ import annotations

from collections.abc import Sequence

from mmort.onnx.graph.builder import Builder, Value


def shared_area(op: Builder, first: Sequence[Value], second: Sequence[Value], offset: Value | None = None) -> Value:
    """Return the areas that boxes share, given their x1, y1, x2 and y2; `offset` is added to widths and heights."""
    sides = []
    for low, high in ((0, 2), (1, 3)):
        side = op.Min(first[high], second[high]) - op.Max(first[low], second[low])
        sides.append(op.Max(side if offset is None else side + offset, 0.0))
    return sides[0] * sides[1]
