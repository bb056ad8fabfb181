"""Compare two builds of mmort, such as two commits, on inputs that are large enough for growth and memory to show.

    python benchmarks/compare.py BEFORE AFTER [ROW ...] [--threads N]

BEFORE and AFTER are Python interpreters, of two virtual environments with a build each.  They take turns, a process at
a time, and each row's figure is the median of its runs.  Prints a table in Markdown.  ROW is the beginning of a name.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

TURNS = 3
RUNS = 5
SHORTEST = 0.003  # seconds that a sample lasts at least

Call = Callable[[], Any]


def boxes_and_scores(rng: np.random.Generator, count: int, extent: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return boxes [count, 4] with sides of 10 to 100 pixels in a square of `extent` pixels, and scores [count]."""
    corners = rng.random((count, 2), dtype=np.float32) * extent
    sizes = 10 + 90 * rng.random((count, 2), dtype=np.float32)
    return np.concatenate([corners, corners + sizes], 1), rng.random(count, dtype=np.float32)


def regions(rng: np.random.Generator, count: int, angles: bool) -> NDArray[Any]:
    """Return regions with sides of 16 to 400 pixels in a picture of 800 x 1216 pixels, with angles or as corners."""
    sizes = 16 + 384 * rng.random((count, 2))
    centres = rng.random((count, 2)) * (1216, 800)
    box = (centres, sizes, 3 * rng.random((count, 1))) if angles else (centres - sizes / 2, centres + sizes / 2)
    return np.concatenate([np.zeros((count, 1)), *box], 1).astype(np.float32)


def rows(rng: np.random.Generator) -> dict[str, Call]:
    """Return the call of each row; mmort is imported here, as only a build's own interpreter has it."""
    import mmort

    found: dict[str, Call] = {}
    for count in (20_000, 50_000, 100_000, 1_000_000):
        boxes, scores = boxes_and_scores(rng, count, 10_000)
        found[f"nms, {count:,} boxes"] = partial(mmort.nms, boxes, scores, 0.5)
        found[f"numpy.argsort, {count:,} scores"] = partial(np.argsort, -scores)
    for count in (1_000, 10_000):
        boxes, scores = boxes_and_scores(rng, count, 1_000)
        found[f"soft_nms gaussian, {count:,} boxes"] = partial(mmort.soft_nms, boxes, scores, method="gaussian")
    features = rng.random((1, 256, 200, 304), dtype=np.float32)
    for operator, angles in ((mmort.roi_align, False), (mmort.roi_align_rotated, True)):
        rois = regions(rng, 1_000, angles)
        for name, sampling_ratio in (("sampling_ratio=2", 2), ("adaptive", 0)):
            row = f"{operator.__name__}, 1,000 regions of 1x256x200x304, {name}"
            found[row] = partial(operator, features, rois, 7, 0.25, sampling_ratio)
    for channels, height, width in ((256, 100, 152), (64, 64, 64)):
        shapes = (1, channels, height, width), (1, 18, height, width), (channels, channels, 3, 3)
        input, offset, weight = (rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
        row = f"deform_conv2d, 1x{channels}x{height}x{width}, 3x3"
        found[row] = partial(mmort.deform_conv2d, input, offset, weight, padding=1)
    grid = 2 * rng.random((1, 200, 304, 2), dtype=np.float32) - 1
    for mode in ("bilinear", "nearest"):
        found[f"grid_sample {mode}, 1x64x200x304"] = partial(mmort.grid_sample, features[:, :64], grid, mode)
    maps = rng.standard_normal((1, 128, 128, 128), dtype=np.float32)
    found["cummax, last dimension of 1x128x128x128"] = partial(mmort.cummax, maps, -1)
    found["corner_pool left, 1x128x128x128"] = partial(mmort.corner_pool, maps, "left")
    found["corner_pool top, 1x128x128x128"] = partial(mmort.corner_pool, maps, "top")
    found["copy of 1x128x128x128"] = maps.copy
    boxes, _ = boxes_and_scores(rng, 1_000, 1_000)
    found["box_iou, 1,000 x 1,000"] = partial(mmort.box_iou, boxes, boxes)
    return found


def milliseconds(call: Call) -> float:
    """Return the median time of a call; a sample is as many calls as last `SHORTEST`, after one that is not timed."""
    call()
    begin = time.perf_counter()
    call()
    count = max(1, round(SHORTEST / max(time.perf_counter() - begin, 1e-7)))
    samples = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        samples.append(1e3 * (time.perf_counter() - begin) / count)
    return statistics.median(samples)


def main() -> None:
    """Measure in the two interpreters by turns; the interpreters call this with --measure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("row", nargs="*")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        import mmort

        mmort.set_num_threads(options.threads)
        beginnings = tuple(options.row) or ("",)
        calls = rows(np.random.default_rng(0)).items()
        print(json.dumps({row: milliseconds(call) for row, call in calls if row.startswith(beginnings)}))
        return
    figures: dict[str, dict[str, list[float]]] = {options.before: {}, options.after: {}}
    for _ in range(TURNS):
        for python in figures:
            command = [python, __file__, *sys.argv[1:], "--measure"]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for row, figure in measured.items():
                figures[python].setdefault(row, []).append(figure)
    print(f"| {options.threads} threads | before, ms | after, ms | ratio |\n|-|-|-|-|")
    for row in figures[options.after]:
        before, after = (statistics.median(figures[python][row]) for python in (options.before, options.after))
        print(f"| {row} | {before:.3g} | {after:.3g} | {before / after:.2f} |")


if __name__ == "__main__":
    main()
