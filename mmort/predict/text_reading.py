"""`TextReader`: a text detection, and the recognition that reads what it finds; images in, `TextRegions` out."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import TEXT_DETECTION, TEXT_RECOGNITION, Prepared
from mmort.detections.recognized_text import RecognizedText
from mmort.images import Image, as_channels, decode_image
from mmort.predict.engines.network import Network
from mmort.predict.predictor import ImageSource, Predictor

BATCH = 32
"""Texts that are read together."""

LONG_SIDE_MARGIN, SHORT_SIDE_MARGIN = 0.4, 0.2
"""By how much what is read is longer and higher than the box around a text at each end, in shares of its height."""


@dataclass(frozen=True)
class _Photo:
    """An image in memory, and the input of the detection."""

    pixels: Image
    prepared: Prepared


class TextReader(Predictor):
    """A text detection with the recognition that reads what it finds: images in, `TextRegions` with texts out.

    What is read is the upright box around a text, with a margin, as in MMOCR's ``MMOCRInferencer``.

    Parameters
    ----------
    network : path or Network
        A file of ``mmort export --original`` of a text detection of MMOCR.
    recognizer : path or Predictor
        A file of a text recognition.
    score_threshold : float, default 0.3
        Leave out texts that the detection gives a lower score.

    Raises
    ------
    ValueError
        If a file is of another task.
    OSError
        If there is no such file.
    ImportError
        If ONNX Runtime or pyclipper is not installed.

    Examples
    --------
    >>> from mmort.predict import TextReader
    >>> read = TextReader("dbnet.onnx", "svtr.onnx")  # doctest: +SKIP
    >>> read("photo.jpg").names  # doctest: +SKIP
    ('exit', 'gate')
    """

    def __init__(
        self,
        network: str | os.PathLike[str] | Network,
        recognizer: str | os.PathLike[str] | Predictor,
        *,
        score_threshold: float = 0.3,
    ) -> None:
        super().__init__(network, score_threshold=score_threshold)
        self.recognizer = Predictor(recognizer) if isinstance(recognizer, (str, os.PathLike)) else recognizer
        for name, predictor, task in (
            ("network", self, TEXT_DETECTION),
            ("recognizer", self.recognizer, TEXT_RECOGNITION),
        ):
            if predictor.task is not task:
                raise ValueError(f"TextReader: {name} must be a file of {task.name}, got one of {predictor.task.name}")

    def run(self, images: Sequence[Any]) -> list[Any]:
        """Return the texts in images that `Predictor.predict` has read."""
        found: list[Any] = super().run([photo.prepared for photo in images])
        return [
            replace(regions, texts=tuple(self._read(photo.pixels, regions.boxes)))
            for photo, regions in zip(images, found, strict=True)
        ]

    def _prepare(self, image: ImageSource) -> Any:
        """Read an image, and preprocess it for the detection."""
        kind = self.preprocessing.color_type
        pixels = decode_image(image, kind) if isinstance(image, bytes) else as_channels("TextReader", image, kind)
        return _Photo(pixels, self.preprocessing(pixels))

    def _read(self, pixels: Image, boxes: NDArray[np.float32]) -> Iterator[Any]:
        """Yield the text in each box; an empty one where a box has no pixels inside the image."""
        crops = [crop_of(pixels, box) for box in boxes.astype(np.float64)]
        for start in range(0, len(crops), BATCH):
            chunk = crops[start : start + BATCH]
            texts = iter(self.recognizer([crop for crop in chunk if crop.size]))
            for crop in chunk:
                yield next(texts) if crop.size else RecognizedText("", np.zeros(0, np.float32), crop.shape[:2])


def crop_of(image: Image, box: NDArray[np.float64]) -> Image:
    """Return the part of an image in and around a box x1, y1, x2, y2, in MMOCR's arithmetic."""
    limits = np.array(image.shape[1::-1] * 2)
    left, top, right, bottom = np.clip(box, 0, limits)
    width, height = right - left, bottom - top
    short = min(height, width)
    across, down = (LONG_SIDE_MARGIN, SHORT_SIDE_MARGIN) if height < width else (SHORT_SIDE_MARGIN, LONG_SIDE_MARGIN)
    sides = left - across * short, top - down * short, right + across * short, bottom + down * short
    x1, y1, x2, y2 = np.clip([int(side) for side in sides], 0, limits).tolist()
    crop: Image = np.ascontiguousarray(image[y1:y2, x1:x2])
    return crop
