"""How long detectors take, by stage: the function behind ``mmort benchmark``."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from mmort._kernels import as_integer
from mmort.images import Image, read_image
from mmort.ops.threads import get_num_threads
from mmort.predict.image_files import list_images
from mmort.predict.output import count_text
from mmort.predict.predictor import Predictor
from mmort.tables import lay_out

STAGES = "read", "preprocess", "run", "postprocess"
"""The timed stages: decoding of files; resizing, normalizing and padding; the network; postprocessing."""

MIN_WARM_UP, MAX_WARM_UP = 2, 10
"""Batches that run before the timed ones: a new size of input makes an engine allocate memory."""

NOISE_SIZE = (640, 480)
"""Width and height of the image that is used if none is given, and the preprocessing keeps the size of images."""

Seconds: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Timing:
    """Times and memory of a detector.

    Attributes
    ----------
    name, engine : str
    milliseconds : dict of str to float
        The median of each of the `STAGES` that was timed, and of their sum, "total", for an image.
    """

    name: str
    engine: str
    milliseconds: dict[str, float]

    @property
    def images_per_second(self) -> float:
        """The images that pass all stages in a second, one stage after another."""
        return 1000 / self.milliseconds["total"]


@dataclass(frozen=True)
class Benchmark:
    """Times and memory of detectors that ran by turns; prints as a table.

    Attributes
    ----------
    timings : tuple of Timing
    ratios : tuple of dict of str to float
        For each detector how many times as fast as the first one it is, by stage: the median over the runs.
    images, batch_size, runs, threads : int
        How it was measured.
    peak_memory : int or None
        The largest memory of the process so far, in bytes; None where the system does not tell.
    """

    timings: tuple[Timing, ...]
    ratios: tuple[dict[str, float], ...]
    images: int
    batch_size: int
    runs: int
    threads: int
    peak_memory: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        files = [
            {
                "name": timing.name,
                "engine": timing.engine,
                "milliseconds": timing.milliseconds,
                "images_per_second": timing.images_per_second,
                "times_as_fast": ratios,
            }
            for timing, ratios in zip(self.timings, self.ratios, strict=True)
        ]
        measured = {name: getattr(self, name) for name in ("images", "batch_size", "runs", "threads", "peak_memory")}
        return {"files": files, **measured}

    def __str__(self) -> str:
        """Lay out the medians, a column for each detector."""
        several = len(self.timings) > 1
        rows = [["ms an image", *(timing.name for timing in self.timings)]]
        rows[0] += ["times as fast"] * (len(self.timings) - 1)
        for stage in self.timings[0].milliseconds:
            cells = [f"{timing.milliseconds[stage]:.2f}" for timing in self.timings]
            rows.append([stage, *cells, *(f"{ratios[stage]:.2f}" for ratios in self.ratios[1:])])
        speeds = [f"{timing.images_per_second:.1f}" for timing in self.timings]
        rows.append(["images a second", *speeds, *[""] * (len(self.timings) - 1)])
        memory = "" if self.peak_memory is None else f", {self.peak_memory / 1e6:,.0f} MB at most"
        source = count_text(self.images, "image") if self.images else "an image of noise"
        turns = ", by turns" if several else ""
        how = f"medians of {count_text(self.runs, 'run')} of {source} in batches of {self.batch_size}{turns}"
        engines = ", ".join(dict.fromkeys(timing.engine for timing in self.timings))
        return f"{lay_out(rows)}\n{how}; {engines}, {count_text(self.threads, 'thread')}{memory}"


def benchmark(
    predictors: Mapping[str, Predictor],
    images: Sequence[str | os.PathLike[str]] = (),
    *,
    batch_size: int = 1,
    runs: int = 20,
    threads: int | None = None,
) -> Benchmark:
    """Time detectors, one stage after another; several of them by turns, on the same images.

    Parameters
    ----------
    predictors : mapping of str to Predictor
        By the name to show.
    images : sequence of path, optional
        Files, folders and patterns, as `list_images` takes them; they are taken in turn.  By default an image of noise,
        which is not read from a file.
    batch_size : int, default 1
        Images that run together.
    runs : int, default 20
        Timed batches of each detector, after some that are not.
    threads : int, optional
        The threads that the predictors have, for the record.  By default one for each core.

    Returns
    -------
    Benchmark

    Raises
    ------
    ValueError
        If there is no predictor, `batch_size` or `runs` is not positive, or an image cannot be read.
    OSError
        If an image cannot be opened.

    Examples
    --------
    >>> from mmort.demo import IMAGES, MODEL
    >>> from mmort.predict import Predictor, benchmark
    >>> result = benchmark({"demo": Predictor(MODEL)}, IMAGES, runs=4)
    >>> list(result.timings[0].milliseconds)
    ['read', 'preprocess', 'run', 'postprocess', 'total']
    """
    if not predictors:
        raise ValueError("benchmark: predictors must not be empty")
    for name, value in (("batch_size", batch_size), ("runs", runs)):
        if as_integer("benchmark", name, value) < 1:
            raise ValueError(f"benchmark: {name} must be positive, got {value}")
    paths = list_images(*images) if images else []
    batches = _batches(paths, batch_size)
    count = min(MAX_WARM_UP, max(MIN_WARM_UP, -(-len(paths) // batch_size)))
    noise = {name: None if paths else _noise(predictor) for name, predictor in predictors.items()}
    seconds: dict[str, list[Seconds]] = {name: [] for name in predictors}
    for _ in range(count + runs):
        batch = next(batches)
        for name, predictor in predictors.items():
            seconds[name].append(_run(predictor, batch, noise[name], batch_size))
    timed = {name: rows[count:] for name, rows in seconds.items()}
    first = next(iter(timed.values()))
    return Benchmark(
        timings=tuple(
            Timing(name, getattr(predictors[name].network, "engine", "python"), _medians(rows, batch_size))
            for name, rows in timed.items()
        ),
        ratios=tuple(_ratios(first, rows) for rows in timed.values()),
        images=len(paths),
        batch_size=batch_size,
        runs=runs,
        threads=get_num_threads() if threads is None else threads,
        peak_memory=_peak_memory(),
    )


def _batches(paths: Sequence[Path], batch_size: int) -> Iterator[list[Path]]:
    """Yield batches of the paths, which begin again when they end; empty ones if there are none."""
    remaining = cycle(paths)
    while True:
        yield [next(remaining) for _ in range(batch_size)] if paths else []


def _noise(predictor: Predictor) -> Image:
    """Return an image of noise, of a size that the preprocessing resizes to."""
    width, height = predictor.preprocessing.size or NOISE_SIZE
    return np.random.default_rng(0).integers(0, 256, (height, width, predictor.preprocessing.channels), np.uint8)


def _run(predictor: Predictor, paths: Sequence[Path], noise: Image | None, batch_size: int) -> Seconds:
    """Run a batch; return the seconds of each stage, and their total."""
    seconds: Seconds = {}

    @contextmanager
    def timed(stage: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        seconds[stage] = time.perf_counter() - begin

    images = [noise] * batch_size if noise is not None else []
    if noise is None:
        with timed("read"):
            images = [read_image(path, predictor.preprocessing.color_type) for path in paths]
    with timed("preprocess"):
        prepared = [predictor.preprocessing(image) for image in images if image is not None]
        chunks = [[prepared[index] for index in indices] for indices in predictor.chunks_of(prepared)]
        arguments = [predictor.input_of(chunk) for chunk in chunks]
    with timed("run"):
        outputs = [predictor.outputs_of(chunk, *inputs) for chunk, inputs in zip(chunks, arguments, strict=True)]
    with timed("postprocess"):
        for chunk, (input, _), of_chunk in zip(chunks, arguments, outputs, strict=True):
            predictor.detections_of(chunk, input, of_chunk)
    return seconds | {"total": sum(seconds.values())}


def _medians(rows: Sequence[Seconds], batch_size: int) -> dict[str, float]:
    """Return the median of each stage, in milliseconds for an image."""
    return {stage: 1000 * statistics.median(row[stage] for row in rows) / batch_size for stage in rows[0]}


def _ratios(first: Sequence[Seconds], rows: Sequence[Seconds]) -> dict[str, float]:
    """Return how many times as fast as the first detector another one is, by stage: the median over the runs."""
    return {
        stage: statistics.median(
            one[stage] / row[stage] if row[stage] else 1.0 for one, row in zip(first, rows, strict=True)
        )
        for stage in rows[0]
    }


def _peak_memory() -> int | None:
    """Return the largest resident memory of the process so far, in bytes."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return None
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return size if sys.platform == "darwin" else 1024 * size
