"""Comparison of a detector whose queries depend on ranks: torch takes the file's order of equal scores.

Hundreds of cells compete with scores that rounding can exchange, and a cell's rank decides what its query holds.  So
torch and ONNX Runtime order some of them differently in most images, and the detections of these queries differ.  The
order that the file has chosen is followed if it is one of torch's scores, within rounding; all else must be equal.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.detect.export.heads import run_tensors
from mmort.onnx import files

MAX_ROUNDING = 1e-4
"""Difference, as a share of the largest score, up to which scores are equal; that of DINO's is about 5e-6."""


class Following(nn.Module):
    """A module whose detector ranks as a file does, where scores are equal."""

    def __init__(self, module: nn.Module, detector: Detector, draft: Path) -> None:
        super().__init__()
        self.module, self.detector, self.draft = module, detector, draft
        graph = files.load(draft).graph
        self.ranks = next(node.output[1] for node in graph.node if node.op_type == "TopK")  # the last has detections
        self.outputs = [value.name for value in graph.output]  # kept, so that ONNX Runtime runs the same graph
        self.eval()

    def forward(self, *args: Tensor) -> tuple[Tensor, ...]:
        """Return the module's outputs."""
        order = torch.from_numpy(run_tensors(self.draft, [self.ranks, *self.outputs], args)[self.ranks])

        def ranked(scores: Tensor) -> Tensor:
            return order if is_order_of(scores, order) else type(self.detector).ranked(self.detector, scores)

        self.detector.ranked = ranked  # type: ignore[method-assign]
        try:
            outputs: tuple[Tensor, ...] = self.module(*args)
        finally:
            del self.detector.ranked
        return outputs


def is_order_of(scores: Tensor, order: Tensor) -> bool:
    """Return whether indices [N, K] are those of the best scores [N, P], by descending score but for rounding."""
    rounding = MAX_ROUNDING * scores.abs().max()
    flags = torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, True)
    if int(flags.sum()) != order.numel():  # some index occurs twice
        return False
    chosen = scores.gather(1, order)
    descending = (chosen.diff() <= rounding).all()
    best = (torch.where(flags, -torch.inf, scores).amax(1) <= chosen.amin(1) + rounding).all()
    return bool(descending & best)
