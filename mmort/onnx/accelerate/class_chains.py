"""Candidates that are selected for one class after the other, as torchvision's SSD does: a chain of nodes for each."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Runs
from mmort.onnx.graph.patterns import Replacement, array, climb, constant, integer


class _Selection(NamedTuple):
    """The nodes and tensors that the chains of all classes share."""

    scores: ir.Value
    """Of all candidates, (N, classes)."""
    boxes: ir.Value
    """Of all candidates, (N, 4)."""
    threshold: float
    max_count: int


class _Chain(NamedTuple):
    """The nodes that select the best candidates of a class among those whose score is above a threshold."""

    selection: _Selection
    column: int
    """Of the scores."""
    label: int
    best: ir.Node
    best_boxes: ir.Node


def classes_in_turn(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace the chains of all classes, whose labels this node joins, by the same steps for a matrix of scores."""
    if node.op_type != "Concat":
        return None
    chains: list[_Chain] = []
    for labels in node.inputs:
        chain = _chain(labels)
        if chain is None or (chains and chain.selection != chains[0].selection):
            return None
        chains.append(chain)
    scores = _joined([chain.best.outputs[0] for chain in chains])
    boxes = _joined([chain.best_boxes.outputs[0] for chain in chains])
    return None if scores is None or boxes is None else _selected(chains, boxes, scores, node.outputs[0])


def _chain(labels: ir.Value | None) -> _Chain | None:
    """Return the chain of nodes before the labels of a class, or None if they are others."""
    nodes = climb(labels, "ConstantOfShape", "Shape", "TopK", "GatherND", "Gather")
    if nodes is None:
        return None
    filled, _, best, passing, column = nodes
    is_above = climb(passing.inputs[1], "Transpose", "NonZero", "Greater")
    gathered = [user for user in best.outputs[1].consumers() if user.op_type == "Gather"]
    passing_boxes = climb(gathered[0].inputs[0], "GatherND") if len(gathered) == 1 else None
    if is_above is None or passing_boxes is None or not integer(best, "largest", 1) or not integer(best, "sorted", 1):
        return None
    same = climb(passing_boxes[0].inputs[1], "Transpose", "NonZero", "Greater")
    threshold, index = constant(is_above[-1].inputs[1]), constant(column.inputs[1])
    max_count = _max_count(best, passing)
    scores, boxes = column.inputs[0], passing_boxes[0].inputs[0]
    if (
        same is None
        or same[-1] is not is_above[-1]
        or is_above[-1].inputs[0] is not column.outputs[0]
        or integer(column, "axis", 0) != 1
        or threshold is None
        or index is None
        or index.ndim
        or max_count is None
        or scores is None
        or boxes is None
    ):
        return None
    label = filled.attributes["value"].as_tensor().numpy().item() if "value" in filled.attributes else 0
    return _Chain(_Selection(scores, boxes, threshold.item(), max_count), index.item(), label, best, gathered[0])


def _max_count(best: ir.Node, passing: ir.Node) -> int | None:
    """Return the constant of a TopK that takes so many candidates, or all if there are fewer; None of any other."""
    nodes = climb(best.inputs[1], "Reshape", "ReduceMin", "Concat")
    if nodes is None or len(nodes[-1].inputs) != 2:
        return None
    limit, count = constant(nodes[-1].inputs[0]), climb(nodes[-1].inputs[1], "Unsqueeze", "Gather", "Shape")
    if limit is None or limit.size != 1 or count is None or count[-1].inputs[0] is not passing.outputs[0]:
        return None
    return int(limit.item())


def _joined(values: list[ir.Value]) -> ir.Value | None:
    """Return the output of a Concat of exactly these values along their first axis, or None if there is none."""
    for user in values[0].consumers():
        if user.op_type == "Concat" and list(user.inputs) == values and integer(user, "axis", 0) == 0:
            return user.outputs[0]
    return None


def _selected(chains: list[_Chain], boxes: ir.Value, scores: ir.Value, labels: ir.Value) -> Replacement:
    """Return nodes that select for all classes at once.

    Scores that are not above the threshold become the threshold: they come after the others, and are dropped.
    """
    selection = chains[0].selection
    columns, names = array([chain.column for chain in chains]), array([chain.label for chain in chains])
    zero, one, limit = array(np.array(0)), array(np.array([1])), array(np.array([selection.max_count]))
    threshold = array(np.float32(selection.threshold))
    transposed = ir.node("Transpose", [selection.scores], {"perm": [1, 0]})
    rows = ir.node("Gather", [transposed.outputs[0], columns.outputs[0]], {"axis": 0})
    above = ir.node("Greater", [rows.outputs[0], threshold.outputs[0]])
    raised = ir.node("Where", [above.outputs[0], rows.outputs[0], threshold.outputs[0]])
    shape = ir.node("Shape", [rows.outputs[0]])
    size = ir.node("Gather", [shape.outputs[0], one.outputs[0]], {"axis": 0})
    counts = ir.node("Concat", [limit.outputs[0], size.outputs[0]], {"axis": 0})
    count = ir.node("ReduceMin", [counts.outputs[0]])
    best = ir.node("TopK", [raised.outputs[0], count.outputs[0]], {"axis": 1}, num_outputs=2)
    kept = ir.node("Greater", [best.outputs[0], threshold.outputs[0]])
    nonzero = ir.node("NonZero", [kept.outputs[0]])
    positions = ir.node("Transpose", [nonzero.outputs[0]], {"perm": [1, 0]})
    best_scores = ir.node("GatherND", [best.outputs[0], positions.outputs[0]])
    candidates = ir.node("GatherND", [best.outputs[1], positions.outputs[0]])
    best_boxes = ir.node("Gather", [selection.boxes, candidates.outputs[0]], {"axis": 0})
    row = ir.node("Gather", [nonzero.outputs[0], zero.outputs[0]], {"axis": 0})
    best_labels = ir.node("Gather", [names.outputs[0], row.outputs[0]], {"axis": 0})
    nodes = [columns, names, zero, one, limit, threshold, transposed, rows, above, raised, shape, size, counts, count]
    nodes += [best, kept, nonzero, positions, best_scores, candidates, best_boxes, row, best_labels]
    values = [(boxes, best_boxes.outputs[0]), (scores, best_scores.outputs[0]), (labels, best_labels.outputs[0])]
    return Replacement(nodes, values)
