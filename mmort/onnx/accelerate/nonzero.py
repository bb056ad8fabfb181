"""NonZero of many scores of which few are above a threshold, as RetinaNet of detectron2 selects candidates."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Runs, run_of
from mmort.onnx.graph.patterns import Replacement, array, opset_of

MIN_SIZE = 100_000
"""ONNX Runtime searches a smaller matrix in less than half a millisecond."""


def nonzero_of_rows(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace NonZero of a matrix of truth values, which looks at each slowly, by one of the rows that have any.

    All NonZero of the same matrix are replaced at once: detectron2 writes two.
    """
    if node.op_type != "NonZero":
        return None
    run, matrix = run_of(node, runs), node.inputs[0]
    (shape,) = run.shapes
    if matrix is None or run.types != ("bool",) or len(shape) != 2 or math.prod(shape) < MIN_SIZE:
        return None
    zero, one = array(np.array([0])), array(np.array([1]))
    numbers = ir.node("Cast", [matrix], {"to": ir.DataType.FLOAT.value})
    if opset_of(node) < 18:
        highest = ir.node("ReduceMax", [numbers.outputs[0]], {"axes": [1], "keepdims": 0})
    else:
        highest = ir.node("ReduceMax", [numbers.outputs[0], one.outputs[0]], {"keepdims": 0})
    any_true = ir.node("Cast", [highest.outputs[0]], {"to": ir.DataType.BOOL.value})
    nonzero = ir.node("NonZero", [any_true.outputs[0]])
    flat = array(np.array([-1]))
    rows = ir.node("Reshape", [nonzero.outputs[0], flat.outputs[0]])
    part = ir.node("Gather", [matrix, rows.outputs[0]], {"axis": 0})
    inside = ir.node("NonZero", [part.outputs[0]])
    row_of_part = ir.node("Gather", [inside.outputs[0], zero.outputs[0]], {"axis": 0})
    column = ir.node("Gather", [inside.outputs[0], one.outputs[0]], {"axis": 0})
    positions = ir.node("Reshape", [row_of_part.outputs[0], flat.outputs[0]])
    row = ir.node("Gather", [nonzero.outputs[0], positions.outputs[0]], {"axis": 1})
    new = ir.node("Concat", [row.outputs[0], column.outputs[0]], {"axis": 0})
    steps = [zero, one, numbers, highest, any_true, nonzero, flat, rows, part, inside, row_of_part, column]
    same = [user for user in matrix.consumers() if user.op_type == "NonZero" and user.graph is node.graph]
    copies = [ir.node("Identity", [new.outputs[0]]) for _ in same]
    values = [(user.outputs[0], copy.outputs[0]) for user, copy in zip(same, copies, strict=True)]
    return Replacement([*steps, positions, row, new, *copies], values)
