"""Choices between nearly equal scores, overlaps and numbers: torch makes those that were made elsewhere.

What a detector chooses on the way, the best cells, the pairs above a threshold, the boxes that suppression leaves,
the pixels that a query attends to, the smallest of the rectangles around some points, decides which boxes and queries
exist after it, and what they are.  Among thousands of candidates some are so near to each other, or to a threshold,
that rounding decides, and ONNX Runtime rounds otherwise than torch.  A choice of the file is followed if torch's own
numbers allow it, within rounding; they are torch's numbers that go on, and all else must be equal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import mmort
from mmort.onnx.graph import files
from mmort.onnx.verify.inner_tensors import run_tensors
from mmort.onnx.verify.operator_calls import Intercepted, arguments_by_name
from mmort.onnx.verify.ties import MAX_ROUNDING, Pairs, boxes_of, kept_scores

MAX_DECAYED = 1e-5
"""`MAX_ROUNDING` of scores that soft-NMS decays: those of a crowd are nearly all 1, and none of them leaves it."""

MAX_BLOCK = 256
"""Rotated boxes that are compared with their neighbours together: an image may have a hundred thousand."""

CHOICES = {
    "TopK": (1,),
    "FilterScores": (0,),
    "MultiClassNMS": (1, 2),
    "RotatedNonMaxSuppression": (0,),
    "ArgMax": (0,),
    "ArgMin": (0,),
    "Greater": (0,),
    "Less": (0,),
}
"""The nodes that choose, and the outputs that tell what."""

COMPARISONS = "Greater", "Less"
"""Nodes that choose if they compare probabilities of a sigmoid."""

_ANY_NUMBER = "RotatedNonMaxSuppression"
"""The node whose outputs have a row for each choice."""

_OPERATORS = {
    "aten::argmax": "ArgMax",
    "aten::argmin": "ArgMin",
    "aten::gt": "Greater",
    "aten::lt": "Less",
    "aten::topk": "TopK",
    "aten::sort": "TopK",
    "mmort::filter_scores": "FilterScores",
    "mmort::multiclass_nms": "MultiClassNMS",
    "mmort::nms_rotated": "RotatedNonMaxSuppression",
}
"""The nodes that torch's operators are exported as."""

Arguments = Mapping[str, Any]
Choice = tuple[str, Sequence[Tensor]]
"""The kind of a node that chooses, and its outputs that tell what."""

Follow = Callable[[Arguments, Sequence[Tensor], Sequence[Tensor]], Sequence[Tensor]]
"""From arguments, torch's results and the file's to results that follow the file's where the arguments allow it."""


