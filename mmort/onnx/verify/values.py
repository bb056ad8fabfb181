"""The values that are compared, and arrays and tensors nested in lists, tuples and dicts: flattened, and as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mmort.onnx.verify.ties import Candidates


@dataclass(frozen=True)
class Tolerances:
    """How far outputs may be apart; the arguments of `mmort.onnx.verify`, which documents them."""

    rtol: float = 1e-3
    atol: float = 1e-4
    min_mask_overlap: float = 0.99
    by_rounding: bool = True
    """Whether numbers are compared by the model's own rounding instead, where it runs in float64."""

    @classmethod
    def stated(cls, rtol: float | None, atol: float | None, min_mask_overlap: float = min_mask_overlap) -> Tolerances:
        """Return those of a caller, who has no others if both are None."""
        defaults = cls()
        return cls(
            defaults.rtol if rtol is None else rtol,
            defaults.atol if atol is None else atol,
            min_mask_overlap,
            by_rounding=rtol is None and atol is None,
        )

    def __post_init__(self) -> None:
        """Refuse tolerances that nothing is within."""
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value >= 0:
                raise ValueError(f"verify: {name} must be at least 0, got {value}")

    def of(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return how far other numbers may be from these."""
        tolerance: NDArray[Any] = self.atol + self.rtol * np.abs(numbers)
        return tolerance


Reselected = Callable[[NDArray[Any], NDArray[Any], NDArray[np.int64]], Sequence[NDArray[Any]]]
"""From other results of the suppression, dets, labels and indices, to the outputs that the model makes of them."""


Arrays = Sequence[NDArray[Any]]

FURTHER_RUNS = 3
"""How many further runs judge a number that the first two, which may agree by accident, do not allow."""


class Exact:
    """A model's outputs in float64, and in float32 with other rounding, computed when they are first asked for.

    Parameters
    ----------
    compute : callable
        Returns the outputs in float64.
    round_otherwise : callable
        From a seed to the outputs in float32 with other rounding.
    decides : bool
        Whether they decide; otherwise they are only asked for where the tolerances are exceeded.
    """

    def __init__(
        self, compute: Callable[[], Arrays], round_otherwise: Callable[[int], Arrays], *, decides: bool
    ) -> None:
        self._compute, self._round_otherwise, self.decides = compute, round_otherwise, decides
        self._results: tuple[Arrays, Arrays] | None = None
        self._further: Sequence[Arrays] | None = None
        self.obstacle = ""
        """Why there are none, once they have been asked for."""

    def outputs(self) -> tuple[Arrays, Arrays]:
        """Return the outputs in float64 and with other rounding; none if the model does not run in float64."""
        if self._results is None:
            try:
                self._results = self._compute(), self._round_otherwise(0)
            except Exception as error:  # of operators that take no float64, and of code that expects float32
                self._results, self.obstacle = ((), ()), " ".join(str(error).split()) or type(error).__name__
        return self._results

    def further(self) -> Sequence[Arrays]:
        """Return the outputs of runs with yet other rounding; none if the model does not run in float64."""
        if self._further is None:
            seeds = range(1, 1 + FURTHER_RUNS) if self.outputs()[0] else ()
            self._further = [self._round_otherwise(seed) for seed in seeds]
        return self._further

    def part(self, selected: slice) -> Exact:
        """Return some of the outputs."""

        def compute() -> Arrays:
            exact, _ = self.outputs()
            if self.obstacle:
                raise ValueError(self.obstacle)
            return exact[selected]

        def round_otherwise(seed: int) -> Arrays:
            return (self.further()[seed - 1] if seed else self.outputs()[1])[selected]

        return Exact(compute, round_otherwise, decides=self.decides)


@dataclass(frozen=True)
class Reference:
    """The expected outputs for one set of inputs."""

    outputs: Sequence[NDArray[Any]]
    candidates: Sequence[Candidates] | None = None
    """For each image what competed in the suppression, if the outputs are its results."""
    reselected: Reselected | None = None
    """Runs the model again, if there are `candidates`."""
    exact: Exact | None = None
    """The outputs in float64; None if the reference is a file."""

    def part(self, selected: slice) -> Reference:
        """Return some of the outputs; candidates are those of the first ones."""
        exact = None if self.exact is None else self.exact.part(selected)
        return replace(self, outputs=self.outputs[selected], exact=exact)


@dataclass(frozen=True)
class Outputs:
    """The outputs of a file and of its reference for the same inputs, and how far apart they may be."""

    inputs: str
    """The inputs' shapes, ``2x3x64x96``."""
    names: Sequence[str]
    """The names of the file's outputs."""
    actual: Sequence[NDArray[Any]]
    reference: Reference
    tolerances: Tolerances
    mask_threshold: float | None = None
    """That of the masks' cells, if boxes and scores depend on which cells are above it."""

    @property
    def expected(self) -> Sequence[NDArray[Any]]:
        """The reference's outputs."""
        return self.reference.outputs

    def part(self, selected: slice) -> Outputs:
        """Return some of the outputs."""
        reference = self.reference.part(selected)
        return replace(self, names=self.names[selected], actual=self.actual[selected], reference=reference)


def index_of_smallest(inputs: Sequence[Any]) -> int:
    """Return which set of nested tensors and arrays has the fewest numbers, the first of several; 0 of no sets."""
    sizes = [sum(int(np.prod(leaf.shape)) for leaf in leaves(values)) for values in inputs]
    return sizes.index(min(sizes)) if sizes else 0


def leaves(value: Any) -> list[Any]:
    """Return the tensors and arrays in lists, tuples and dicts, in order, without None, numbers and strings."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [] if value is None or isinstance(value, (bool, int, float, str)) else [value]


def as_array(value: Any) -> NDArray[Any]:
    """Convert a tensor or array to an array."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def shape_text(shape: Sequence[int]) -> str:
    """Write a shape as ``2x3x64x96``."""
    return "x".join(map(str, shape)) or "scalar"


def shapes_text(values: Any) -> str:
    """Write the shapes of all nested tensors and arrays."""
    return ", ".join(shape_text(value.shape) for value in leaves(values))
