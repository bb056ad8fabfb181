"""The counts of all comparisons over a data set: how many results of a model are equal to the reference's."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

QUANTILES = (0.5, 0.95, 1.0)
"""Those of the drift of results that both models have."""


class _Severe(Protocol):
    @property
    def severity(self) -> float:
        """How much the image differs."""
        ...


AnExample = TypeVar("AnExample", bound=_Severe)


@dataclass
class Agreement(Generic[AnExample]):
    """The results of a model and of the reference, counted over the images of a data set.

    Attributes
    ----------
    name : str
        The model's, as shown to people.
    max_examples : int
        How many of the images that differ are kept, the most severe ones.
    images, differing_images : int
    expected, found : int
        How many results the reference has, and how many the model has.
    missing, extra : int
        Results of the reference without an equal one, and of the model.
    """

    name: str
    max_examples: int = 12
    images: int = 0
    differing_images: int = 0
    expected: int = 0
    found: int = 0
    missing: int = 0
    extra: int = 0
    _worst: list[tuple[float, int, AnExample]] = field(default_factory=list, repr=False)

    @property
    def unit(self) -> str:
        """The word for the results that are counted, in the plural."""
        raise NotImplementedError

    def add(self, image: Any, reference: Any, found: Any) -> Any:
        """Add an image."""
        raise NotImplementedError

    @property
    def matched(self) -> int:
        """The number of equal results."""
        return self.expected - self.missing

    @property
    def agreement(self) -> float:
        """The share of both models' results that have an equal one; 1 if there are none."""
        total = self.expected + self.found
        return 2 * self.matched / total if total else 1.0

    @property
    def examples(self) -> list[AnExample]:
        """The images that differ most, the most severe first."""
        return [example for _, _, example in sorted(self._worst, reverse=True, key=lambda entry: entry[:2])]

    @property
    def counts(self) -> str:
        """How many results have no equal one, in words."""
        return f"{self.missing:,} missing, {self.extra:,} extra"

    @property
    def drift(self) -> str:
        """How far results of both models are apart, in a sentence; empty if all are equal."""
        raise NotImplementedError

    def _keep(self, example: AnExample) -> None:
        """Keep an image if it is among the most severe; of equals the first."""
        self.differing_images += 1
        heapq.heappush(self._worst, (example.severity, -self.images, example))
        if len(self._worst) > self.max_examples:
            heapq.heappop(self._worst)


def quantiles(differences: list[NDArray[np.float64]]) -> tuple[float, ...]:
    """Return the `QUANTILES` of differences; 0 if there are none."""
    joined = np.concatenate(differences or [np.zeros(0)])
    return tuple(np.quantile(joined, QUANTILES).tolist()) if len(joined) else (0.0,) * len(QUANTILES)


def quantile_text(values: tuple[float, ...]) -> str:
    """Write quantiles with two digits."""
    return ", ".join(f"{value:.2g}" for value in values)
