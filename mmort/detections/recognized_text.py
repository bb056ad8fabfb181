"""The text of one image of a word or a line, as a text recognition has it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.drawable import Drawable


@dataclass(frozen=True, eq=False)
class RecognizedText(Drawable):
    """The text of an image.

    Parameters
    ----------
    text : str
    character_scores : ndarray of float32, (L,)
        The probability of each character.  There may be more letters than characters: a sign of the dictionary such as
        ``<UKN>`` is one character.
    image_size : (int, int)
        Height and width of the image.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import RecognizedText
    >>> text = RecognizedText("two", np.array([0.75, 0.5, 1], np.float32), (32, 100))
    >>> text, text.score
    (<RecognizedText: 'two' 0.75>, 0.75)
    """

    text: str
    character_scores: NDArray[np.float32]
    image_size: tuple[int, int]

    def __post_init__(self) -> None:
        object.__setattr__(self, "character_scores", np.asarray(self.character_scores, np.float32))
        if self.character_scores.ndim != 1:
            raise ValueError(f"RecognizedText: character_scores must be (L,), got {[*self.character_scores.shape]}")

    def __repr__(self) -> str:
        return f"<RecognizedText: {self.text!r} {self.score:.2f}>"

    def __len__(self) -> int:
        return len(self.text)

    @property
    def score(self) -> float:
        """The mean of the characters' probabilities, as MMOCR has it; 0 of an empty text."""
        return float(self.character_scores.astype(float).mean()) if len(self.character_scores) else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `to_json` writes: ``image_size`` (height, width), ``text`` and ``score``."""
        return {"image_size": list(self.image_size), "text": self.text, "score": round(self.score, 6)}

    def to_json(self) -> str:
        """Return the text as JSON in one line; see `to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Write the text below a copy of its image.  See `Drawable.plot`."""
        from mmort.detections.drawing import draw_text

        return draw_text(image, self, scale=scale)
