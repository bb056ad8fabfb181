"""The sampling of Deformable DETR, as exports write it: a GridSample for each level, joined, weighted and summed.

The models of this are the function `multi_scale_deformable_attention` of Deformable DETR's own code, which
transformers, detrex and MMDetection copied, and that of RT-DETR, which ultralytics copied.  Files for all sizes compute
the sizes of the levels, and where each begins among all positions: the end of the one before.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Runs, run_of
from mmort.onnx.accelerate.single_nodes import BILINEAR, ZEROS, Sampling, sampling_of
from mmort.onnx.graph.patterns import (
    Replacement,
    array,
    axes_of,
    climb,
    constant,
    integer,
    integers,
    name_of,
    only_user,
)

Number: TypeAlias = "int | ir.Value"
"""A number that the file fixes, or one that it computes, of shape (1,)."""


class _Part(NamedTuple):
    """A range of a value along an axis."""

    whole: ir.Value
    axis: int
    start: Number
    stop: Number


class _Level(NamedTuple):
    """One GridSample."""

    maps: _Part
    """The level's part of all values."""
    grids: ir.Value
    """The locations of all levels, from -1 to 1."""
    number: int
    """Of the level in the locations."""
    size: tuple[Number, Number]


class _Attention(NamedTuple):
    """The inputs of the one node."""

    value: ir.Value
    """(images, positions, heads, channels)."""
    sizes: list[tuple[Number, Number]]
    """Height and width of each level."""
    stops: list[Number]
    """Where each level ends among the positions."""
    grids: ir.Value
    """(images, queries, heads, levels, points, 2), from -1 to 1; or with levels and points in one dimension."""
    weights: ir.Value | None
    points: int | None = None
    """The points of each level, if they are in one dimension with the levels."""


