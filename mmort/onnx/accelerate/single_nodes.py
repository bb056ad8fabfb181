"""Replacements of single nodes.  A rule takes a node, and the record of a run with the values of all nodes.

It returns None for nodes of other kinds, and raises `NotReplaceableError` where the replacement would compute something
else.  Nodes are written so that every opset has them.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir

from mmort.onnx.accelerate.runs import Run, Runs, run_of
from mmort.onnx.graph.patterns import (
    NotReplaceableError,
    Replacement,
    array,
    axes_of,
    climb,
    constant,
    integer,
    integers,
    number,
    only_user,
    opset_of,
    text,
)


def nms_indices(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace NonMaxSuppression, whose limits must be fixed."""
    if node.op_type != "NonMaxSuppression":
        return None
    limits = []
    for index, default in ((2, 0), (3, 0.0), (4, -math.inf)):
        limit = node.inputs[index] if index < len(node.inputs) else None
        value = constant(limit)
        if limit is not None and (value is None or value.size != 1):
            raise NotReplaceableError(f"input {index} is computed by the model")
        limits.append(default if value is None else value.item())
    max_per_class, iou_threshold, score_threshold = limits
    if max_per_class <= 0:
        raise NotReplaceableError("it keeps nothing")
    attributes = {
        "iou_threshold": float(iou_threshold),
        "score_threshold": float(score_threshold),
        "max_per_class": int(max_per_class),
        "center_point_box": integer(node, "center_point_box", 0),
    }
    new = ir.node("NMSIndices", node.inputs[:2], attributes, domain="mmort")
    return Replacement([new], [(node.outputs[0], new.outputs[0])])


