"""Parts of detectors with queries: boxes relative to references, and detections from the scores of the queries."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.configs.schema import Config
from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import Schema, at_least, nested, part, read_entries, training_only
from mmort.detect.parts.boxes import clip, image_limits
from mmort.detect.parts.heads.class_scores import ClassScores, CustomScores, SigmoidScores
from mmort.detect.parts.positions import SinePositionalEncoding
from mmort.detect.parts.selection import take_rows
from mmort.detect.parts.transformer import DecoderEntries, EncoderEntries


@dataclass(frozen=True, kw_only=True)
class QueryHeadEntries(Schema):
    """The entries of ``bbox_head`` that its kinds share."""

    ignored: ClassVar = training_only("sync_cls_avg_factor")

    num_classes: int = at_least(1)
    embed_dims: int | None = None
    num_reg_fcs: int = at_least(0, default=2)
    loss_cls: ClassScores = part(
        "loss_cls",
        types={"CrossEntropyLoss": CustomScores, "FocalLoss": SigmoidScores, "QualityFocalLoss": SigmoidScores},
        default={"type": "CrossEntropyLoss"},
    )


@dataclass(frozen=True, kw_only=True)
class HeadWithTransformer(Schema):
    """The entries of a head that MMDetection 3's detectors have elsewhere in the model."""

    def model(self) -> Config:
        """Return the same as these detectors have it."""
        raise NotImplementedError

    @classmethod
    def of_model(cls, name: str, head: Config) -> Config:
        """Return the entries of ``model`` that are in a head of this name, and its others as ``bbox_head``."""
        names = {*cls.__dataclass_fields__, *cls.ignored}
        entries = read_entries(name, cls, {key: head[key] for key in head if key in {*names, "type"}})
        return {**entries.model(), "bbox_head": {key: head[key] for key in head if key not in names}}


@dataclass(frozen=True, kw_only=True)
class QueryTestCfg(Schema):
    """The entries of ``test_cfg``."""

    max_per_img: int | None = at_least(1, default=None)  # by default the number of queries


@dataclass(frozen=True, kw_only=True)
class QueryModelEntries(ModelEntries):
    """The entries of ``model`` that all such detectors have."""

    head_with_transformer: ClassVar[type[HeadWithTransformer] | None] = None

    num_queries: int = at_least(1, default=100)
    encoder: EncoderEntries = nested(EncoderEntries, "encoder")
    decoder: DecoderEntries = nested(DecoderEntries, "decoder")
    positional_encoding: SinePositionalEncoding.Entries = nested(SinePositionalEncoding.Entries, "positional_encoding")
    bbox_head: QueryHeadEntries = nested(QueryHeadEntries, "bbox_head")

    @classmethod
    def respelled(cls, name: str, config: Config) -> Config:
        """Rename ``num_query``, and take the transformer out of the head, as they were before MMDetection 3.0."""
        if "num_query" in config and "num_queries" not in config:
            config = {"num_queries" if key == "num_query" else key: value for key, value in config.items()}
        head, schema = config.get("bbox_head"), cls.head_with_transformer
        if schema is None or not isinstance(head, dict) or "transformer" not in head:
            return config
        return {**config, **schema.of_model("bbox_head", head)}

    def check(self, name: str) -> None:
        """Raise a ValueError if not all parts have the encoder's channels."""
        dims = self.encoder.embed_dims
        numbers = {
            "embed_dims of decoder": self.decoder.embed_dims,
            "embed_dims of bbox_head": self.bbox_head.embed_dims or dims,
            "2 * num_feats of positional_encoding": 2 * self.positional_encoding.num_feats,
        }
        for entry, number in numbers.items():
            if number != dims:
                raise ValueError(f"detect.build: {entry} must be embed_dims of encoder, {dims}, got {number}")


class QueryDetector(Detector):
    """Base of detectors whose raw outputs are the logits and the box of each query."""

    TestCfg: ClassVar[type[Schema]] = QueryTestCfg
    scores: ClassScores
    max_per_image: int

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of class logits and boxes."""
        return "cls_score", "bbox_pred"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return class logits [N, Q, C] and boxes (x, y of the middle, w, h) in 0 ... 1."""
        return self._raw(input, image_limits(input, None))

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        limits = image_limits(input, img_shape)  # [N, 1, 4]
        return self.detections(*self._raw(input, limits), limits)

    def _raw(self, input: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the result of `raw` for images that end at `limits`, [N, 1, 4]."""
        raise NotImplementedError

    def detections(self, logits: Tensor, boxes: Tensor, limits: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best detections: pairs of query and class, or queries if the classes exclude each other."""
        return self.best(logits, boxes, limits, self.max_per_image)

    def best(self, logits: Tensor, boxes: Tensor, limits: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return so many of them at most."""
        best = best_queries if self.scores.other_logits else best_pairs_of_queries
        return best(logits, boxes, limits, count)


class MLP(nn.Module):
    """Fully connected layers with ReLU between them, of `sizes` channels."""

    def __init__(self, *sizes: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(inner, outer) for inner, outer in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


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


def best_queries(logits: Tensor, boxes: Tensor, limits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the detections of the best queries, each of its best class; see `best_pairs_of_queries`.

    `logits` [N, Q, C + 1] have the background last.
    """
    scores, labels = logits.softmax(2)[..., :-1].max(2)  # [N, Q]
    scores, queries = scores.topk(min(count, logits.shape[1]))  # [N, K]
    edges = clip(corners(take_rows(boxes, queries)) * limits, limits)
    return torch.cat([edges, scores[..., None]], 2), labels.gather(1, queries)


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
    return best_pairs(logits.sigmoid(), boxes, limits, count)


def best_pairs(scores: Tensor, boxes: Tensor, limits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the result of `best_pairs_of_queries` for scores [N, Q, C] instead of logits."""
    classes = scores.shape[2]
    scores, pairs = scores.flatten(1).topk(min(count, scores.shape[1] * classes))
    queries = pairs // classes
    edges = clip(corners(take_rows(boxes, queries)) * limits, limits)
    labels = pairs - queries * classes  # torch's exporter has no % of a number that varies
    return torch.cat([edges, scores[..., None]], 2), labels
