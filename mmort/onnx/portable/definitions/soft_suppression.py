"""Soft suppression in a loop, of many groups of boxes at once: each step takes the best box of each group.

A group is a list of rows x1, y1, x2, y2, area, score, index.  Their order is the kernel's, which decides among equal
scores: the first row moves to the position of the one taken, and a row that leaves is replaced by the last that stays.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from mmort.onnx.graph.builder import BOOL, DOUBLE, END, FLOAT, INT64, Builder, FunctionBuilder, Value
from mmort.onnx.portable.definitions.overlaps import shared_area

MINUS_INFINITY = -math.inf
COLUMNS = 7

Decay = Callable[[Builder, Value], Value]
"""Takes overlaps with the best box and returns the factors of the scores."""


class SoftSuppression(NamedTuple):
    """How much boxes lose by overlapping better ones, from a node's attributes."""

    decay: Decay
    min_score: Value
    offset: Value

    @classmethod
    def of(cls, op: FunctionBuilder, method: int) -> SoftSuppression:
        """Return that of a method of `soft_nms`."""
        min_score, offset = op.number("min_score"), op.integer("offset").to(FLOAT)
        if method == 2:
            sigma = op.number("sigma")
            # Computed in float64 and rounded once, as in the kernel.
            return cls(
                lambda op, overlap: op.Exp((-(overlap * overlap) / sigma).to(DOUBLE)).to(FLOAT), min_score, offset
            )
        threshold = op.number("iou_threshold")

        def decay(op: Builder, overlap: Value) -> Value:
            return op.Where(overlap >= threshold, 1.0 - overlap if method == 1 else 0.0, 1.0)

        return cls(decay, min_score, offset)

    def take(
        self, op: Builder, boxes: Value, scores: Value, present: Value, limit: Value | None = None
    ) -> tuple[Value, Value, Value]:
        """Take those of the boxes (G, n, 4), with scores (G, n), that are present (G, n).

        Returns indices (G, T), lowered scores (G, T), and whether a box was taken (G, T), in the order of taking.  With
        a `limit`, boxes may be missing whose scores are below those of `limit` others of their group.
        """
        rows, count = self._rows(op, boxes, scores, present)
        size = op.Shape(rows, start=1, end=2)
        positions = op.Unsqueeze(op.range(size), [0, 2])
        none = op.value([[[0]]]) * count  # (G, 1, 1): boxes taken so far
        lowest = op.Expand(MINUS_INFINITY, op.Shape(none))  # the score of the last one within the limit
        tensors = [(FLOAT, [None, None, COLUMNS]), (INT64, [None, 1, 1]), (INT64, [1, None, 1])]
        tensors += [(INT64, [None, 1, 1]), (FLOAT, [None, 1, 1])]

        def step(op: Builder, i: Value, go_on: Value, *state: Value) -> tuple[Value, ...]:
            return self._step(op, limit, *state)

        body = op.graph(
            step,
            [(INT64, []), (BOOL, []), *tensors],
            [(BOOL, []), *tensors, (FLOAT, [None]), (BOOL, [None])],
        )
        results = op.Loop(None, True, rows, count, positions, none, lowest, body=body, outputs=7)
        best = op.reshape(results[5], op.size(results[5], 0), op.size(boxes, 0), COLUMNS)
        best = op.Transpose(best, perm=[1, 0, 2])
        return op.Gather(best, 6, axis=2).to(INT64), op.Gather(best, 5, axis=2), op.Transpose(results[6])

    def _rows(self, op: Builder, boxes: Value, scores: Value, present: Value) -> tuple[Value, Value]:
        """Return the rows (G, m, 7) of those present, with one or more to spare, and their counts (G, 1, 1)."""
        scores, there = op.Unsqueeze(scores, [2]), op.Unsqueeze(present, [2]).to(INT64)
        x1, y1, x2, y2 = op.Split(boxes, [1, 1, 1, 1], axis=2, outputs=4)
        area = (x2 - x1 + self.offset) * (y2 - y1 + self.offset)
        indices = op.Unsqueeze(op.range(op.size(scores, 1)), [0, 2])
        numbers = op.Expand(indices.to(FLOAT), op.Shape(scores))
        rows = op.Pad(op.Concat(boxes, area, scores, numbers, axis=2), [0, 0, 0, 0, 2, 0])
        count = op.ReduceSum(there, [1], keepdims=1)
        max_count = op.largest(count, 1)
        ranks = op.Pad(there * (op.size(scores, 1) - indices), [0, 0, 0, 0, 2, 0])
        _, order = op.TopK(ranks, max_count + 1, axis=1, outputs=2)
        return op.GatherND(rows, order, batch_dims=1), count

    def _step(
        self, op: Builder, limit: Value | None, rows: Value, count: Value, positions: Value, taken: Value, lowest: Value
    ) -> tuple[Value, ...]:
        """Take the best row of each group, and lower the scores of the others."""
        scores = op.slice(rows, 5, 6, 2)
        usable = (positions < count) & (scores >= MINUS_INFINITY)  # NaN is not
        best = op.ArgMax(op.Where(usable, scores, MINUS_INFINITY), axis=1, keepdims=1)
        best = op.Where(op.IsNaN(op.slice(scores, 0, 1, 1)), [[[0]]], best)  # except at the first position
        present = count > 0
        row = op.GatherND(rows, best, batch_dims=1)
        moved = op.Slice(op.Where(op.Equal(positions, best), [[[0]]], positions), [1], [END], [1])
        rows = op.GatherND(rows, moved, batch_dims=1)
        positions, count = op.Slice(positions, [0], [-1], [1]), count - 1
        lowered = op.slice(rows, 5, 6, 2) * self.decay(op, self._overlap(op, row, rows))

        there = positions < count
        leave = there & (lowered < self.min_score)
        stay = there & ~leave
        count = op.ReduceSum(stay.to(INT64), [1], keepdims=1)
        front = positions < count
        holes, fillers = (leave & front).to(INT64), (stay & ~front).to(INT64)
        # Holes are numbered from the front and fillers from the end; 0 is what is neither.
        hole = op.CumSum(holes, 1) * holes
        filler = op.CumSum(fillers, 1, reverse=1) * fillers
        everywhere = op.Expand(positions, op.Shape(filler))
        sources = op.ScatterElements(op.Pad(everywhere, [0, 0, 0, 0, 1, 0]), filler, everywhere, axis=1)
        order = op.Where(hole > 0, op.GatherND(sources, hole, batch_dims=1), positions)
        rows = op.Concat(op.slice(rows, 0, 5, 2), lowered, op.slice(rows, 6, 7, 2), axis=2)
        rows = op.GatherND(rows, order, batch_dims=1)

        score = op.slice(row, 5, 6, 2)
        more = count > 0
        if limit is not None:
            counted = present & (score >= self.min_score)
            taken = taken + counted.to(INT64)
            lowest = op.Where(counted & op.Equal(taken, limit), score, lowest)
            more = more & ~(score < lowest)  # those of an equal score may come before it in the end
        any_left = op.Squeeze(op.largest(more.to(INT64), 0) > 0, [0])
        flat = op.Reshape(row, [-1]), op.Reshape(present, [-1])  # onnx.reference stacks lists only
        return any_left, rows, count, positions, taken, lowest, *flat

    def _overlap(self, op: Builder, row: Value, rows: Value) -> Value:
        """Return the overlaps (G, m, 1) of rows with one of their group, in the kernel's order of operations."""
        ones = [1] * COLUMNS
        *corners_a, area_a, _, _ = op.Split(row, ones, axis=2, outputs=COLUMNS)
        *corners_b, area_b, _, _ = op.Split(rows, ones, axis=2, outputs=COLUMNS)
        shared = shared_area(op, corners_a, corners_b, self.offset)
        return shared / (area_a + area_b - shared)
