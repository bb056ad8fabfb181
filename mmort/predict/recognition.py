"""From the probabilities of characters to the `RecognizedText` of each image, as MMOCR's postprocessors have it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import RecognitionFormat
from mmort.contract.mask_format import MaskFormat
from mmort.contract.preprocessing import Prepared
from mmort.detections.recognized_text import RecognizedText


@dataclass(frozen=True)
class TextPostprocessing:
    """Postprocessing of an image's row of a text recognition's output.

    Parameters
    ----------
    classes : tuple of str
        Has no effect: the characters are those of the format.
    score_threshold : float
        Has no effect: each image has a text.
    format : RecognitionFormat
    """

    classes: tuple[str, ...]
    score_threshold: float
    format: RecognitionFormat

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> RecognizedText:
        """Return the text of an image; ValueError if the output has not a probability for each character."""
        (probabilities,) = rows
        characters = self.format.dictionary
        if probabilities.shape[1] != len(characters):
            raise ValueError(f"the model has {probabilities.shape[1]} characters, but its dictionary {len(characters)}")
        best = probabilities.argmax(axis=1)
        steps = _ctc_steps(best, self.format, image) if self.format.decoding == "ctc" else _steps(best, self.format)
        text = "".join(characters[best[step]] for step in steps)
        return RecognizedText(text, probabilities[steps, best[steps]], image.ori_shape)


def _steps(best: NDArray[np.int64], format: RecognitionFormat) -> list[int]:
    """Return the steps before the end that are not left out."""
    steps = []
    for step, index in enumerate(best.tolist()):
        if index in format.ignored:
            continue
        if index == format.end:
            break
        steps.append(step)
    return steps


def _ctc_steps(best: NDArray[np.int64], format: RecognitionFormat, image: Prepared) -> list[int]:
    """Return the first step of each row of equal characters, without those of the padding on the right."""
    width, padded = image.img_shape[1], image.pad_shape[1]
    # MMOCR's arithmetic: PadToWidth divides, and the data preprocessor once more.
    valid_ratio = min(1.0, width / padded) * padded / padded
    steps, previous = [], format.padding
    for step, index in enumerate(best[: math.ceil(len(best) * valid_ratio)].tolist()):
        if index != previous and index not in format.ignored:
            steps.append(step)
        previous = index
    return steps
