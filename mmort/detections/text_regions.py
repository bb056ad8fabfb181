"""The texts that a text detection finds in an image: their outlines, and what a recognition reads in them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.drawable import Drawable
from mmort.detections.recognized_text import RecognizedText
from mmort.images import ColorType


@dataclass(frozen=True, eq=False)
class TextRegions(Drawable):
    """The texts in an image.

    Parameters
    ----------
    polygons : tuple of ndarray of float64, (P, 2), N
        x and y of the corners of each text, in pixels of the image.
    scores : ndarray of float32, (N,)
    image_size : (int, int)
        Height and width of the image.
    color_type : str, default "color"
        How the image was read: with "color_ignore_orientation" it was not turned upright.
    texts : tuple of RecognizedText, optional
        What was read in each.

    Raises
    ------
    ValueError
        If the shapes do not match.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import TextRegions
    >>> regions = TextRegions((np.array([[2, 3], [9, 3], [9, 6], [2, 6]]),), np.array([0.75]), (8, 12))
    >>> regions, regions.boxes.tolist()
    (<TextRegions: 1 in 8 x 12 pixels>, [[2.0, 3.0, 9.0, 6.0]])
    """

    polygons: tuple[NDArray[np.float64], ...]
    scores: NDArray[np.float32]
    image_size: tuple[int, int]
    color_type: ColorType = "color"
    texts: tuple[RecognizedText, ...] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "polygons", tuple(np.asarray(polygon, np.float64) for polygon in self.polygons))
        object.__setattr__(self, "scores", np.asarray(self.scores, np.float32))
        shapes = [polygon.shape for polygon in self.polygons]
        if any(len(shape) != 2 or shape[0] < 3 or shape[1] != 2 for shape in shapes):
            raise ValueError(f"TextRegions: each of polygons must be (P, 2) with at least 3 corners, got {shapes[:3]}")
        if self.scores.shape != (len(shapes),) or (self.texts is not None and len(self.texts) != len(shapes)):
            raise ValueError(
                f"TextRegions: scores and texts must be as many as polygons, {len(shapes)}, got "
                f"{[*self.scores.shape]} and {None if self.texts is None else len(self.texts)}"
            )

    def __repr__(self) -> str:
        height, width = self.image_size
        read = "" if self.texts is None else f": {', '.join(repr(text.text) for text in self.texts)}"
        return f"<TextRegions: {len(self)} in {height} x {width} pixels{read}>"

    def __len__(self) -> int:
        return len(self.polygons)

    @property
    def names(self) -> tuple[str, ...]:
        """The text that was read in each, or "text"."""
        return ("text",) * len(self) if self.texts is None else tuple(text.text for text in self.texts)

    @property
    def boxes(self) -> NDArray[np.float32]:
        """The upright box around each, x1, y1, x2, y2, (N, 4)."""
        corners = [[*polygon.min(axis=0), *polygon.max(axis=0)] for polygon in self.polygons]
        return np.array(corners, np.float32).reshape(-1, 4)

    def above(self, threshold: float) -> TextRegions:
        """Return the texts with a score of at least `threshold`."""
        return self[self.scores >= threshold]

    def __getitem__(self, index: int | slice | NDArray[Any] | Sequence[int]) -> TextRegions:
        """Return some of the texts, selected as the rows of an array are; an integer selects one."""
        indices = np.atleast_1d(np.arange(len(self))[index]).tolist()
        texts = None if self.texts is None else tuple(self.texts[index] for index in indices)
        polygons = tuple(self.polygons[index] for index in indices)
        return TextRegions(polygons, self.scores[indices], self.image_size, self.color_type, texts)

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `to_json` writes.

        Returns
        -------
        dict
            ``image_size`` (height, width) and ``texts``: a list of dicts with ``polygon``, x1, y1, x2, y2 ..., its
            ``score``, and, if it was read, ``text`` and ``text_score``.
        """
        entries: list[dict[str, Any]] = [
            {"polygon": np.round(polygon, 2).ravel().tolist(), "score": float(str(score))}
            for polygon, score in zip(self.polygons, self.scores, strict=True)
        ]
        for entry, text in zip(entries, self.texts or (), strict=False):
            entry |= {"text": text.text, "text_score": round(text.score, 6)}
        return {"image_size": list(self.image_size), "texts": entries}

    def to_json(self) -> str:
        """Return the texts as JSON in one line; see `to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Draw the outlines on a copy of their image, with what was read in them.  See `Drawable.plot`."""
        from mmort.detections.drawing import draw_text_regions

        return draw_text_regions(image, self, scale=scale)
