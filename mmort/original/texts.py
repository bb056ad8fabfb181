"""Models of MMOCR as files, which end where a postprocessor makes texts or polygons of probabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mmort.contract import (
    TEXT_DETECTION,
    TEXT_RECOGNITION,
    RecognitionFormat,
    TextDetectionFormat,
    TextKernelsFormat,
)
from mmort.contract.recognition_format import Decoding
from mmort.contract.tasks import CHARACTERS, KERNELS, PROBABILITY
from mmort.contract.text_kernels_format import Growth
from mmort.original.adapters import ALLOWED_DISTANCE, Adapter, Run
from mmort.original.building import Original
from mmort.original.cut import arguments_at
from mmort.original.known import UnknownSamples
from mmort.predict import Predictor
from mmort.predict.output import count_text

_DECODINGS: dict[str, Decoding] = {"CTCPostProcessor": "ctc", "AttentionPostprocessor": "attention"}
"""How the postprocessors of MMOCR make texts, which `mmort.predict` does as they do."""


class _OfMMOCR(Adapter):
    """A model of MMOCR: up to the postprocessor of its last part, which takes probabilities or maps."""

    part: ClassVar[str]
    """The attribute of the model whose postprocessor is the cut."""
    dimensions: ClassVar[str] = "NHW"
    """Of what the postprocessor takes."""

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        self.last = getattr(self.model, self.part)
        self.postprocessor = self.last.postprocessor

    def forward(self, input: Tensor) -> Tensor:
        """Return the tensor that the postprocessor takes."""
        taken, *_ = arguments_at(self.last, "postprocessor", lambda: self.model.predict(input, UnknownSamples()))
        if not isinstance(taken, Tensor) or taken.ndim != len(self.dimensions):
            raise ValueError(f"export: the original's {self.part} must give one tensor ({', '.join(self.dimensions)})")
        return taken

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples."""
        if file is None:
            return list(self.model.predict(input, samples))
        return list(self.postprocessor(*file(input), samples))


class TextRecognition(_OfMMOCR):
    """A text recognition of MMOCR: the probability of each character at each step, (N, T, K)."""

    task = TEXT_RECOGNITION
    output_names = (CHARACTERS.name,)
    part, dimensions = "decoder", "NTK"

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        kind = type(self.postprocessor).__name__
        if kind not in _DECODINGS:
            raise ValueError(f"export: the decoder's postprocessor must be one of {', '.join(_DECODINGS)}, got {kind}")

    def metadata(self) -> dict[str, Any]:
        """Return the dictionary, and how it is read."""
        made, dictionary = self.postprocessor, self.postprocessor.dictionary
        decoding = _DECODINGS[type(made).__name__]
        padding, end = (dictionary.padding_idx, None) if decoding == "ctc" else (None, dictionary.end_idx)
        characters = RecognitionFormat(decoding, tuple(dictionary.dict), padding, end, tuple(made.ignore_indexes))
        return {"recognition": characters}

    def of_original(self, result: Any) -> tuple[str, list[float]]:
        """Return the text, and the probability of each character."""
        return result.pred_text.item, [float(score) for score in result.pred_text.score]

    def of_mmort(self, result: Any) -> tuple[str, list[float]]:
        """Return the text, and the probability of each character."""
        return result.text, result.character_scores.tolist()

    def difference(self, expected: tuple[str, list[float]], actual: tuple[str, list[float]]) -> str:
        """Return how far the probabilities of the same text differ."""
        if expected[0] != actual[0] or len(expected[1]) != len(actual[1]):
            raise ValueError(f"export: the text must be the original's, {expected[0]!r}, got {actual[0]!r}")
        distance = max((abs(one - other) for one, other in zip(expected[1], actual[1], strict=True)), default=0.0)
        if not distance <= ALLOWED_DISTANCE:
            raise ValueError(f"export: the probability of a character differs from the original's by {distance:.2g}")
        return f"the same text, {expected[0]!r}, probabilities differ by at most {distance:.1e}"


ALLOWED_PIXELS = 0.01
"""How far the corner of a text may be from the original's, in pixels of the image."""

_Texts = tuple[list[NDArray[Any]], list[float]]
"""The corners of each text, and the scores."""