class Replay:
    """Gives operators that choose the results that follow a file's choices, those of a kind in the same order."""

    def __init__(self, choices: Sequence[Choice] = ()) -> None:
        self.made: list[Choice] = []
        """The choices in the results, in the order of the calls."""
        self._choices = {kind: deque(outputs for other, outputs in choices if other == kind) for kind in CHOICES}
        self._probabilities: Any = None  # of the last sigmoid

    def call(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Call an operator."""
        result = func(*args, **kwargs)
        kind = _OPERATORS.get(func._schema.name)
        if func._schema.name == "aten::sigmoid":
            self._probabilities = result
        if kind is None or (kind in COMPARISONS and args[0] is not self._probabilities):
            return result
        results = [result] if isinstance(result, Tensor) else list(result)
        chosen = self._next(kind, results)
        if len(chosen) == len(CHOICES[kind]):  # a file may lack an output that nothing reads
            results = list(_FOLLOW[kind](arguments_by_name(func, args, kwargs), results, chosen))
        self.made.append((kind, [results[index] for index in CHOICES[kind]]))
        return results[0] if isinstance(result, Tensor) else tuple(results)

    def _next(self, kind: str, results: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the file's next choice of a kind, or nothing if it is another operator's.

        A file computes what depends on no input once, or not at all; torch computes it again and again.
        """
        choices = self._choices[kind]
        if not choices:
            return ()
        shapes = [results[index].shape for index in CHOICES[kind]]
        same = all(map(torch.Size.__eq__, shapes, (output.shape for output in choices[0])))
        return choices.popleft() if same or kind == _ANY_NUMBER else ()


class ReplayingModule(nn.Module):
    """A module that chooses as a file does, where rounding decides."""

    def __init__(self, module: nn.Module, draft: Path) -> None:
        super().__init__()
        self.module, self.draft = module, draft
        graph = files.load(draft).graph
        probabilities = {node.output[0] for node in graph.node if node.op_type == "Sigmoid"}
        self.choices = [
            (node.op_type, [name for index, name in enumerate(node.output) if index in CHOICES[node.op_type]])
            for node in graph.node
            if node.op_type in CHOICES and (node.op_type not in COMPARISONS or node.input[0] in probabilities)
        ]
        self._last: tuple[list[NDArray[Any]], list[Choice]] | None = None
        self.outputs = [value.name for value in graph.output]  # kept, so that ONNX Runtime runs the same graph
        self.eval()

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs, also in float64, for the choices that the file makes in float32."""
        replay = Replay(self._choices(args))
        with Intercepted(replay.call):
            outputs: tuple[Tensor, ...] = self.module(*args)
        return outputs

    def _choices(self, args: Sequence[Tensor]) -> list[Choice]:
        """Return what the file chooses for some arguments; those of the last call are remembered."""
        arrays = [tensor.numpy() for tensor in args]
        arrays = [array.astype(np.float32) if array.dtype == np.float64 else array for array in arrays]
        if self._last is None or not all(map(np.array_equal, self._last[0], arrays)):
            names = [name for _, outputs in self.choices for name in outputs]
            tensors = run_tensors(self.draft, [*names, *self.outputs], arrays)
            choices: list[Choice] = [
                (kind, [torch.from_numpy(tensors[name]) for name in outputs if name]) for kind, outputs in self.choices
            ]
            self._last = arrays, choices
        return self._last[1]


def _best(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow the indices of the best scores, or of scores in order, in each row that allows it."""
    scores, (order,) = arguments["self"], chosen
    descending = arguments.get("largest", arguments.get("descending"))
    last = arguments["dim"] in (-1, scores.ndim - 1)
    if not (descending and last and scores.is_floating_point() and order.shape == results[1].shape):
        return results
    allowed = orders_of(scores, order, in_order=arguments.get("sorted", True))
    order = torch.where(allowed[..., None], order, results[1])
    return scores.gather(-1, order), order


def orders_of(scores: Tensor, order: Tensor, *, in_order: bool = True) -> Tensor:
    """Return for which rows indices [..., K] are, but for rounding, those of the best scores [..., P].

    With `in_order` they must be by descending score, too.
    """
    rounding = _rounding(scores)
    scores = scores.clamp(min=-1e6 * rounding - 1)  # -inf minus -inf is no number
    exist = ((order >= 0) & (order < scores.shape[-1])).all(-1)
    order = order.clamp(0, scores.shape[-1] - 1)
    flags = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)
    chosen = scores.gather(-1, order)
    distinct = flags.sum(-1) == order.shape[-1]
    descending = (chosen.diff(dim=-1) <= rounding).all(-1) | (not in_order)
    highest_left = torch.where(flags, -torch.inf, scores).amax(-1)
    return exist & distinct & descending & (highest_left <= chosen.amin(-1) + rounding)