def multi_scale_deformable_attention(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace all from the splitting of the values to the transposed sum, which `node` computes."""
    if node.op_type != "ReduceSum" or integer(node, "keepdims", 1) or axes_of(node) not in ([-1], [3]):
        return None
    if run_of(node, runs).types[0] != "float":
        return None
    output = _output(node)
    product = climb(node.inputs[0], "Mul")
    if output is None or product is None:
        return None
    for samples, weights in (product[0].inputs, product[0].inputs[::-1]):
        attention = _of_deformable_detr(samples, weights, runs) or _of_rt_detr(samples, weights, runs)
        if attention is not None:
            return _fused(output, attention)
    return None


def _output(node: ir.Node) -> ir.Value | None:
    """Return the sum (images * heads, channels, queries) after its transposition to (images, queries, all channels)."""
    reshape = only_user(node.outputs[0], "Reshape")
    transpose = None if reshape is None else only_user(reshape.outputs[0], "Transpose")
    if transpose is None or integers(transpose, "perm", []) != [0, 2, 1]:
        return None
    return transpose.outputs[0]


def _of_deformable_detr(samples: ir.Value | None, weights: ir.Value | None, runs: Runs) -> _Attention | None:
    """Return the attention whose levels are taken from the locations one by one, and stacked."""
    stack = climb(samples, "Reshape", "Concat")
    weighting = climb(weights, "Reshape", "Transpose")
    if stack is None or weighting is None or integer(stack[1], "axis", 0) not in (-2, 3):
        return None
    levels = [level for value in stack[1].inputs if (level := _level(value, runs)) is not None]
    if integers(weighting[1], "perm", []) != [0, 2, 1, 3, 4] or len(levels) != len(stack[1].inputs):
        return None
    sizes, maps = [level.size for level in levels], [level.maps for level in levels]
    whole, grids = levels[0].maps.whole, levels[0].grids
    one_by_one = all(level.grids is grids and level.number == number for number, level in enumerate(levels))
    if not one_by_one or not _have_sizes(maps, sizes, (1,)):
        return None
    return _Attention(whole, sizes, [part.stop for part in maps], grids, weighting[1].inputs[0])


def _level(value: ir.Value | None, runs: Runs) -> _Level | None:
    """Return the level whose samples are a part of the stack, or None if it was computed in another way."""
    unsqueeze = climb(value, "Unsqueeze")
    if unsqueeze is None or axes_of(unsqueeze[0]) not in ([-2], [3]):
        return None
    sample = _sample(unsqueeze[0].inputs[0])
    if sample is None:
        return None
    maps = climb(sample.inputs[0], "Reshape", "Transpose", "Reshape")
    grid = climb(sample.inputs[1], "Reshape", "Transpose", "Gather")
    if maps is None or grid is None:
        return None
    size, part, index = _size(maps[0], runs), _part(maps[2].inputs[0]), constant(grid[2].inputs[1])
    if name_of(maps[2]) not in runs or len(run_of(maps[2], runs).shapes[0]) != 4:
        return None  # the heads were not apart from the channels before
    perms = [integers(maps[1], "perm", []), integers(grid[1], "perm", [])]
    if size is None or part is None or index is None or index.ndim or perms != [[0, 2, 1], [0, 2, 1, 3, 4]]:
        return None
    grids = grid[2].inputs[0]
    if integer(grid[2], "axis", 0) != 3 or grids is None:
        return None
    return _Level(part, grids, int(index), size)


def _of_rt_detr(samples: ir.Value | None, weights: ir.Value | None, runs: Runs) -> _Attention | None:
    """Return the attention whose values and locations are transposed before they are split into levels."""
    join = climb(samples, "Concat")
    weighting = climb(weights, "Reshape", "Transpose")
    if join is None or weighting is None or integer(join[0], "axis", 0) not in (-1, 3):
        return None
    maps, grids, sizes = [], [], []
    for value in join[0].inputs:
        sample = _sample(value)
        reshape = None if sample is None else climb(sample.inputs[0], "Reshape")
        if sample is None or reshape is None:
            return None
        size, part, grid = _size(reshape[0], runs), _part(reshape[0].inputs[0]), _part(sample.inputs[1])
        if size is None or part is None or grid is None:
            return None
        maps.append(part)
        grids.append(grid)
        sizes.append(size)
    points = grids[0].stop
    of_maps, of_grids = (climb(parts[0].whole, "Reshape", "Transpose") for parts in (maps, grids))
    if of_maps is None or of_grids is None or not _have_sizes(maps, sizes, (-1, 2)):
        return None
    if not isinstance(points, int) or not _follow(
        grids, [points * (1 + index) for index in range(len(grids))], (-2, 2)
    ):
        return None
    perms = [integers(of_maps[1], "perm", []), integers(of_grids[1], "perm", []), integers(weighting[1], "perm", [])]
    value, locations = of_maps[1].inputs[0], of_grids[1].inputs[0]
    if perms != [[0, 2, 3, 1], [0, 2, 1, 3, 4], [0, 2, 1, 3]] or value is None or locations is None:
        return None
    return _Attention(value, sizes, [part.stop for part in maps], locations, weighting[1].inputs[0], points)


def _sample(value: ir.Value | None) -> ir.Node | None:
    """Return the node that samples as the attention does, GridSample or MMDeploy's grid_sampler, or None."""
    node = None if value is None else value.producer()
    return node if node is not None and sampling_of(node) == Sampling(BILINEAR, ZEROS, align_corners=0) else None


def _size(reshape: ir.Node, runs: Runs) -> tuple[Number, Number] | None:
    """Return height and width of the maps that a Reshape makes, or None if they are not two positive numbers."""
    shape = constant(reshape.inputs[1])
    if shape is not None:
        size: tuple[Number, ...] = tuple(map(int, shape[-2:]))
    else:
        joined = climb(reshape.inputs[1], "Concat")
        if joined is None:
            return None
        size = tuple(number for value in joined[0].inputs[-2:] if (number := _number(value)) is not None)
        if any(isinstance(number, ir.Value) for number in size) and (
            name_of(joined[0]) not in runs or run_of(joined[0], runs).shapes[-2:] != ((1,), (1,))
        ):
            return None  # a value may have several numbers
    if len(size) != 2 or any(isinstance(number, int) and number < 1 for number in size):
        return None
    return size[0], size[1]


def _number(value: ir.Value | None) -> Number | None:
    """Return the number in a value of one element, or the value if it is computed."""
    if value is None:
        return None
    fixed = constant(value)
    return value if fixed is None else int(fixed.item()) if fixed.size == 1 else None


def _part(value: ir.Value | None) -> _Part | None:
    """Return the range that Split or Slice takes, or None if another node makes the value."""
    node = None if value is None else value.producer()
    whole = None if node is None or not node.inputs else node.inputs[0]
    if node is None or whole is None:
        return None
    fixed = [constant(value) for value in node.inputs[1:]]
    if node.op_type == "Split" and len(fixed) == 1 and fixed[0] is not None:
        bounds = np.concatenate([[0], fixed[0].cumsum()])
        index = next(index for index, output in enumerate(node.outputs) if output is value)
        return _Part(whole, integer(node, "axis", 0), int(bounds[index]), int(bounds[index + 1]))
    if node.op_type == "Slice" and len(fixed) in (3, 4):
        start, stop, axis, step = (*map(_number, node.inputs[1:]), 1)[:4]
        if start is not None and stop is not None and isinstance(axis, int) and step == 1:
            return _Part(whole, axis, start, stop)
    return None


def _have_sizes(parts: list[_Part], sizes: list[tuple[Number, Number]], axes: tuple[int, ...]) -> bool:
    """Return whether parts are of one tensor, in order, with as many elements as the maps made of them.

    Of computed sizes, it is a Reshape that makes maps of exactly the part's elements.
    """
    fixed = [height * width for height, width in sizes if isinstance(height, int) and isinstance(width, int)]
    if len(fixed) == len(sizes):
        return _follow(parts, list(itertools.accumulate(fixed)), axes)
    return _follow(parts, [part.stop for part in parts], axes)


def _follow(parts: list[_Part], stops: Sequence[Number], axes: tuple[int, ...]) -> bool:
    """Return whether parts are of one tensor, each begins where the one before ends, and they end at these numbers."""
    return all(
        part.whole is parts[0].whole and part.axis in axes and _is_same(part.start, start) and _is_same(part.stop, stop)
        for part, start, stop in zip(parts, [0, *stops[:-1]], stops, strict=True)
    )


def _is_same(number: Number, other: Number) -> bool:
    """Return whether two numbers are equal if both are fixed, or are the same value."""
    return number is other or (isinstance(number, int) and isinstance(other, int) and number == other)


def _fused(output: ir.Value, attention: _Attention) -> Replacement:
    """Return the one node."""
    nodes: list[ir.Node] = []
    flat = _joined([number for size in attention.sizes for number in size], nodes)
    form = array(np.array([-1, 2]))
    shapes = ir.node("Reshape", [flat, form.outputs[0]])
    firsts = _joined([0, *attention.stops[:-1]], nodes)
    nodes += [form, shapes]
    locations = _locations(attention.grids)
    if locations is None:
        one, half = array(np.float32(1)), array(np.float32(0.5))
        shifted = ir.node("Add", [attention.grids, one.outputs[0]])
        scaled = ir.node("Mul", [shifted.outputs[0], half.outputs[0]])
        nodes += [one, half, shifted, scaled]
        locations = scaled.outputs[0]
    inputs = [locations, attention.weights]
    if attention.points is not None:
        split = [0, 0, 0, len(attention.sizes), attention.points]
        for index, shape in enumerate(([*split, 2], split)):
            target = array(np.array(shape))
            reshape = ir.node("Reshape", [inputs[index], target.outputs[0]])
            nodes += [target, reshape]
            inputs[index] = reshape.outputs[0]
    inputs = [attention.value, shapes.outputs[0], firsts, *inputs]
    fused = ir.node("MultiScaleDeformableAttention", inputs, domain="mmort")
    return Replacement([*nodes, fused], [(output, fused.outputs[0])])


def _joined(numbers: Sequence[Number], nodes: list[ir.Node]) -> ir.Value:
    """Return a vector of numbers, and append the nodes that make it."""
    if all(isinstance(number, int) for number in numbers):
        nodes.append(array(np.array(numbers, np.int64)))
        return nodes[-1].outputs[0]
    values = []
    for number in numbers:
        if isinstance(number, int):
            nodes.append(array(np.array([number], np.int64)))
        values.append(nodes[-1].outputs[0] if isinstance(number, int) else number)
    nodes.append(ir.node("Concat", values, {"axis": 0}))
    return nodes[-1].outputs[0]


def _locations(grids: ir.Value) -> ir.Value | None:
    """Return x of ``2 * x - 1``, or None if the grids were computed in another way."""
    chain = climb(grids, "Sub", "Mul")
    if chain is None:
        return None
    one, two = constant(chain[0].inputs[1]), constant(chain[1].inputs[1])
    if one is None or two is None or one.size != 1 or two.size != 1 or (one.item(), two.item()) != (1, 2):
        return None
    return chain[1].inputs[0]
