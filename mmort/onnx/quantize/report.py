"""The result of a quantization."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_MAX_NAMES = 3


@dataclass(frozen=True)
class Quantization:
    """The result of `quantize`; prints as a line, and one for each reason why layers were left."""

    quantized: tuple[str, ...]
    """The names of the layers that compute with integers."""
    left: tuple[str, ...]
    """The names of the other layers."""
    calibration: int
    """Sets of inputs in the calibration."""
    reasons: Mapping[str, tuple[str, ...]]
    """The names of the other layers, by why they compute with floating-point numbers."""
    loss: float | None = None
    """Which share of the results is lost, from 0 to 1; None if that is not measured for the file's outputs."""
    unit: str = ""
    """The word for the results, such as detections."""

    def __str__(self) -> str:
        """State the numbers, and the reasons."""
        layers, sets = len(self.quantized) + len(self.left), self.calibration
        lost = "" if self.loss is None else f"; {self.unit} change by {self.loss:.1%}"
        lines = [f"quantized {len(self.quantized)} of {layers} layers, by {sets} set{'s' * (sets > 1)} of inputs{lost}"]
        for reason, names in self.reasons.items():
            shown = ", ".join(names[:_MAX_NAMES]) + (", ..." if len(names) > _MAX_NAMES else "")
            lines.append(f"left {len(names)} ({shown}): {reason}")
        return "\n".join(lines)
