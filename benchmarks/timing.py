"""Measuring: contenders that do the same work take turns, and each one's median counts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

MIN_SAMPLE = 0.001  # seconds; of shorter calls, as many as fill it are timed together
MAX_ROW = 0.4  # seconds, after which MIN_SAMPLES are enough
MIN_SAMPLES = 5


class Contender(NamedTuple):
    """A function to time.

    `answer` is the part of its result that all must agree on; None for what does other work, as a limit: a copy, a
    sort, a plain convolution.
    """

    name: str
    run: Callable[[], Any]
    answer: Callable[[Any], Any] | None = lambda result: result


def check_agreement(contenders: list[Contender]) -> None:
    """Raise ValueError if contenders give different answers."""
    answers = [(name, answer(run())) for name, run, answer in contenders if answer]
    (_, wanted), *rest = answers
    for name, answer in rest:
        for ours, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (wanted, answer)), strict=True):
            ours, theirs = np.asarray(ours), np.asarray(theirs)
            if ours.shape != theirs.shape:
                raise ValueError(f"mmort gives {list(ours.shape)}, {name} {list(theirs.shape)}: not the same work")
            if ours.dtype.kind != "f":
                agreed = np.array_equal(ours, theirs)
            else:  # a position halfway between two pixels may be rounded to either
                agreed = np.isclose(ours, theirs, rtol=1e-3, atol=1e-3).mean() > 0.999
            if not agreed:
                raise ValueError(f"mmort and {name} give different answers: not the same work")


def time_in_turns(contenders: list[Contender], repeat: int) -> dict[str, float]:
    """Return the median seconds of a call, for each contender."""
    counts, samples = [], {contender.name: [] for contender in contenders}
    for contender in contenders:
        start, calls = time.perf_counter(), 0
        while time.perf_counter() - start < MIN_SAMPLE:
            contender.run()
            calls += 1
        counts.append(calls)
    end = time.perf_counter() + MAX_ROW
    for taken in range(repeat):
        if taken >= MIN_SAMPLES and time.perf_counter() > end:
            break
        for contender, count in zip(contenders, counts, strict=True):
            contender.run()  # brings its data and its threads back to this processor
            start = time.perf_counter()
            for _ in range(count):
                contender.run()
            samples[contender.name].append((time.perf_counter() - start) / count)
    return {name: statistics.median(seconds) for name, seconds in samples.items()}
