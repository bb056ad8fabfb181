"""How far outputs of two runs may be apart, for what compares them, and for the help of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Tolerances:
    """How far outputs may be apart; the arguments of `mmort.onnx.verify`, which documents them."""

    rtol: float = 1e-3
    atol: float = 1e-4
    min_mask_overlap: float = 0.99

    @classmethod
    def stated(cls, rtol: float | None, atol: float | None, min_mask_overlap: float = min_mask_overlap) -> Tolerances:
        """Return those of a caller, the defaults for None."""
        return cls(cls.rtol if rtol is None else rtol, cls.atol if atol is None else atol, min_mask_overlap)

    def __post_init__(self) -> None:
        """Refuse tolerances that nothing is within."""
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if not value >= 0:
                raise ValueError(f"verify: {name} must be at least 0, got {value}")

    def of(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return how far other numbers may be from these."""
        tolerance: NDArray[Any] = self.atol + self.rtol * np.abs(numbers)
        return tolerance