def _passing(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow which scores pass the threshold and are among the best, in each image that allows it."""
    scores, limit, rounding = arguments["scores"], arguments["nms_pre"], _rounding(arguments["scores"])
    if chosen[0].shape != scores.shape:
        return results
    threshold, passing = arguments["score_threshold"], chosen[0] != 0
    passed = torch.where(passing, scores, -torch.inf).flatten(1)
    count = passing.sum((1, 2))
    full = (count >= limit) & (limit > 0)
    lowest = torch.where(passing, scores, torch.inf).amin((1, 2))
    last = passed.topk(limit).values[:, -1] if full.any() else lowest  # equal scores pass beyond the limit
    above = torch.where(passing, -torch.inf, scores).amax((1, 2))
    enough = torch.where(
        full, (above <= lowest + rounding) & (last <= lowest + rounding), above <= threshold + rounding
    )
    allowed = enough & (lowest > threshold - rounding)
    return (torch.where(allowed[:, None, None], torch.where(passing, scores, 0), results[0]),)


def _kept(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow which boxes the suppression keeps, in each image that allows it."""
    if arguments["nms_pre"] > 0 or chosen[0].shape != results[1].shape:
        return results
    dets, labels, indices = (result.clone() for result in results)
    plain = arguments["method"] == "nms"
    scores_of, share = (kept_scores, MAX_ROUNDING) if plain else (_decayed_scores, MAX_DECAYED)
    images = zip(arguments["boxes"], arguments["scores"], *chosen, strict=True)
    for image, (boxes, scores, kept_labels, rows) in enumerate(images):
        used = kept_labels >= 0
        pairs = rows[used].numpy(), kept_labels[used].numpy()
        if not all(((each >= 0) & (each < size)).all() for each, size in zip(pairs, scores.shape, strict=True)):
            continue
        chosen_scores = scores_of(arguments, boxes.numpy(), scores.numpy(), pairs, _rounding(scores, share))
        if chosen_scores is None:
            continue
        dets[image] = 0
        dets[image, used] = torch.cat([boxes_of(boxes, pairs), torch.from_numpy(chosen_scores)[:, None]], 1)
        labels[image], indices[image] = kept_labels, rows
    return dets, labels, indices


def _kept_rotated(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow which rotated boxes the suppression keeps, if all of them allow it."""
    boxes, scores, kept = arguments["dets"].numpy(), arguments["scores"].numpy(), chosen[0].numpy()
    labels = np.zeros(len(boxes), np.int64) if arguments["labels"] is None else arguments["labels"].numpy()
    if not len(kept) or kept.max() >= len(boxes) or len(np.unique(kept)) < len(kept):
        return results
    threshold, clockwise = arguments["iou_threshold"], arguments["clockwise"]
    rounding = _rounding(arguments["scores"])
    if (np.diff(scores[kept]) > rounding).any():
        return results
    order = -np.arange(len(kept), dtype=boxes.dtype)
    apart = mmort.nms_rotated(boxes[kept], order, threshold + MAX_ROUNDING, labels[kept], clockwise).indices
    if len(apart) < len(kept):
        return results
    rejected = np.setdiff1d(np.arange(len(boxes)), kept)
    for first, block in _neighbours(boxes, labels, kept, rejected):
        overlap = mmort.box_iou_rotated(boxes[first], boxes[block], clockwise=clockwise)
        suppressed = (overlap > threshold - MAX_ROUNDING) & (scores[first, None] >= scores[block] - rounding)
        if not suppressed.any(0).all():
            return results
    return chosen


def _neighbours(
    boxes: NDArray[Any], labels: NDArray[np.int64], kept: NDArray[np.int64], rejected: NDArray[np.int64]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """Yield all rejected boxes in blocks, after the kept ones that may overlap them: along x no box is farther away."""
    reach = np.hypot(boxes[:, 2], boxes[:, 3]).max(initial=0)
    for label in np.unique(labels[rejected]):
        keeping, candidates = (
            each[np.argsort(boxes[each, 0], kind="stable")]
            for each in (kept[labels[kept] == label], rejected[labels[rejected] == label])
        )
        for block in np.array_split(candidates, -(-len(candidates) // MAX_BLOCK)):
            first, last = np.searchsorted(boxes[keeping, 0], [boxes[block[0], 0] - reach, boxes[block[-1], 0] + reach])
            yield keeping[first:last], block


def _compared(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow which probabilities are below or above a number, in each row that allows it."""
    if chosen[0].shape != results[0].shape or chosen[0].dtype != results[0].dtype:
        return results
    equal = (arguments["self"] - arguments["other"]).abs() <= MAX_ROUNDING
    allowed = ((chosen[0] == results[0]) | equal).all(-1, keepdim=True)
    return (torch.where(allowed, chosen[0], results[0]),)


def _largest(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow the index of the largest number, in each row that allows it."""
    numbers, dim = arguments["self"], arguments["dim"]
    if dim is None or not numbers.is_floating_point() or chosen[0].shape != results[0].shape:
        return results
    index, other = ((each if arguments["keepdim"] else each.unsqueeze(dim)) for each in (results[0], chosen[0]))
    exists = (other >= 0) & (other < numbers.shape[dim])
    numbers_there = numbers.gather(dim, torch.where(exists, other, index))
    near = numbers_there >= numbers.gather(dim, index) - MAX_ROUNDING * numbers.abs().amax(dim, keepdim=True)
    followed = torch.where(exists & near, other, index)
    return (followed if arguments["keepdim"] else followed.squeeze(dim),)


def _smallest(arguments: Arguments, results: Sequence[Tensor], chosen: Sequence[Tensor]) -> Sequence[Tensor]:
    """Follow the index of the smallest number, in each row that allows it."""
    return _largest({**arguments, "self": -arguments["self"]}, results, chosen)


def _decayed_scores(
    arguments: Arguments, boxes: NDArray[Any], scores: NDArray[Any], pairs: Pairs, rounding: float
) -> NDArray[np.floating] | None:
    """Return the scores that soft-NMS gives pairs of a box and a class in this order, or None if it may not be theirs.

    When a pair is taken, no other has a higher score, after the decay by those that were taken before.
    """
    scores, waiting = scores.copy(), scores > arguments["score_threshold"]
    lowest = -np.inf  # soft-NMS keeps the best pair whatever its score
    decayed = np.zeros(len(pairs[0]), scores.dtype)
    for index, (row, label) in enumerate(zip(*pairs, strict=True)):
        decayed[index] = scores[row, label]
        if not waiting[row, label] or decayed[index] < max(scores[waiting].max(), lowest) - rounding:
            return None
        waiting[row, label], lowest = False, arguments["min_score"]
        competing = slice(None) if arguments["class_agnostic"] else slice(label, label + 1)
        box, rivals = (boxes[row, label], boxes[:, competing]) if boxes.ndim == 3 else (boxes[row], boxes[:, None])
        overlap = mmort.box_iou(box[None], rivals.reshape(-1, 4), offset=arguments["offset"])
        scores[:, competing] *= _decay(arguments, overlap.reshape(rivals.shape[:2]))
    full = len(decayed) == arguments["max_per_image"]  # then those that wait have no higher scores than the last one
    return decayed if full or not (waiting & (scores > lowest + rounding)).any() else None


def _decay(arguments: Arguments, overlap: NDArray[Any]) -> NDArray[Any]:
    """Return the factors of scores of boxes that overlap one with a higher score."""
    if arguments["method"] == "soft_nms_gaussian":
        factors: NDArray[Any] = np.exp(-(overlap**2) / arguments["sigma"])
        return factors
    lowered = 1 - overlap if arguments["method"] == "soft_nms_linear" else 0
    return np.where(overlap >= arguments["iou_threshold"], lowered, 1)


def _rounding(scores: Tensor, share: float = MAX_ROUNDING) -> float:
    """Return the difference up to which scores are equal, by its share of the largest."""
    finite = scores[scores.isfinite()]
    return share * float(finite.abs().max()) if finite.numel() else 0.0


_FOLLOW: dict[str, Follow] = {
    "TopK": _best,
    "FilterScores": _passing,
    "MultiClassNMS": _kept,
    "RotatedNonMaxSuppression": _kept_rotated,
    "ArgMax": _largest,
    "ArgMin": _smallest,
    "Greater": _compared,
    "Less": _compared,
}