def roi_align(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace RoiAlign with averages: the image of a region becomes the first number of its row."""
    if node.op_type != "RoiAlign":
        return None
    _require_float32(run_of(node, runs))
    if text(node, "mode", "avg") != "avg":
        raise NotReplaceableError("ONNX Runtime's maximum is that of weighted corner values, mmort's that of samples")
    default = "half_pixel" if opset_of(node) >= 16 else "output_half_pixel"
    attributes: dict[str, int | float | str] = {
        "output_height": integer(node, "output_height", 1),
        "output_width": integer(node, "output_width", 1),
        "sampling_ratio": integer(node, "sampling_ratio", 0),
        "spatial_scale": number(node, "spatial_scale", 1.0),
        "mode": "avg",
        "aligned": int(text(node, "coordinate_transformation_mode", default) == "half_pixel"),
    }
    images = ir.node("Cast", [node.inputs[2]], {"to": ir.DataType.FLOAT.value})
    column = array(np.array([-1, 1]))
    rows = ir.node("Reshape", [images.outputs[0], column.outputs[0]])
    regions = ir.node("Concat", [rows.outputs[0], node.inputs[1]], {"axis": 1})
    new = ir.node("MMCVRoiAlign", [node.inputs[0], regions.outputs[0]], attributes, domain="mmcv")
    return Replacement([images, column, rows, regions, new], [(node.outputs[0], new.outputs[0])])


BILINEAR, NEAREST, BICUBIC = 0, 1, 2
ZEROS, BORDER, REFLECTION = 0, 1, 2
_MODES = {"bilinear": BILINEAR, "linear": BILINEAR, "nearest": NEAREST, "bicubic": BICUBIC, "cubic": BICUBIC}
_PADDINGS = {"zeros": ZEROS, "border": BORDER, "reflection": REFLECTION}


class Sampling(NamedTuple):
    """The sampling of GridSample, or of MMCV's grid_sampler; the numbers are those of the latter's attributes."""

    mode: int
    padding: int
    align_corners: int


def sampling_of(node: ir.Node) -> Sampling | None:
    """Return the sampling of a node, or None if it is of another type."""
    corners = integer(node, "align_corners", 0)
    if node.op_type == "GridSample":
        mode, padding = _MODES[text(node, "mode", "linear")], text(node, "padding_mode", "zeros")
        return Sampling(mode, _PADDINGS[padding], corners)
    if node.op_type == "grid_sampler":
        return Sampling(integer(node, "interpolation_mode", 0), integer(node, "padding_mode", 0), corners)
    return None


def grid_sample(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace GridSample of images by the same interpolation."""
    sampling = sampling_of(node) if node.op_type == "GridSample" else None
    if sampling is None:
        return None
    run = run_of(node, runs)
    _require_float32(run)
    if len(run.shapes[0]) != 4:
        raise NotReplaceableError(f"its input has {len(run.shapes[0])} dimensions, mmort's 4")
    if sampling.mode == NEAREST and sampling.padding == REFLECTION:
        raise NotReplaceableError("a reflected point halfway between two pixels may be rounded to the other one")
    attributes = {
        "interpolation_mode": sampling.mode,
        "padding_mode": sampling.padding,
        "align_corners": sampling.align_corners,
    }
    new = ir.node("grid_sampler", node.inputs, attributes, domain="mmcv")
    return Replacement([new], [(node.outputs[0], new.outputs[0])])


def deformable_convolution(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace DeformConv whose two sides of each axis are padded alike; a bias without a mask is added after it."""
    if node.op_type != "DeformConv":
        return None
    _require_float32(run_of(node, runs))
    top, left, bottom, right = integers(node, "pads", [0, 0, 0, 0])
    if (top, left) != (bottom, right):
        raise NotReplaceableError(f"its pads are {[top, left, bottom, right]}, mmort's the same on both sides")
    attributes: dict[str, Any] = {
        "stride": integers(node, "strides", [1, 1]),
        "padding": [top, left],
        "dilation": integers(node, "dilations", [1, 1]),
        "groups": integer(node, "group", 1),
        "deform_groups": integer(node, "offset_group", 1),
    }
    x, weight, offset, bias, mask = [*node.inputs, None, None][:5]
    if mask is not None:
        inputs = [x, offset, mask, weight, *([] if bias is None else [bias])]
        new = ir.node("MMCVModulatedDeformConv2d", inputs, attributes, domain="mmcv")
        return Replacement([new], [(node.outputs[0], new.outputs[0])])
    new = ir.node("MMCVDeformConv2d", [x, offset, weight], attributes, domain="mmcv")
    if bias is None:
        return Replacement([new], [(node.outputs[0], new.outputs[0])])
    shape = array(np.array([-1, 1, 1]))
    column = ir.node("Reshape", [bias, shape.outputs[0]])
    biased = ir.node("Add", [new.outputs[0], column.outputs[0]])
    return Replacement([new, shape, column, biased], [(node.outputs[0], biased.outputs[0])])


def softmax_of_last_axis(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace Softmax over an inner axis, which ONNX Runtime exchanges with the last one, by one over a moved axis.

    YOLOs take it over the bins of a distance, with the locations last.  Moving the axis keeps the order of the others,
    for which ONNX Runtime's transposition is faster.
    """
    if node.op_type != "Softmax" or opset_of(node) < 13:  # before, all axes from the given one on were one
        return None
    rank = len(run_of(node, runs).shapes[0])
    axis = integer(node, "axis", -1) % max(rank, 1)
    if axis >= rank - 1:
        return None
    order = [dimension for dimension in range(rank) if dimension != axis] + [axis]
    moved = ir.node("Transpose", [node.inputs[0]], {"perm": order})
    new = ir.node("Softmax", [moved.outputs[0]], {"axis": -1})
    restored = ir.node("Transpose", [new.outputs[0]], {"perm": np.argsort(order).tolist()})
    return Replacement([moved, new, restored], [(node.outputs[0], restored.outputs[0])])


def product_with_column(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace MatMul by a vector, which ONNX Runtime computes row by row, by one product with a column.

    The mean of a distance's distribution is such a product in files of GFL and PicoDet.
    """
    if node.op_type != "MatMul":
        return None
    ranks = [len(shape) for shape in run_of(node, runs).shapes]
    if len(ranks) != 2 or ranks[0] < 2 or ranks[1] != 1:  # a matrix that ONNX Runtime packed has no shape
        return None
    column, sizes = array(np.array([-1, 1])), array(np.zeros(ranks[0] - 1, np.int64))  # the left one's sizes
    vector = ir.node("Reshape", [node.inputs[1], column.outputs[0]])
    new = ir.node("MatMul", [node.inputs[0], vector.outputs[0]])
    product = ir.node("Reshape", [new.outputs[0], sizes.outputs[0]])
    return Replacement([column, sizes, vector, new, product], [(node.outputs[0], product.outputs[0])])


def appending_loop(node: ir.Node, runs: Runs) -> Replacement | None:
    """Replace a Loop that appends a slice to a tensor each time, copying all before, by one that collects slices."""
    if node.op_type != "Loop":
        return None
    body = node.attributes["body"].as_graph()
    for index in range(len(node.inputs) - 2):
        before, after = body.inputs[index + 2], body.outputs[index + 1]
        append = after.producer()
        if (
            append is None
            or append.op_type != "Concat"
            or append.graph is not body
            or integer(append, "axis", 0) != 0
            or len(append.inputs) != 2
            or append.inputs[0] is not before
            or only_user(before, "Concat") is None
            or after.uses()
            or list(body.outputs).count(after) != 1
        ):
            continue
        slices = climb(append.inputs[1], "Unsqueeze")
        if slices is not None and slices[0].graph is body and axes_of(slices[0]) == [0]:
            return _collecting_loop(node, body, index, slices[0])
    return None


def _collecting_loop(node: ir.Node, body: ir.Graph, index: int, unsqueeze: ir.Node) -> Replacement:
    """Return a loop without the tensor of this index, whose slices are an additional output, and the tensor."""
    append = body.outputs[index + 1].producer()
    assert append is not None
    element = ir.node("Identity", [unsqueeze.inputs[0]], name=f"{node.name}/slice")
    element.outputs[0].name = f"{node.name}/slice/0"
    body.append(element)
    del body.outputs[index + 1]
    body.outputs.append(element.outputs[0])
    body.remove([append], safe=True)
    if not unsqueeze.outputs[0].uses():
        body.remove([unsqueeze], safe=True)
    del body.inputs[index + 2]
    inputs = [value for position, value in enumerate(node.inputs) if position != index + 2]
    attributes = [ir.AttrGraph("body", body)]
    node.attributes.pop("body")
    loop = ir.Node("", "Loop", inputs, attributes, num_outputs=len(node.outputs))
    kept = [output for position, output in enumerate(node.outputs) if position != index]
    # A loop that ends at once knows nothing about the shape of a slice, so nothing is joined then.
    shape = ir.node("Shape", [loop.outputs[-1]])
    first = array(np.array(0))
    count = ir.node("Gather", [shape.outputs[0], first.outputs[0]], {"axis": 0})
    any_slices = ir.node("Cast", [count.outputs[0]], {"to": ir.DataType.BOOL.value})
    initial = node.inputs[index + 2]
    assert initial is not None
    branches = [
        ir.node("Concat", [initial, loop.outputs[-1]], {"axis": 0}, name=f"{node.name}/joined"),
        ir.node("Identity", [initial], name=f"{node.name}/initial"),
    ]
    for branch in branches:
        branch.outputs[0].name = f"{branch.name}/0"
    then_branch, else_branch = (
        ir.Graph([], [branch.outputs[0]], nodes=[branch], name=branch.name) for branch in branches
    )
    joined = ir.node(
        "If", [any_slices.outputs[0]], {"then_branch": then_branch, "else_branch": else_branch}, num_outputs=1
    )
    values = [*zip(kept, loop.outputs[:-1], strict=True), (node.outputs[index], joined.outputs[0])]
    return Replacement([loop, shape, first, count, any_slices, joined], values)


def _require_float32(run: Run) -> None:
    """Refuse other element types, which ONNX Runtime's nodes take and mmort's do not."""
    if run.types[0] != "float":
        raise NotReplaceableError(f"its numbers are {run.types[0]}, mmort's float")
