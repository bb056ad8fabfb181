"""What detectors with queries share: boxes relative to references, and detections from the scores of the queries."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.detector import Detector
from mmort.detect.parts.boxes import clip, image_limits
from mmort.detect.parts.selection import take_rows


class QueryDetector(Detector):
    """Base of detectors whose raw outputs are the logits and the box of each query."""

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of class logits and boxes."""
        return "cls_score", "bbox_pred"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return class logits [N, Q, C] and boxes (x, y of the middle, w, h) in 0 ... 1."""
        return self._raw(input, image_limits(input, None))

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return what `raw` does, for images that end at `limits`, [N, 1, 4]."""
        raise NotImplementedError


class MLP(nn.Module):
    """Fully connected layers with ReLU between them, of `sizes` channels."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        last: Tensor = self.layers[-1](x)
        return last


def logit(x: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the inverse of the sigmoid, for values that are moved into `eps` ... 1 - `eps`, almost."""
    x = x.clamp(0, 1)
    return torch.log(x.clamp(min=eps) / (1 - x).clamp(min=eps))


def moved(references: Tensor, deltas: Tensor, eps: float = 1e-5) -> Tensor:
    """Return boxes [N, Q, 4] relative to references: boxes [N, Q, 4], or points [N, Q, 2], which have no size."""
    return (deltas + functional.pad(logit(references, eps), (0, 4 - references.shape[2]))).sigmoid()


def corners(boxes: Tensor) -> Tensor:
    """Turn boxes [..., 4] of centre and size into corners."""
    middle, size = boxes.chunk(2, -1)
    return torch.cat([middle - size / 2, middle + size / 2], -1)


def best_pairs_of_queries(logits: Tensor, boxes: Tensor, limits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the detections of the best pairs of query and class; a query may give several.

    Parameters
    ----------
    logits : Tensor, [N, Q, C]
    boxes : Tensor, [N, Q, 4]
        Centre and size, from 0 to 1 over the image.
    limits : Tensor, [N, 1, 4]
        The size of each image.
    count : int
        Maximum number of pairs.

    Returns
    -------
    dets, labels : Tensor, [N, K, 5], [N, K]
        As a detector returns them.
    """
    classes = logits.shape[2]
    scores, pairs = logits.sigmoid().flatten(1).topk(min(count, logits.shape[1] * classes))
    found = clip(corners(take_rows(boxes, pairs // classes)) * limits, limits)
    return torch.cat([found, scores[..., None]], 2), pairs % classes
