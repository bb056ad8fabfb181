"""Mask pasting, as MMDetection, MMDeploy and detectron2 export it: each mask is sampled at every pixel of the image.

The x of a sample depends only on its column, and the y only on its row.  So bilinear sampling is a product with a
matrix of weights for the rows and with one for the columns; the grid of all pixels is not needed.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Runs, run_of
from mmort.onnx.accelerate.single_nodes import BILINEAR, ZEROS, sampling_of
from mmort.onnx.graph.patterns import Replacement, array, axes_of, climb, integer, name_of, opset_of

MIN_OPSET = 11
"""The first opset with Range."""


def pasting(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace a bilinear sampling, with zeros outside, whose grid repeats a row of x and a column of y."""
    sampling = sampling_of(node)
    if sampling is None or (sampling.mode, sampling.padding) != (BILINEAR, ZEROS):
        return None
    stack = climb(node.inputs[1], "Concat")
    if stack is None or len(stack[0].inputs) != 2 or integer(stack[0], "axis", 0) not in (-1, 3):
        return None
    run = run_of(node, runs)
    if run.types[0] != "float" or len(run.shapes[1]) != 4 or opset_of(node) < MIN_OPSET:
        return None
    _, height, width, _ = run.shapes[1]
    x, y = _repeated(stack[0].inputs[0], 1, width, runs), _repeated(stack[0].inputs[1], 2, height, runs)
    if x is None or y is None:
        return None
    masks, turn = node.inputs[0], ir.node("Transpose", [y], {"perm": [0, 2, 1]})
    shape = ir.node("Shape", [masks])
    of_rows = _weights(turn.outputs[0], shape.outputs[0], 2, sampling.align_corners)
    of_columns = _weights(x, shape.outputs[0], 3, sampling.align_corners)
    tall = ir.node("MatMul", [of_rows[-1].outputs[0], masks])
    turned = ir.node("Transpose", [of_columns[-1].outputs[0]], {"perm": [0, 1, 3, 2]})
    pasted = ir.node("MatMul", [tall.outputs[0], turned.outputs[0]])
    nodes = [turn, shape, *of_rows, *of_columns, tall, turned, pasted]
    return Replacement(nodes, [(node.outputs[0], pasted.outputs[0])])


def _repeated(value: ir.Value | None, axis: int, size: int, runs: Runs) -> ir.Value | None:
    """Return the three-dimensional coordinates that are repeated along an axis, or None if they are not."""
    chain = climb(value, "Unsqueeze", "Expand", "Unsqueeze")
    if chain is None or axes_of(chain[0]) not in ([-1], [3]) or axes_of(chain[2]) != [axis]:
        return None
    expand = chain[1]
    shape = runs[name_of(expand)].shapes[0] if name_of(expand) in runs else ()
    return expand.inputs[0] if len(shape) == 3 and shape[3 - axis] == size else None


def _weights(coordinates: ir.Value, shape: ir.Value, axis: int, align_corners: int) -> list[ir.Node]:
    """Return nodes of which the last gives weights (masks, 1, samples, size) for coordinates (masks, 1, samples).

    The weight of a pixel falls from 1 to 0 with its distance from the sample; NaN is outside, as infinity is.
    """
    zero, half, one = (array(np.float32(number)) for number in (0, 0.5, 1))
    index, column = array(np.array(axis)), array(np.array([0, 0, 0, 1]))
    count = ir.node("Gather", [shape, index.outputs[0]], {"axis": 0})
    size = ir.node("Cast", [count.outputs[0]], {"to": ir.DataType.FLOAT.value})
    pixels = ir.node("Range", [zero.outputs[0], size.outputs[0], one.outputs[0]])
    samples = ir.node("Reshape", [coordinates, column.outputs[0]])
    from_0 = ir.node("Add", [samples.outputs[0], one.outputs[0]])
    steps = [zero, half, one, index, column, count, size, pixels, samples, from_0]
    if align_corners:
        last = ir.node("Sub", [size.outputs[0], one.outputs[0]])
        twice = ir.node("Mul", [from_0.outputs[0], last.outputs[0]])
        steps.append(last)
    else:
        scaled = ir.node("Mul", [from_0.outputs[0], size.outputs[0]])
        twice = ir.node("Sub", [scaled.outputs[0], one.outputs[0]])
        steps.append(scaled)
    positions = ir.node("Mul", [twice.outputs[0], half.outputs[0]])
    differences = ir.node("Sub", [positions.outputs[0], pixels.outputs[0]])
    distances = ir.node("Abs", [differences.outputs[0]])
    falling = ir.node("Sub", [one.outputs[0], distances.outputs[0]])
    near = ir.node("Greater", [falling.outputs[0], zero.outputs[0]])
    weights = ir.node("Where", [near.outputs[0], falling.outputs[0], zero.outputs[0]])
    return [*steps, twice, positions, differences, distances, falling, near, weights]
