"""The sampling of Deformable DETR, as exports write it: a GridSample for each level, stacked, weighted and summed.

The model of this is the function `multi_scale_deformable_attention` of Deformable DETR's own code, which transformers,
detrex and MMDetection copied, exported at fixed sizes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.graph import (
    Replacement,
    Runs,
    array,
    axes_of,
    climb,
    constant,
    integer,
    name_of,
    only_user,
    run_of,
)
from mmort.onnx.accelerate.rules import BILINEAR, ZEROS, Sampling, sampling_of


class _Level(NamedTuple):
    """One GridSample."""

    maps: ir.Value
    """The level's part of all values."""
    grids: ir.Value
    """The locations of all levels, from -1 to 1."""
    number: int
    """Of the level in the locations."""
    size: tuple[int, int]


def multi_scale_deformable_attention(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace all from the splitting of the values to the transposed sum, which `node` computes."""
    if node.op_type != "ReduceSum" or integer(node, "keepdims", 1) or axes_of(node) not in ([-1], [3]):
        return None
    output = _output(node)
    product = climb(node.inputs[0], "Mul")
    if output is None or product is None:
        return None
    for samples, weights in (product[0].inputs, product[0].inputs[::-1]):
        stack = climb(samples, "Reshape", "Concat")
        weighting = climb(weights, "Reshape", "Transpose")
        if stack is not None and weighting is not None and integer(stack[1], "axis", 0) in (-2, 3):
            levels = [_level(value) for value in stack[1].inputs]
            perm = list(weighting[1].attributes["perm"].as_ints())
            if perm != [0, 2, 1, 3, 4] or any(level is None for level in levels):
                return None
            return _fused(output, [level for level in levels if level is not None], weighting[1].inputs[0], runs)
    return None


def _output(node: ir.Node) -> ir.Value | None:
    """Return the sum (images * heads, channels, queries) after its transposition to (images, queries, all channels)."""
    reshape = only_user(node.outputs[0], "Reshape")
    transpose = None if reshape is None else only_user(reshape.outputs[0], "Transpose")
    if transpose is None or list(transpose.attributes["perm"].as_ints()) != [0, 2, 1]:
        return None
    return transpose.outputs[0]


def _level(value: ir.Value | None) -> _Level | None:
    """Return the level whose samples are a part of the stack, or None if it was computed in another way."""
    sampling = climb(value, "Unsqueeze", "GridSample")
    if sampling is None or axes_of(sampling[0]) not in ([-2], [3]):
        return None
    sample = sampling[1]
    plain = sampling_of(sample) == Sampling(BILINEAR, ZEROS, align_corners=0)
    maps = climb(sample.inputs[0], "Reshape", "Transpose", "Reshape")
    grid = climb(sample.inputs[1], "Reshape", "Transpose", "Gather")
    if not plain or maps is None or grid is None:
        return None
    shape, index = constant(maps[0].inputs[1]), constant(grid[2].inputs[1])
    perms = [list(transpose.attributes["perm"].as_ints()) for transpose in (maps[1], grid[1])]
    if shape is None or index is None or index.ndim or perms != [[0, 2, 1], [0, 2, 1, 3, 4]]:
        return None
    part, grids = maps[2].inputs[0], grid[2].inputs[0]
    if integer(grid[2], "axis", 0) != 3 or shape.min() < 1 or part is None or grids is None:
        return None
    return _Level(part, grids, int(index), (int(shape[2]), int(shape[3])))


def _fused(output: ir.Value, levels: list[_Level], weights: ir.Value | None, runs: Runs) -> Replacement | None:
    """Return the one node for these levels, if they are the parts of one tensor in order."""
    split = levels[0].maps.producer()
    grids = levels[0].grids
    if split is None or split.op_type != "Split" or integer(split, "axis", 0) != 1 or name_of(split) not in runs:
        return None
    run = run_of(split, runs)
    sizes = np.array([level.size for level in levels], np.int64)
    together = all(
        level.maps is part and level.grids is grids and level.number == number
        for number, (level, part) in enumerate(zip(levels, split.outputs, strict=False))
    )
    counts = sizes.prod(1)
    parts = constant(split.inputs[1] if len(split.inputs) > 1 else None)
    if (
        not together
        or len(levels) != len(split.outputs)
        or run.types[0] != "float"
        or len(run.shapes[0]) != 4
        or run.shapes[0][1] != counts.sum()
        or parts is None
        or parts.tolist() != counts.tolist()
    ):
        return None
    shapes, starts = array(sizes), array(np.concatenate([[0], counts.cumsum()[:-1]]))
    nodes = [shapes, starts]
    locations = _locations(grids)
    if locations is None:
        one, half = array(np.float32(1)), array(np.float32(0.5))
        shifted = ir.node("Add", [grids, one.outputs[0]])
        scaled = ir.node("Mul", [shifted.outputs[0], half.outputs[0]])
        nodes += [one, half, shifted, scaled]
        locations = scaled.outputs[0]
    inputs = [split.inputs[0], shapes.outputs[0], starts.outputs[0], locations, weights]
    fused = ir.node("MultiScaleDeformableAttention", inputs, domain="mmort")
    return Replacement([*nodes, fused], [(output, fused.outputs[0])])


def _locations(grids: ir.Value) -> ir.Value | None:
    """Return x of ``2 * x - 1``, or None if the grids were computed in another way."""
    chain = climb(grids, "Sub", "Mul")
    if chain is None:
        return None
    one, two = constant(chain[0].inputs[1]), constant(chain[1].inputs[1])
    if one is None or two is None or one.size != 1 or two.size != 1 or (one.item(), two.item()) != (1, 2):
        return None
    return chain[1].inputs[0]
