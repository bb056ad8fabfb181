"""The result of a quantization."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantization:
    """The result of `quantize`; prints as a line."""

    quantized: tuple[str, ...]
    """The names of the layers that compute with integers."""
    left: tuple[str, ...]
    """The names of the other layers."""
    calibration: int
    """Sets of inputs in the calibration."""

    def __str__(self) -> str:
        """State the numbers."""
        layers, sets = len(self.quantized) + len(self.left), self.calibration
        return f"quantized {len(self.quantized)} of {layers} layers, by {sets} set{'s' * (sets > 1)} of inputs"
