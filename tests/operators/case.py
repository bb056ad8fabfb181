"""What a case of an operator is, and the lists that the modules in families/ add to."""

import os
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

SEED = int(os.environ.get("TEST_SEED", "0"))
SIZES = (0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 33)
"""Around the widths of vectors and the lengths of unrolled loops."""
NAN, INF = np.nan, np.inf

Builder = Callable[[np.random.Generator], tuple[np.ndarray, ...]]


@dataclass(frozen=True)
class Case:
    """Arguments of an operator: a builder of its arrays, and the numpy function's other arguments."""

    operator: str
    name: str
    build: Builder
    attributes: dict[str, Any] = field(default_factory=dict)
    tolerance: Literal["exact", "fused", "close"] = "exact"

    def __str__(self):
        return f"{self.operator}-{self.name}"

    @property
    def arrays(self):
        return _arrays(str(self), self.build)


@cache
def _arrays(name, build):
    arrays = build(np.random.default_rng([SEED, zlib.crc32(name.encode())]))
    for array in arrays:
        array.flags.writeable = False  # they are shared by all tests
    return arrays


@dataclass(frozen=True)
class Refusal:
    """Arguments that an operator refuses, and the whole text of the error behind the operator's name."""

    operator: str
    text: str
    arrays: tuple[np.ndarray, ...]
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self):
        return f"{self.operator}-{self.text}"


CASES: list[Case] = []
REFUSALS: list[Refusal] = []
ORACLES: dict[str, Callable[..., tuple[np.ndarray, ...]]] = {}


def add(operator, name, build, tolerance="exact", **attributes):
    """Add a case; `tolerance` is "close" where the kernel sums in another order than the oracle.

    "fused" is "exact" for processors without fused multiply-add, on which the kernel does not use it, else "close".
    """
    CASES.append(Case(operator, name, build, attributes, tolerance))


def refuse(operator, text, *arrays, **attributes):
    """Add arguments that the operator refuses with this text."""
    REFUSALS.append(Refusal(operator, text, arrays, attributes))


def oracle(function):
    """Register the naive version of the operator of the same name.

    It follows the operator's contract, in the written order of rounding, and never a kernel.  It computes in the dtype
    of its arrays (float32 or float64) and returns a tuple of arrays, as the public function of the same name does.
    """
    ORACLES[function.__name__] = function
    return function


def given(*arrays, dtype=np.float32):
    """Return a builder of these very values."""
    values = tuple(np.array(array, dtype) for array in arrays)
    return lambda rng: tuple(array.copy() for array in values)


def zeros(*shape):
    return np.zeros(shape, np.float32)


def with_holes(build, share=0.1):
    """Return a builder whose map has NaN and infinities, which must not leak into samples that do not read them."""

    def holed(rng):
        pixels, *rest = build(rng)
        for value in (NAN, INF, -INF):
            pixels[rng.random(pixels.shape) < share / 3] = value
        return pixels, *rest

    return holed
