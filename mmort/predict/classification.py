"""From a classifier's outputs to the `Classes` of each image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from mmort.contract.mask_format import MaskFormat
from mmort.contract.preprocessing import Prepared
from mmort.detections.classes import Classes


@dataclass(frozen=True)
class ClassPostprocessing:
    """Postprocessing of an image's row of a classifier's scores.

    Parameters
    ----------
    classes : tuple of str
        The classes' names by label; empty if they have none.
    score_threshold : float
        Has no effect: all classes are returned, by descending probability.
    """

    classes: tuple[str, ...]
    score_threshold: float

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> Classes:
        """Return the classes of an image; ValueError if there are more of them than names."""
        (scores,) = rows
        return Classes.of_scores(scores, names_of(self.classes, len(scores)), image.ori_shape)


def names_of(classes: tuple[str, ...], count: int) -> tuple[str, ...]:
    """Return the names of `count` classes: their labels as text if they have none."""
    if classes and len(classes) != count:
        raise ValueError(f"the model has {count} classes, but there are {len(classes)} names; pass a name for each")
    return classes or tuple(map(str, range(count)))