class TextDetection(_OfMMOCR):
    """A text detection of MMOCR: how probable each pixel is one of a text, (N, H, W)."""

    task = TEXT_DETECTION
    output_names = (PROBABILITY.name,)
    part = "det_head"

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        kind, test_cfg = type(self.postprocessor).__name__, self.postprocessor.test_cfg
        if list(self.postprocessor.rescale_fields or ()) != ["polygons"] or test_cfg:
            raise ValueError(
                f"export: {kind} must have rescale_fields=['polygons'] and no test_cfg, got "
                f"{self.postprocessor.rescale_fields} and {test_cfg}"
            )

    def metadata(self) -> dict[str, Any]:
        """Return how the map becomes polygons."""
        made = self.postprocessor
        format = TextDetectionFormat(
            made.text_repr_type,
            made.mask_thr,
            made.min_text_score,
            made.min_text_width,
            made.unclip_ratio,
            made.epsilon_ratio,
            made.max_candidates,
        )
        return {"classes": ("text",), "text_detection": format}

    def predictor(self, file: Path) -> Predictor:
        """Return a predictor that leaves out no text."""
        return Predictor(file, score_threshold=0)

    def of_original(self, result: Any) -> _Texts:
        """Return the corners of texts and their scores."""
        found = result.pred_instances
        return [np.asarray(polygon).reshape(-1, 2) for polygon in found.polygons], found.scores.tolist()

    def of_mmort(self, result: Any) -> _Texts:
        """Return the corners of texts and their scores."""
        return list(result.polygons), result.scores.tolist()

    def difference(self, expected: _Texts, actual: _Texts) -> str:
        """Return how far the corners of the same texts, and their scores, differ."""
        if [len(polygon) for polygon in expected[0]] != [len(polygon) for polygon in actual[0]]:
            raise ValueError(
                f"export: the texts must be the original's, {len(expected[0])} with as many corners, got "
                f"{len(actual[0])}"
            )
        pairs = zip(expected[0], actual[0], strict=True)
        pixels = max((float(np.abs(one - other).max()) for one, other in pairs), default=0.0)
        scores = max((abs(one - other) for one, other in zip(expected[1], actual[1], strict=True)), default=0.0)
        if not (pixels <= ALLOWED_PIXELS and scores <= ALLOWED_DISTANCE):
            raise ValueError(
                f"export: a text differs from the original's by {pixels:.2g} pixels, a score by {scores:.2g}"
            )
        texts = count_text(len(expected[0]), "text")
        return f"{texts}, corners differ by at most {pixels:.1e} pixels, scores by {scores:.1e}"


class TextKernels(TextDetection):
    """A text detection of MMOCR whose texts grow from kernels: logits, and perhaps embeddings, (N, M, h, w)."""

    output_names = (KERNELS.name,)
    dimensions = "NMhw"

    def metadata(self) -> dict[str, Any]:
        """Return how kernels become polygons."""
        made = self.postprocessor
        format = TextKernelsFormat(
            _GROWTHS[type(made).__name__],
            made.text_repr_type,
            made.min_text_confidence,
            made.min_kernel_confidence,
            made.score_threshold,
            getattr(made, "min_kernel_area", 0),
            made.min_text_area,
            made.distance_threshold,
            made.downsample_ratio,
        )
        return {"classes": ("text",), "text_kernels": format}


_GROWTHS: dict[str, Growth] = {"PSEPostprocessor": "pse", "PANPostprocessor": "pan"}
"""How the postprocessors of MMOCR let texts grow from kernels."""

_DETECTIONS = {"DBPostprocessor": TextDetection, **dict.fromkeys(_GROWTHS, TextKernels)}
"""The adapters of text detections, by their postprocessors."""


def text_adapter(original: Original) -> Adapter:
    """Return the adapter of a model of MMOCR, by its last part."""
    if hasattr(original.model, TextRecognition.part):
        return TextRecognition(original)
    if hasattr(original.model, TextDetection.part):
        kind = type(original.model.det_head.postprocessor).__name__
        if kind not in _DETECTIONS:
            raise ValueError(f"export: the head's postprocessor must be one of {', '.join(_DETECTIONS)}, got {kind}")
        return _DETECTIONS[kind](original)
    raise ValueError(f"export: {type(original.model).__name__} is neither a text detection nor a text recognition")
