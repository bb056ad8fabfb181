"""Models of MMOCR as files: text recognitions end at the probabilities of characters."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mmort.contract import TEXT_RECOGNITION, RecognitionFormat
from mmort.contract.recognition_format import Decoding
from mmort.contract.tasks import CHARACTERS
from mmort.original.adapters import ALLOWED_DISTANCE, Adapter, Run
from mmort.original.building import Original
from mmort.original.cut import arguments_at
from mmort.original.known import UnknownSamples

_DECODINGS: dict[str, Decoding] = {"CTCPostProcessor": "ctc", "AttentionPostprocessor": "attention"}
"""How the postprocessors of MMOCR make texts, which `mmort.predict` does as they do."""


class TextRecognition(Adapter):
    """A text recognition of MMOCR: up to the decoder's postprocessor, which takes the probabilities of characters."""

    task = TEXT_RECOGNITION
    output_names = (CHARACTERS.name,)

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        self.postprocessor = self.model.decoder.postprocessor
        kind = type(self.postprocessor).__name__
        if kind not in _DECODINGS:
            raise ValueError(f"export: the decoder's postprocessor must be one of {', '.join(_DECODINGS)}, got {kind}")

    def forward(self, input: Tensor) -> Tensor:
        """Return the probability of each character at each step, (N, T, K)."""
        probabilities, *_ = arguments_at(
            self.model.decoder, "postprocessor", lambda: self.model.predict(input, UnknownSamples())
        )
        if not isinstance(probabilities, Tensor) or probabilities.ndim != 3:
            raise ValueError("export: the original's decoder must give a probability for each character at each step")
        return probabilities

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples, with ``pred_text``."""
        if file is None:
            return list(self.model.predict(input, samples))
        return list(self.postprocessor(*file(input), samples))

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
