"""How logits become the scores of classes, which a config specifies by its loss.

Source: MMDetection's ``CrossEntropyLoss``, ``CrossEntropyCustomLoss``, ``FocalLoss`` and ``SeesawLoss`` (J. Wang et
al., "Seesaw Loss for Long-Tailed Instance Segmentation", CVPR 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.configs.schema import Config
from mmort.detect.entries import Schema, only, training_only
from mmort.detect.parts.selection import Activation

_TRAINING = training_only(
    "avg_non_ignore",
    "bg_cls_weight",
    "class_weight",
    "eps",
    "ignore_index",
    "loss_weight",
    "p",
    "q",
    "reduction",
    "return_dict",
)


@dataclass(frozen=True, kw_only=True)
class DenseLoss(Schema):
    """The entries of ``loss_cls`` of a dense head: MMDetection's heads read one, whatever the type's default is.

    Its types activate as `use_sigmoid` says; Seesaw Loss and others do it in ways of their own.
    """

    types = (
        *("CrossEntropyLoss", "EQLV2Loss", "FocalCustomLoss", "FocalLoss", "GHMC", "GaussianFocalLoss"),
        *("QualityFocalLoss", "SmoothFocalLoss", "VarifocalLoss"),
    )

    use_sigmoid: bool = False

    ignored: ClassVar = {
        **_TRAINING,
        **training_only("activated", "alpha", "beta", "bins", "gamma"),
        **training_only("iou_weighted", "momentum", "num_classes", "use_mask"),
    }

    @property
    def activation(self) -> Activation:
        """The activation that turns the class maps of the head into probabilities."""
        return "sigmoid" if self.use_sigmoid else "softmax"


@dataclass(frozen=True, kw_only=True)
class SigmoidLoss(DenseLoss):
    """The entries of ``loss_cls`` of a head that has no logit of the background."""

    use_sigmoid: bool = only(True, required=True)


@dataclass(frozen=True, kw_only=True)
class SoftmaxLoss(DenseLoss):
    """The entries of ``loss_cls`` of a head that must have a logit of the background."""

    use_sigmoid: bool = only(False)


WITH_SIGMOID: Config = {"use_sigmoid": True}
"""The default of ``loss_cls`` in MMDetection's dense heads."""


class ClassScores(nn.Module):
    """Scores of classes that exclude each other.

    Attributes
    ----------
    other_logits : int
        The number of logits after those of the classes.
    """

    other_logits: int

    def forward(self, logits: Tensor) -> Tensor:
        """Return scores [..., classes] of logits [..., classes + other_logits]."""
        raise NotImplementedError


class SoftmaxScores(ClassScores):
    """A softmax over the classes and the background."""

    other_logits = 1

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        ignored: ClassVar = {
            **_TRAINING,
            "use_sigmoid": "MMDetection's box heads do not read it either",
            **training_only("use_mask"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()

    def forward(self, logits: Tensor) -> Tensor:
        return logits.softmax(-1)[..., :-1]


class SigmoidScores(ClassScores):
    """A sigmoid of each class, for heads that have no logit of the background."""

    other_logits = 0

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        use_sigmoid: bool = only(True)

        ignored: ClassVar = {
            **_TRAINING,
            **training_only("activated", "alpha", "beta", "gamma"),
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid()


class CustomScores(ClassScores):
    """A sigmoid of each class, or a softmax over the classes and the background, as the entry says."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        use_sigmoid: bool = False

        ignored: ClassVar = {**_TRAINING, "num_classes": "that of the head", **training_only("use_mask")}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.sigmoid = entries.use_sigmoid
        self.other_logits = 0 if self.sigmoid else 1

    def forward(self, logits: Tensor) -> Tensor:
        return logits.sigmoid() if self.sigmoid else logits.softmax(-1)[..., :-1]


class SeesawScores(ClassScores):
    """A softmax over the classes, times the probability of any object, which has two logits of its own."""

    other_logits = 2

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        num_classes: int = 1203

        ignored: ClassVar = {**_TRAINING, "use_sigmoid": "always false"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.register_buffer("cum_samples", torch.zeros(entries.num_classes + 1))  # not read; checkpoints have it

    def forward(self, logits: Tensor) -> Tensor:
        return logits[..., :-2].softmax(-1) * logits[..., -2:].softmax(-1)[..., :1]
