"""What of an original a file is, for each task: its cut, the outputs, and how the original goes on after them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.contract import CLASSIFICATION, SEGMENTATION, SegmentationFormat, Task
from mmort.contract.tasks import LOGITS, SCORES
from mmort.original.building import Original
from mmort.original.cut import arguments_at, replaced
from mmort.original.known import KnownMeta, KnownMetas, UnknownSamples

Run = Callable[[Tensor], tuple[Tensor, ...]]
"""A file: from input to outputs."""

_Activation = Callable[[Tensor], Tensor]


class Adapter(nn.Module):
    """An original up to its cut, as it becomes a file.

    Parameters
    ----------
    original : Original
    """

    task: ClassVar[Task]
    output_names: tuple[str, ...]

    def __init__(self, original: Original) -> None:
        super().__init__()
        self.original, self.model = original, original.model
        self.eval()

    @abstractmethod
    def forward(self, input: Tensor) -> Tensor | tuple[Tensor, ...]:
        """Return the file's outputs."""

    @abstractmethod
    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's end results, or those that it makes of a file's outputs."""

    def metadata(self) -> dict[str, Any]:
        """Return what the file states of its outputs."""
        return {}


class Classification(Adapter):
    """A classifier of MMPretrain: the head's scores of classes, before it makes results of them."""

    task = CLASSIFICATION
    output_names = (SCORES.name,)

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        self.activate, self.logits = _activation(self.model)

    def forward(self, input: Tensor) -> Tensor:
        """Return the probability of each class, (N, K)."""
        logits, *_ = arguments_at(
            self.model.head, "_get_predictions", lambda: self.model.predict(input, UnknownSamples())
        )
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            raise ValueError("export: the original's head must give a score for each class of an image")
        return self.activate(logits)

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples, with ``pred_score``."""
        if file is None:
            return list(self.model.predict(input, samples))
        return list(self.model.head._get_predictions(self.logits(*file(input)), samples))


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)


_ACTIVATIONS: tuple[tuple[_Activation, _Activation], ...] = ((_softmax, torch.log), (torch.sigmoid, torch.logit))
"""How scores become probabilities, and a function that makes such scores of these."""


def _activation(model: Any) -> tuple[_Activation, _Activation]:
    """Return what a classifier makes probabilities with, by what it does with two rows of scores."""
    if not hasattr(model.head, "_get_predictions"):
        raise ValueError(f"export: {type(model.head).__name__} makes no scores of classes, so that it has no file")
    probe = torch.linspace(-3, 4, 12).reshape(2, 6)
    made = torch.stack([sample.pred_score for sample in model.head._get_predictions(probe, None)])
    for activate, inverse in _ACTIVATIONS:
        if torch.equal(activate(probe), made):
            return activate, inverse
    raise ValueError(f"export: {type(model.head).__name__} makes neither a softmax nor a sigmoid of its scores")


class Segmentation(Adapter):
    """A network of MMSegmentation: ``encode_decode``, which it calls for an image or for each window of one."""

    task = SEGMENTATION
    output_names = (LOGITS.name,)

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        if not hasattr(self.model, "encode_decode"):
            raise ValueError(f"export: {type(self.model).__name__} is not supported, as it has no encode_decode")

    def forward(self, input: Tensor) -> Tensor:
        """Return the logits of each class in each pixel, (N, K, H, W)."""
        size = input.shape[2:]
        metas = KnownMetas(KnownMeta(img_shape=size, pad_shape=size))
        logits: Tensor = self.model.encode_decode(input, metas)
        return logits

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples, with ``pred_sem_seg``."""
        if file is None:
            return list(self.model.predict(input, samples))
        with replaced(self.model, "encode_decode", lambda window, _: file(window)[0]):
            return list(self.model.predict(input, samples))

    def metadata(self) -> dict[str, Any]:
        """Return the windows, what makes classes of logits, and the palette."""
        test_cfg, head = self.model.test_cfg, self.model.decode_head
        head = head[-1] if isinstance(head, nn.ModuleList) else head
        slides = test_cfg.get("mode", "whole") == "slide"
        window, stride = (
            ((width, height) for height, width in (test_cfg.crop_size, test_cfg.stride)) if slides else (None, None)
        )
        threshold = float(head.threshold) if self.model.out_channels == 1 else None  # type: ignore[arg-type]
        return {
            "segmentation": SegmentationFormat(window, stride, bool(self.model.align_corners), threshold),
            "palette": self.original.palette,
        }
