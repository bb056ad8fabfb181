"""Rows that nodes write into a tensor, as torchvision and detectron2 join the regions of several levels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Runs, run_of
from mmort.onnx.graph.patterns import Replacement, array, axes_of, climb, constant, integer, name_of, text


class _Writing(NamedTuple):
    """One node that copies a tensor and writes whole rows of it."""

    data: ir.Value
    rows: ir.Value
    """The numbers of the rows; of any shape, in the order of the updates."""
    updates: ir.Value


def joined_rows(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace ScatterND and ScatterElements that fill one constant tensor in turn, which copy all of it each time.

    They write the rows' numbers instead, the later over the earlier as before, and Gather copies each row once.
    """
    last = _writing(node, runs)
    if last is None or any(_continues(user, node.outputs[0], runs) for user in node.outputs[0].consumers()):
        return None
    writings, shapes = [last], list[ir.Node]()
    while True:
        data = writings[0].data
        users = [user for user in data.consumers() if not _continues(user, data, runs)]
        if data.is_graph_output() or not all(_reads_shape(user) and user.graph is node.graph for user in users):
            return None
        shapes += users
        source = data.producer()
        writing = None if source is None else _writing(source, runs)
        if writing is None:
            break
        writings.insert(0, writing)
    blank = climb(data, "ConstantOfShape")
    if blank is None or len(writings) < 2:
        return None
    return _gathered(node, blank[0], writings, shapes)


def scattered_rows(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace ScatterElements whose indices are repeated along rows by ScatterND, which copies whole rows."""
    writing = _writing(node, runs) if node.op_type == "ScatterElements" else None
    if writing is None:
        return None
    column = array(np.array([-1, 1]))
    rows = ir.node("Reshape", [writing.rows, column.outputs[0]])
    new = ir.node("ScatterND", [writing.data, rows.outputs[0], writing.updates])
    return Replacement([column, rows, new], [(node.outputs[0], new.outputs[0])])


def _continues(user: ir.Node, data: ir.Value, runs: Runs) -> bool:
    """Return whether a node writes rows into a copy of this tensor."""
    writing = _writing(user, runs)
    return writing is not None and writing.data is data


def _reads_shape(user: ir.Node) -> bool:
    """Return whether a node gives the whole shape of its input."""
    return user.op_type == "Shape" and not user.attributes


def _writing(node: ir.Node, runs: Runs) -> _Writing | None:
    """Return the rows that a node writes, or None if it writes no whole rows, or did not run."""
    if node.op_type not in ("ScatterND", "ScatterElements") or name_of(node) not in runs:
        return None
    data, indices, updates = node.inputs
    shapes = run_of(node, runs).shapes
    if data is None or indices is None or updates is None or text(node, "reduction", "none") != "none":
        return None
    if node.op_type == "ScatterND":
        return _Writing(data, indices, updates) if len(shapes[1]) == 2 and shapes[1][1] == 1 else None
    chain = climb(indices, "Expand", "Reshape") or climb(indices, "Expand", "Unsqueeze")
    if chain is None or integer(node, "axis", 0) or shapes[0][1:] != shapes[2][1:]:
        return None
    if chain[1].op_type == "Reshape":
        target = constant(chain[1].inputs[1])
        repeated = target is not None and target.tolist() == [-1] + [1] * (len(shapes[0]) - 1)
    else:
        repeated = axes_of(chain[1]) == list(range(1, len(shapes[0])))
    rows = chain[1].inputs[0]
    return _Writing(data, rows, updates) if repeated and rows is not None else None


def _gathered(node: ir.Node, blank: ir.Node, writings: list[_Writing], shapes: list[ir.Node]) -> Replacement:
    """Return nodes that number the rows of all updates from 1, and gather them; row 0 is for those not written."""
    shape = blank.inputs[0]
    zero, one, column = array(np.array([0])), array(np.array([1])), array(np.array([-1, 1]))
    first, step, end = array(np.array(0)), array(np.array(1)), array(np.array([np.iinfo(np.int64).max]))
    count = ir.node("Slice", [shape, zero.outputs[0], one.outputs[0]])
    rest = ir.node("Slice", [shape, one.outputs[0], end.outputs[0]])
    row_shape = ir.node("Concat", [one.outputs[0], rest.outputs[0]], {"axis": 0})
    row = ir.node("ConstantOfShape", [row_shape.outputs[0]], dict(blank.attributes))
    positions = ir.node("ConstantOfShape", [count.outputs[0]], {"value": ir.tensor(np.array([0]))})
    nodes = [zero, one, column, first, step, end, count, rest, row_shape, row, positions]
    begin = step.outputs[0]
    for writing in writings:
        size = ir.node("Shape", [writing.updates])
        rows = ir.node("Gather", [size.outputs[0], first.outputs[0]], {"axis": 0})
        stop = ir.node("Add", [begin, rows.outputs[0]])
        numbers = ir.node("Range", [begin, stop.outputs[0], step.outputs[0]])
        indices = ir.node("Reshape", [writing.rows, column.outputs[0]])
        positions = ir.node("ScatterND", [positions.outputs[0], indices.outputs[0], numbers.outputs[0]])
        nodes += [size, rows, stop, numbers, indices, positions]
        begin = stop.outputs[0]
    joined = ir.node("Concat", [row.outputs[0], *(writing.updates for writing in writings)], {"axis": 0})
    new = ir.node("Gather", [joined.outputs[0], positions.outputs[0]], {"axis": 0})
    known = [ir.node("Identity", [shape]) for _ in shapes]
    values = [(old.outputs[0], identity.outputs[0]) for old, identity in zip(shapes, known, strict=True)]
    return Replacement([*known, *nodes, joined, new], [*values, (node.outputs[0], new.outputs[0])])
