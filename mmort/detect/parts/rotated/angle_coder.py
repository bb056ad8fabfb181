"""Angle coders: they decode what a network predicts for an angle, besides the numbers of its box."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from mmort.detect.entries import Schema, at_least, only, training_only
from mmort.detect.parts.rotated.geometry import angle_version

_LOWEST_DEGREES = {"oc": 0, "le90": -90, "le135": -45}


class AngleCoder:
    """Base of the coders.

    Attributes
    ----------
    name : str
        The first word of the names of detectors with this coder.
    channels : int
        Numbers that are predicted for an angle.
    """

    name: ClassVar[str]
    channels: int

    def decode(self, predicted: Tensor, dim: int) -> Tensor:
        """Return angles in radians; `dim` has their `channels`, and is kept with one."""
        raise NotImplementedError


class PlainAngle(AngleCoder):
    """An angle is predicted as it is; MMRotate's ``PseudoAngleCoder``."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``angle_coder``."""

    name = "Rotated"
    channels = 1

    def __init__(self, entries: Entries) -> None:
        pass

    def decode(self, predicted: Tensor, dim: int) -> Tensor:
        """Return the only channel."""
        return predicted


class CSLCoder(AngleCoder):
    """Decodes the logits of equal ranges of angles.

    Source: X. Yang and J. Yan, "Arbitrary-Oriented Object Detection with Circular Smooth Label", ECCV 2020; MMRotate's
    ``CSLCoder``.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        angle_version: str
        omega: float = 1

        ignored: ClassVar = training_only("radius", "window")

    name = "CSL"

    def __init__(self, entries: Entries) -> None:
        version = angle_version("angle_coder", entries.angle_version)
        self.lowest, self.step = _LOWEST_DEGREES[version], entries.omega
        self.degrees = 90 if version == "oc" else 180
        self.channels = int(self.degrees // entries.omega)

    def decode(self, predicted: Tensor, dim: int) -> Tensor:
        """Return the middle of the best range."""
        best = predicted.argmax(dim, keepdim=True).to(predicted.dtype)
        degrees = (best + 0.5) * self.step
        degrees = degrees - (degrees / self.degrees).floor() * self.degrees + self.lowest
        return degrees * (math.pi / 180)


class PSCCoder(AngleCoder):
    """Decodes samples of a cosine whose phase is twice the angle, and perhaps of one with four times the angle.

    Source: Y. Yu and F. Da, "Phase-Shifting Coder: Predicting Accurate Orientation in Oriented Object Detection",
    CVPR 2023; MMRotate's ``PSCCoder``.
    """

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        angle_version: str = only("le90", required=True)
        dual_freq: bool = True
        num_step: int = at_least(3, default=3)  # of two, the sine is always 0
        thr_mod: float = 0.47

    name = "PSC"

    def __init__(self, entries: Entries) -> None:
        self.steps, self.two_phases, self.min_power = entries.num_step, entries.dual_freq, entries.thr_mod
        self.channels = self.steps * (2 if self.two_phases else 1)

    def decode(self, predicted: Tensor, dim: int) -> Tensor:
        """Return half of the phase; 0 if the amplitude is too small, as it is of squares and circles."""
        phase, power = self._phase(predicted.narrow(dim, 0, self.steps), dim)
        if self.two_phases:
            double, power = self._phase(predicted.narrow(dim, self.steps, self.steps), dim)
            # Half of the doubled phase has two values; the other one is taken if it is nearer to the first phase.
            half = double / 2
            turned = torch.where(half < 0, half + math.pi, half - math.pi)
            phase = torch.where((phase - half).cos() < 0, turned, half)
        return torch.where(power < self.min_power, 0, phase / 2)

    def _phase(self, samples: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return the phase of a cosine that is sampled at equal steps of a period, and the square of its amplitude."""
        shape = [1] * samples.ndim
        shape[dim] = self.steps
        angles = torch.arange(self.steps, dtype=samples.dtype, device=samples.device) * (2 * math.pi / self.steps)
        angles = angles.reshape(shape)
        sine, cosine = (samples * angles.sin()).sum(dim, keepdim=True), (samples * angles.cos()).sum(dim, keepdim=True)
        return -torch.atan2(sine, cosine), sine.square() + cosine.square()


ANGLE_CODERS = {"CSLCoder": CSLCoder, "PSCCoder": PSCCoder, "PseudoAngleCoder": PlainAngle}
"""The class of each of MMRotate's type names."""
