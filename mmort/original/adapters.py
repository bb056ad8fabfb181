"""The part of an original that becomes a file, for each task: the cut, the outputs, and how the original continues."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mmort.contract import CLASSIFICATION, SEGMENTATION, SegmentationFormat, Task
from mmort.contract.tasks import LOGITS, SCORES
from mmort.images import Image
from mmort.original.building import Original
from mmort.original.cut import arguments_at, replaced
from mmort.original.known import KnownMeta, KnownMetas, UnknownSamples
from mmort.predict import Predictor

Run = Callable[[Tensor], tuple[Tensor, ...]]
"""A file: from input to outputs."""

_Activation = Callable[[Tensor], Tensor]

ALLOWED_SHARE = 0.001
"""The share of pixels whose class may be another: those where two classes are as probable as each other."""

ALLOWED_DISTANCE = 1e-3
"""How far a probability, or a keypoint in pixels of the image, may be from the original's."""


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

    def annotations(self, image: Image) -> dict[str, Any]:
        """Return the entries that the original's test pipeline needs besides an image."""
        return {}

    def predictor(self, file: Path) -> Predictor:
        """Return a predictor that runs the file on images."""
        return Predictor(file)

    def input_of(self, predictor: Any, image: Image) -> NDArray[np.float32]:
        """Return the file's input of an image."""
        input: NDArray[np.float32] = predictor.preprocessing(image).input
        return input

    @abstractmethod
    def of_original(self, result: Any) -> Any:
        """Return the part of the original's end result that is compared."""

    @abstractmethod
    def of_mmort(self, result: Any) -> Any:
        """Return the part of an end result of `mmort.Predictor` that is compared."""

    @abstractmethod
    def difference(self, expected: Any, actual: Any) -> str:
        """Return how far end results differ, as text; ValueError if that is too far."""

    def metadata(self) -> dict[str, Any]:
        """Return the fields of `Metadata` that describe the outputs."""
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

    def of_original(self, result: Any) -> NDArray[Any]:
        """Return the probability of each class."""
        scores: NDArray[Any] = result.pred_score.numpy()
        return scores

    def of_mmort(self, result: Any) -> NDArray[Any]:
        """Return the probability of each class."""
        scores: NDArray[Any] = result.by_label
        return scores

    def difference(self, expected: NDArray[Any], actual: NDArray[Any]) -> str:
        """Return the largest difference of probabilities."""
        _require_shape(expected, actual)
        distance = float(np.abs(expected - actual).max(initial=0))
        if not distance <= ALLOWED_DISTANCE:
            raise ValueError(f"export: a probability differs from the original's by {distance:.2g}")
        return f"probabilities differ by at most {distance:.1e}"


def _require_shape(expected: NDArray[Any], actual: NDArray[Any]) -> None:
    """Refuse an end result that has not the original's shape."""
    if expected.shape != actual.shape:
        raise ValueError(f"export: the end result must be {expected.shape}, as the original's is, got {actual.shape}")


def _softmax(logits: Tensor) -> Tensor:
    return torch.softmax(logits, dim=1)


_ACTIVATIONS: tuple[tuple[_Activation, _Activation], ...] = ((_softmax, torch.log), (torch.sigmoid, torch.logit))
"""How scores become probabilities, and a function that makes such scores of these."""


def _activation(model: Any) -> tuple[_Activation, _Activation]:
    """Return a classifier's function from scores to probabilities, and its inverse, by its results of two rows."""
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

    def of_original(self, result: Any) -> NDArray[Any]:
        """Return the label of each pixel."""
        labels: NDArray[Any] = result.pred_sem_seg.data[0].numpy()
        return labels

    def of_mmort(self, result: Any) -> NDArray[Any]:
        """Return the label of each pixel."""
        labels: NDArray[Any] = result.map
        return labels

    def difference(self, expected: NDArray[Any], actual: NDArray[Any]) -> str:
        """Return how many pixels have another class."""
        _require_shape(expected, actual)
        count = int((expected != actual).sum())
        if count > ALLOWED_SHARE * expected.size:
            raise ValueError(
                f"export: {count} of {expected.size} pixels have another class than the original gives them"
            )
        return f"{count} of {expected.size} pixels differ"

    def metadata(self) -> dict[str, Any]:
        """Return the windows, how logits become classes, and the palette."""
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
