"""The classes of one image, as a classifier has them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mmort.detections.drawable import Drawable

if TYPE_CHECKING:
    import pandas

SHOWN = 5
"""Classes in a repr, in a drawing and in a line of JSON."""


@dataclass(frozen=True, eq=False)
class Classes(Drawable):
    """The classes of an image, by descending probability.

    Parameters
    ----------
    scores : ndarray of float32, (K,)
        The probability of each class.
    labels : ndarray of int64, (K,)
        Indices of classes.
    names : tuple of str, K
        The name of each; the label as text if the classes have no names.
    image_size : (int, int)
        Height and width of the image.

    Raises
    ------
    ValueError
        If the shapes do not match.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.predict import Classes
    >>> classes = Classes.of_scores(np.array([0.2, 0.7, 0.1], np.float32), ("cat", "dog", "owl"), (10, 12))
    >>> classes
    <Classes: 3 in 10 x 12 pixels: dog 0.70, cat 0.20, owl 0.10>
    >>> classes.top(1).to_json()
    '{"image_size": [10, 12], "classes": [{"label": 1, "name": "dog", "score": 0.7}]}'
    """

    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    names: tuple[str, ...]
    image_size: tuple[int, int]

    def __post_init__(self) -> None:
        for name, dtype in (("scores", np.float32), ("labels", np.int64)):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype))
        if self.scores.ndim != 1 or self.labels.shape != self.scores.shape or len(self.names) != len(self.scores):
            raise ValueError(
                f"Classes: scores, labels and names must be (K,), (K,) and K, got {self.scores.shape}, "
                f"{self.labels.shape} and {len(self.names)}"
            )

    @classmethod
    def of_scores(cls, scores: NDArray[np.float32], names: Sequence[str], image_size: tuple[int, int]) -> Classes:
        """Return the classes of an image by the probability of each, in the order of their labels."""
        order = np.argsort(-scores, kind="stable")
        return cls(scores[order], order, tuple(names[label] for label in order.tolist()), image_size)

    def __repr__(self) -> str:
        best = self.top(SHOWN)
        listed = ", ".join(f"{name} {score:.2f}" for name, score in zip(best.names, best.scores, strict=True))
        more = ", ..." if len(self) > SHOWN else ""
        height, width = self.image_size
        return f"<Classes: {len(self)} in {height} x {width} pixels: {listed}{more}>"

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def by_label(self) -> NDArray[np.float32]:
        """The probability of each class in the order of labels, (K,); of those that `top` left out, 0."""
        scores = np.zeros(self.labels.max(initial=-1) + 1, np.float32)
        scores[self.labels] = self.scores
        return scores

    def top(self, count: int) -> Classes:
        """Return the `count` most probable classes; ValueError if it is negative."""
        if count < 0:
            raise ValueError(f"Classes: count must not be negative, got {count}")
        return Classes(self.scores[:count], self.labels[:count], self.names[:count], self.image_size)

    def to_dict(self) -> dict[str, Any]:
        """Return the dict that `to_json` writes.

        Returns
        -------
        dict
            ``image_size`` (height, width) and ``classes``: a list of dicts with ``label``, ``name`` and ``score``.
        """
        entries = [
            {"label": label, "name": name, "score": float(str(score))}
            for label, name, score in zip(self.labels.tolist(), self.names, self.scores, strict=True)
        ]
        return {"image_size": list(self.image_size), "classes": entries}

    def to_json(self) -> str:
        """Return the classes as JSON in one line; see `to_dict`."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with the columns ``label``, ``name`` and ``score``.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas
        except ModuleNotFoundError:
            raise ImportError("to_pandas needs pandas: pip install pandas") from None
        return pandas.DataFrame({"label": self.labels, "name": list(self.names), "score": self.scores})

    def plot(self, image: NDArray[np.uint8] | str | os.PathLike[str], *, scale: float = 1.0) -> NDArray[np.uint8]:
        """Write the most probable classes on a copy of their image.  See `Drawable.plot`."""
        from mmort.detections.drawing import draw_classes

        return draw_classes(image, self.top(SHOWN), scale=scale)
