"""Decoding: ONNX nodes that turn another exporter's outputs into those of `mmort.predict.Network`.

All of them are standard operators of opset 11, so that an adopted file runs wherever the original ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx.helper
from numpy.typing import NDArray

from mmort.contract.tasks import DETS, KEYPOINTS, LABELS, MASKS
from mmort.onnx.adopt.foreign_file import ForeignFile
from mmort.onnx.adopt.inputs import Sizes, Tensor, replace_inputs
from mmort.onnx.adopt.layout import Columns, Layout
from mmort.onnx.graph import inspection, structure
from mmort.onnx.graph.builder import END, FLOAT, INT64, FunctionBuilder, Value

MIN_OPSET = 11

_SIZES = {
    DETS: ("detections", 5),
    LABELS: ("detections",),
    MASKS: ("detections", "mask_height", "mask_width"),
    KEYPOINTS: ("detections", "keypoint_columns"),
}
"""The sizes of each output after that of the batch."""

_TYPES = {"float32": FLOAT, "int64": INT64}


MAX_ROTATED = 30_000
"""Rotated boxes in an image that suppression compares, those with the highest scores, as in ultralytics."""

_CHUNK = 512
"""Rotated boxes that are compared with all at a time: of 20,000 all at once, a matrix would have 1.6 GB."""


def append_decoder(model: onnx.ModelProto, layout: Layout, file: ForeignFile) -> None:
    """Replace a model's outputs by those of `Network`, in place; an input (3, H, W) gets a batch of one.

    Other inputs than the image are computed from ``img_shape`` and ``ori_shape``, inputs instead of them.

    Parameters
    ----------
    model : onnx.ModelProto
        Its opset must be `MIN_OPSET` or higher.
    layout : Layout
    file : ForeignFile
        The model's inputs and outputs; these with known numbers of dimensions.

    Raises
    ------
    ValueError
        If the layout names an output that is not there, or has not the dimensions for it.
    """
    graph = model.graph
    opset = inspection.opset_of(model) or 1
    if opset < MIN_OPSET:
        raise ValueError(
            f"adopt: the file's opset must be {MIN_OPSET} or higher, got {opset}; onnx.version_converter raises it"
        )
    original = {name: f"mmort/adopt/original_{name}" for name in (tensor.name for tensor in _SIZES)}
    structure.rename(graph, original)
    op = FunctionBuilder(opset, prefix="mmort/adopt/")
    is_single = len(file.image.shape or ()) == 3
    prepare = layout.prepare
    input, image_sizes = replace_inputs(
        graph,
        file.inputs,
        op,
        needs_scale=layout.box_unit == "original",
        is_padded=prepare.keep_ratio and (prepare.padding is not None or prepare.size_divisor > 1),
    )
    before, op.nodes = op.nodes, []
    tensors = {name: Value(op, original.get(name, name)) for name in file.outputs}
    decoder = _Decoder(op, layout, input, image_sizes, tensors, file.outputs, is_single=is_single)
    results = decoder.results()
    for name, value in results.items():
        op.nodes.append(onnx.helper.make_node("Identity", [value.handle], [name], f"mmort/adopt/{name}"))
    nodes = [*before, *graph.node, *op.nodes]
    del graph.node[:]
    graph.node.extend(nodes)
    batch = input.type.tensor_type.shape.dim[0]
    size = batch.dim_value or batch.dim_param or "batch"
    del graph.output[:]
    for tensor, sizes in _SIZES.items():
        if tensor.name in results:
            known = ("detections", 6) if tensor == DETS and layout.angle is not None else sizes
            formal = onnx.helper.make_tensor_value_info(tensor.name, _TYPES[tensor.dtype], [size, *known])
            graph.output.append(formal)


class _Decoder:
    """Writes the nodes of a layout."""

    def __init__(
        self,
        op: FunctionBuilder,
        layout: Layout,
        input: onnx.ValueInfoProto,
        image_sizes: Sizes | None,
        tensors: Mapping[str, Value],
        outputs: Mapping[str, Tensor],
        *,
        is_single: bool,
    ) -> None:
        self.op, self.layout, self.tensors, self.outputs, self.is_single = op, layout, tensors, outputs, is_single
        self.image, self.image_sizes = Value(op, input.name), image_sizes
        number, _, height, width = (size.dim_value for size in input.type.tensor_type.shape.dim)
        self.fixed_size = (height, width) if height and width else None
        boxes = self._known("boxes", layout.parts("boxes")[0])
        self.is_flat = not is_single and len(boxes.shape or ()) == 2
        """Whether the rows of all images of a batch follow each other."""
        if self.is_flat and number != 1 and not (layout.batch_index or layout.row_counts):
            raise ValueError(
                f"adopt: boxes of {boxes} must have batch_index or row_counts, which say whose they are, as the file "
                "takes several images"
            )

    def results(self) -> dict[str, Value]:
        """Return ``dets`` (N, K, 5 or 6), best first, ``labels`` (N, K), -1 in unused rows, and masks or keypoints."""
        op, layout, boxes = self.op, self.layout, self._boxes()
        labels: Value | None = None
        class_count: Value | None = None
        if layout.labels is not None:
            labels = self._vector("labels").to(INT64)
            scores = self._of_used_rows(self._probabilities(self._vector("scores")))
            if layout.background == "first":
                labels = labels - np.array(1)
        else:
            scores = self._class_scores()
            class_count = op.Gather(op.Shape(scores), np.array(2))
            if not layout.multi_label:
                labels = op.ArgMax(self._class_order(scores), axis=2, keepdims=0)
                scores = op.reduce("ReduceMax", scores, 2)
            else:
                scores = op.Transpose(scores, perm=[0, 2, 1])  # (N, classes, boxes), as NonMaxSuppression takes them
        if layout.iou_threshold is None:
            kept = scores
        elif layout.angle is None:
            kept = self._suppressed(boxes, scores, labels, class_count)
        else:
            assert labels is not None
            kept = self._suppressed_rotated(boxes, scores, labels)
        number = op.Gather(op.Shape(boxes), [1])
        if labels is None:
            kept = op.Reshape(kept, [0, -1])
        count = op.Gather(op.Shape(kept), [1])  # with multi_label, of pairs of a box and a class
        limit = op.Min(count.to(FLOAT), np.array([layout.max_detections], np.float32)).to(INT64)  # of opset 11: floats
        best, indices = op.TopK(kept, limit, axis=1, outputs=2)
        if labels is None:
            chosen, indices = indices / number, op.Mod(indices, number)
        else:
            chosen = op.GatherElements(labels, indices, axis=1)
        dets = op.Concat(self._rows(boxes, indices), op.Reshape(best, [0, -1, 1]), axis=2)
        is_used = best > np.float32(layout.score_threshold)
        results = {DETS.name: dets, LABELS.name: op.Where(is_used, chosen, np.array(-1))}
        if layout.keypoints is not None:
            results[KEYPOINTS.name] = self._keypoints(indices)
        if layout.masks is not None:
            results[MASKS.name] = self._masks(indices) if layout.prototypes is None else self._products(indices)
        return results

    def _rows(self, values: Value, indices: Value) -> Value:
        """Return the rows of values (N, boxes, columns) with indices (N, K)."""
        op = self.op
        index = op.Reshape(indices, [0, -1, 1])
        columns = op.Concat([1, 1], op.Gather(op.Shape(values), [2]), axis=0)
        return op.GatherElements(values, op.Expand(index, columns), axis=1)

    def _keypoints(self, indices: Value) -> Value:
        """Return x, y and score of the keypoints (N, K, 3 P) of the boxes with indices."""
        columns = self.layout.columns("keypoints")
        tensor = self._known("keypoints", columns)
        value, rank = self._batch_of(tensor)
        if rank == 4 and columns == (columns.output, 0, None):  # of keypoints, and x, y and score of each
            points, end = self.op.Reshape(value, [0, 0, -1]), (tensor.shape or ())[-1]
        else:
            points, size = self._matrix("keypoints"), (tensor.shape or ())[1 if self.layout.columns_first else -1]
            end = size if columns.end is None else columns.end
        if end is not None and (end - columns.first) % self.layout.keypoint_columns:
            raise ValueError(
                f"adopt: keypoints must be {self.layout.keypoint_columns} columns for each, got "
                f"{self.layout.keypoints!r}, which is {end - columns.first}"
            )
        op, points = self.op, self._rows(points, indices)
        if self.layout.keypoint_columns == 3:
            return points
        pairs = op.Reshape(points, [0, 0, -1, 2])
        ones = op.Slice(pairs, [0], [1], [3]) * np.float32(0) + np.float32(1)
        return op.Reshape(op.Concat(pairs, ones, axis=3), [0, 0, -1])

    def _products(self, indices: Value) -> Value:
        """Return the sums (N, K, h, w) of the prototypes, with coefficients as factors, of the boxes with indices."""
        op, prototypes = self.op, self._maps("prototypes")
        flat = op.Reshape(prototypes, [0, 0, -1])
        products = op.MatMul(self._rows(self._matrix("masks"), indices), flat)
        return op.Reshape(products, op.Concat([0, 0], op.Gather(op.Shape(prototypes), [2, 3]), axis=0))

    def _masks(self, indices: Value) -> Value:
        """Return the masks (N, K, h, w) of the boxes with indices."""
        op, masks = self.op, self._maps("masks")
        batch, number, height, width = (op.Gather(op.Shape(masks), [axis]) for axis in range(4))
        firsts = op.Range(np.array(0), op.Squeeze(batch), np.array(1))
        flat = op.Reshape(masks, op.Concat([-1], height, width, axis=0))
        return op.Gather(flat, indices + op.Reshape(firsts, [-1, 1]) * number, axis=0)

    def _maps(self, entry: str) -> Value:
        """Return an output (N, maps, h, w), which may have a further dimension of 1 before the height."""
        columns = self.layout.columns(entry)
        value, rank = self._batch_of(self._known(entry, columns))
        if rank == 5:
            return self.op.Reshape(value, self.op.Gather(self.op.Shape(value), [0, 1, 3, 4]))
        if rank != 4 or columns != (columns.output, 0, None):
            raise ValueError(
                f"adopt: {entry} must be a whole output with a map for each box, or with prototypes of masks, got "
                f"{getattr(self.layout, entry)!r} with {rank} dimensions"
            )
        return value

    def _suppressed(self, boxes: Value, scores: Value, labels: Value | None, class_count: Value | None) -> Value:
        """Return the scores (N, boxes), or (N, classes, boxes) without labels, with 0 for suppressed boxes."""
        op, layout = self.op, self.layout
        by_class = scores
        if labels is not None:
            by_class = op.Reshape(scores, [0, 1, -1])
            if not layout.class_agnostic:
                classes = self._class_numbers(class_count)
                is_class = op.Equal(op.Reshape(labels, [0, 1, -1]), classes)
                by_class = op.Where(is_class, by_class, np.float32(0))
        thresholds = (np.array([value], np.float32) for value in (layout.iou_threshold, layout.score_threshold))
        kept = op.NonMaxSuppression(boxes, by_class, [layout.max_detections], *thresholds)
        if labels is not None:
            kept = op.Gather(kept, [0, 2], axis=1)
        return op.ScatterND(op.ConstantOfShape(op.Shape(scores)), kept, op.GatherND(scores, kept))

    def _suppressed_rotated(self, boxes: Value, scores: Value, labels: Value) -> Value:
        """Return the scores (N, boxes) with 0 for rotated boxes that a better one of their class overlaps."""
        op, layout = self.op, self.layout
        above = op.Shape(op.NonZero(scores > np.float32(layout.score_threshold)))
        number = op.Min(
            op.Gather(op.Shape(boxes), [1]).to(FLOAT),
            op.Max(op.Gather(above, [1]).to(FLOAT), np.array([1], np.float32)),  # OpenVINO's TopK refuses 0
            np.array([MAX_ROTATED], np.float32),
        ).to(INT64)
        best, indices = op.TopK(scores, number, axis=1, outputs=2)
        gaussians = self._gaussians(self._rows(boxes, indices))
        classes = op.GatherElements(labels, indices, axis=1)
        ranks = op.Range(np.array(0), op.Squeeze(number), np.array(1))

        def suppressed_by_chunk(op: FunctionBuilder, index: Value) -> Value:
            """Return which boxes one of a chunk of better ones overlaps, (N, boxes)."""
            begin = op.Reshape(index * np.array(_CHUNK), [1])
            end = begin + np.array(_CHUNK)
            better = [op.Slice(column, begin, end, [1]) for column in gaussians]
            overlaps = _probabilistic_iou(op, better, gaussians) > np.float32(layout.iou_threshold)
            suppresses = overlaps & (op.Reshape(op.Slice(ranks, begin, end, [0]), [-1, 1]) < Value(op, ranks.handle))
            if not layout.class_agnostic:
                of_better = op.Reshape(op.Slice(classes, begin, end, [1]), [0, -1, 1])
                suppresses = suppresses & op.Equal(of_better, op.Reshape(classes, [0, 1, -1]))
            return op.reduce("ReduceMax", suppresses.to(FLOAT), 1)

        count = (number + np.array(_CHUNK - 1)) / np.array(_CHUNK)
        by_chunk = op.stack(count, suppressed_by_chunk, (FLOAT, [None, None]))
        is_suppressed = op.reduce("ReduceMax", by_chunk, 0) > np.float32(0)
        kept = op.Where(is_suppressed, np.float32(0), best)
        return op.ScatterElements(op.ConstantOfShape(op.Shape(scores)), indices, kept, axis=1)

    def _gaussians(self, boxes: Value) -> tuple[Value, ...]:
        """Return means and covariances x, y, xx, yy, xy (N, K, 1) of the normal distributions that boxes stand for."""
        op = self.op
        x, y, width, height, angle = (op.Slice(boxes, [column], [column + 1], [2]) for column in range(5))
        twelfth = np.float32(1 / 12)
        a, b, cos, sin = width * width * twelfth, height * height * twelfth, op.Cos(angle), op.Sin(angle)
        return x, y, a * cos * cos + b * sin * sin, a * sin * sin + b * cos * cos, (a - b) * cos * sin

    def _class_numbers(self, count: Value | None) -> Value:
        """Return 0, 1, ... for each class, (classes, 1)."""
        op = self.op
        if count is not None:
            return op.Reshape(op.Range(np.array(0), count, np.array(1)), [-1, 1])
        if self.layout.classes is None:
            raise ValueError("adopt: suppression within the classes of labels needs classes, or class_agnostic")
        return op.value(np.arange(len(self.layout.classes))[:, None])

    def _boxes(self) -> Value:
        """Return x1, y1, x2, y2 in pixels of the input, (N, boxes, 4), or rotated boxes as they are, (N, boxes, 5)."""
        op, layout = self.op, self.layout
        if layout.box_format == "ltrb":
            return self._boxes_around_cells()
        boxes = self._matrix("boxes", 4)
        if layout.angle is not None:
            return op.Concat(boxes, self._matrix("angle", 1), axis=2)
        first, second = (op.Slice(boxes, [begin], [begin + 2], [2]) for begin in (0, 2))
        if layout.strides is not None:
            cells, strides = self._grid()
            first, second = (first + cells) * strides, op.Exp(second) * strides
        if layout.box_format == "cxcywh":
            half = second * np.float32(0.5)
            first, second = first - half, first + half
        elif layout.box_format == "xywh":
            second = first + second
        elif layout.box_format == "yxyx":
            first, second = (op.Gather(corner, [1, 0], axis=2) for corner in (first, second))
        corners = op.Concat(first, second, axis=2)
        if layout.box_unit == "original":
            assert self.image_sizes is not None
            assert self.image_sizes.scale is not None
            return corners * op.Reshape(op.Gather(self.image_sizes.scale, [1, 0, 1, 0], axis=1), [-1, 1, 4])
        if layout.box_unit == "relative" and self.image_sizes is None:
            corners = corners * op.Gather(op.Shape(self.image), [3, 2, 3, 2]).to(FLOAT)
        elif layout.box_unit == "relative":  # to the image, whose size the network sees, not to the padded input
            assert self.image_sizes is not None
            resized = op.Gather(self.image_sizes.resized, [1, 0, 1, 0], axis=1).to(FLOAT)
            corners = corners * op.Reshape(resized, [-1, 1, 4])
        return corners

    def _boxes_around_cells(self) -> Value:
        """Return x1, y1, x2, y2 of boxes whose sides have a distance from the middle of a cell, (N, boxes, 4)."""
        op, (cells, strides) = self.op, self._grid()
        distances = self._matrix("boxes")
        width = self._width("boxes")
        if width is None or width % 4 or not width:
            raise ValueError(f"adopt: boxes must be a multiple of 4 columns with box_format ltrb, got {width}")
        if width > 4:
            values = np.arange(width // 4, dtype=np.float32)
            probabilities = op.Softmax(op.Reshape(distances, [0, -1, 4, len(values)]), axis=3)
            distances = op.Reshape(op.MatMul(probabilities, values[:, None]), [0, -1, 4])
        before, after = (op.Slice(distances, [begin], [begin + 2], [2]) for begin in (0, 2))
        middles = cells + np.float32(0.5)
        return op.Concat(op.Sub(middles, before) * strides, (after + middles) * strides, axis=2)

    def _grid(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return column and row of each cell, (1, boxes, 2), and its stride, (1, boxes, 1)."""
        assert self.layout.strides is not None
        if self.fixed_size is None:
            raise ValueError("adopt: strides need an input of fixed height and width")
        cells, strides = [], []
        for stride in self.layout.strides:
            rows, columns = (-(-side // stride) for side in self.fixed_size)
            cells.append(np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=2).reshape(-1, 2))
            strides.append(np.full((len(cells[-1]), 1), stride))
        return np.concatenate(cells)[None].astype(np.float32), np.concatenate(strides)[None].astype(np.float32)

    def _class_scores(self) -> Value:
        """Return the probability of each box and class, without the background, (N, boxes, classes)."""
        op, layout = self.op, self.layout
        matrix, width = self._matrix("scores"), self._width("scores")
        count = None if width is None else width - (layout.background != "none")
        if count is not None and layout.classes is not None and len(layout.classes) != count:
            advice = "" if layout.columns_first else "; columns_first may be true, and background is no class"
            raise ValueError(
                f"adopt: classes must have a name for each of the {count} classes that scores has, got "
                f"{len(layout.classes)}{advice}"
            )
        scores = self._without_background(self._probabilities(matrix))
        if layout.objectness is not None:
            scores = scores * op.Reshape(self._probabilities(self._vector("objectness")), [0, -1, 1])
        return self._of_used_rows(scores)

    def _class_order(self, scores: Value) -> Value:
        """Return the values by which the best class is chosen: logits, as the sigmoids of large ones are all 1."""
        return self._without_background(self._matrix("scores")) if self.layout.activation == "sigmoid" else scores

    def _without_background(self, values: Value) -> Value:
        """Return the columns of classes that are objects."""
        if self.layout.background == "none":
            return values
        begin, end = (1, END) if self.layout.background == "first" else (0, -1)
        return self.op.Slice(values, [begin], [end], [2])

    def _of_used_rows(self, scores: Value) -> Value:
        """Return scores (N, boxes, ...), with 0 in rows that are not of an image."""
        op, layout = self.op, self.layout
        if layout.batch_index is None and layout.row_counts is None:
            return scores
        images = op.Slice(op.Shape(self.image), [0], [1], [0])
        if layout.batch_index is not None:
            numbers = op.Reshape(op.Range(np.array(0), op.Squeeze(images), np.array(1)), [-1, 1])
            is_used = op.Equal(self._vector("batch_index").to(INT64), numbers)
        else:
            counts = self._row_counts()
            rows = op.Range(np.array(0), op.Gather(op.Shape(scores), np.array(1)), np.array(1))
            ends = op.CumSum(counts, np.array(0)) if self.is_flat else counts
            is_used = rows < ends
            if self.is_flat:
                is_used = is_used & ~(rows < ends - counts)
        if layout.labels is None:
            is_used = op.Reshape(is_used, op.Concat(op.Shape(is_used), [1], axis=0))
        return op.Where(is_used, scores, np.float32(0))

    def _row_counts(self) -> Value:
        """Return how many rows each image has, (N, 1)."""
        columns = self.layout.columns("row_counts")
        self._known("row_counts", columns)
        return self.op.Reshape(self.tensors[columns.output].to(INT64), [-1, 1])

    def _probabilities(self, values: Value) -> Value:
        """Return scores after the activation."""
        op = self.op
        if self.layout.activation == "softmax":
            return op.Softmax(values, axis=2)
        return op.Sigmoid(values) if self.layout.activation == "sigmoid" else values

    def _known(self, entry: str, columns: Columns) -> Tensor:
        """Return the output that has the columns of an entry."""
        if columns.output not in self.outputs:
            raise ValueError(
                f"adopt: {entry} must name an output, {', '.join(self.outputs)}, got {columns.output[:80]!r}"
            )
        return self.outputs[columns.output]

    def _batch_of(self, tensor: Tensor) -> tuple[Value, int]:
        """Return an output as float32, with a batch, and the number of its dimensions."""
        value, rank = self.tensors[tensor.name], len(tensor.shape or ())
        if tensor.dtype != "float32":
            value = value.to(FLOAT)
        if self.is_flat and rank < 3:
            images = self.op.Slice(self.op.Shape(self.image), [0], [1], [0])
            ones = self.op.value(np.ones(rank, np.int64))
            return self.op.Expand(self._with_batch(value), self.op.Concat(images, ones, axis=0)), rank + 1
        return (self._with_batch(value), rank + 1) if self.is_single else (value, rank)

    def _matrix(self, entry: str, count: int | None = None) -> Value:
        """Return the columns that an entry names, (N, boxes, columns), of which there must be `count`."""
        parts = [self._part(entry, columns, count) for columns in self.layout.parts(entry)]
        return parts[0] if len(parts) == 1 else self.op.Concat(*parts, axis=1)

    def _part(self, entry: str, columns: Columns, count: int | None) -> Value:
        """Return the columns that an entry names in one output."""
        op, tensor = self.op, self._known(entry, columns)
        value, rank = self._batch_of(tensor)
        if rank == 2 and columns == (columns.output, 0, None):
            value, rank = op.Reshape(value, [0, -1, 1]), 3
        if rank != 3:
            raise ValueError(
                f"adopt: {entry} must be an output with a row for each box, got {columns.output} with {rank} dimensions"
            )
        self._check_columns(entry, columns, count, tensor)
        if self.layout.columns_first:
            value = op.Transpose(value, perm=[0, 2, 1])
        if columns.first == 0 and columns.end is None:
            return value
        return op.Slice(value, [columns.first], [END if columns.end is None else columns.end], [2])

    def _width(self, entry: str) -> int | None:
        """Return how many columns an entry names in each of its outputs; None if the file does not state it."""
        columns = self.layout.parts(entry)[0]
        sizes = self.outputs[columns.output].shape or (None,)
        end = columns.end or sizes[-2 if self.layout.columns_first else -1]
        return None if end is None else end - columns.first

    def _check_columns(self, entry: str, columns: Columns, count: int | None, tensor: Tensor) -> None:
        """Refuse columns that the rows of an output do not have, or more or fewer than `count`."""
        text, (_, first, end) = getattr(self.layout, entry), columns
        sizes = tensor.shape or ()
        axis = -2 if self.layout.columns_first else -1
        width = sizes[axis] if len(sizes) == (2 if self.is_single or self.is_flat else 3) else 1
        if width is not None and max(first + 1, end or 0) > width:
            raise ValueError(f"adopt: {entry} must be among the {width} columns of {tensor.name}, got {text[:80]!r}")
        end = width if end is None else end
        if count is not None and end is not None and end - first != count:
            required = "1 column" if count == 1 else f"{count} columns"
            raise ValueError(f"adopt: {entry} must be {required}, got {text[:80]!r}, which is {end - first}")

    def _with_batch(self, value: Value) -> Value:
        """Return a result for one image as a batch of one; Reshape would take 0 boxes for a size to keep."""
        if self.op.opset < 13:
            return self.op.node("Unsqueeze", value, axes=[0])
        return self.op.node("Unsqueeze", value, [0])

    def _vector(self, entry: str) -> Value:
        """Return the only column that an entry names, (N, boxes)."""
        return self.op.Reshape(self._matrix(entry, 1), [0, -1])


def _probabilistic_iou(op: FunctionBuilder, first: Sequence[Value], second: Sequence[Value]) -> Value:
    """Return ultralytics' similarity (N, K, L) of normal distributions (N, K, 1) and (N, L, 1), of `_gaussians`.

    It is 1 less the Hellinger distance (arXiv 2106.06072).
    """
    tiny = np.float32(1e-7)
    x1, y1, a1, b1, c1 = first
    x2, y2, a2, b2, c2 = (op.Transpose(column, perm=[0, 2, 1]) for column in second)
    a, b, c, right, down = a1 + a2, b1 + b2, c1 + c2, x2 - x1, y1 - y2
    determinant = a * b - c * c
    distance = (a * down * down + b * right * right) / (determinant + tiny) * np.float32(0.25)
    distance = distance + c * right * down / (determinant + tiny) * np.float32(0.5)
    areas = op.Relu(a1 * b1 - c1 * c1) * op.Relu(a2 * b2 - c2 * c2)
    ratio = determinant / (op.Sqrt(areas) * np.float32(4) + tiny) + tiny
    distance = op.Clip(distance + op.Log(ratio) * np.float32(0.5), tiny, np.float32(100))
    return np.float32(1) - op.Sqrt(np.float32(1 + 1e-7) - op.Exp(-distance))
