"""Compare builds of mmort over scenes of suppression that a seed draws: no list that a kernel could be tuned to.

    pip install --target BEFORE --no-deps SOURCES      # for each build
    python benchmarks/scenes.py BEFORE ... AFTER [--seed S] [--scenes N] [--threads T] [--operators NAME ...]

Each build runs in a process of its own; they take turns, scene by scene, and their results must be the same bits.  A
scene's time is the smallest of its turns: CPU time on one thread, else elapsed time.  Its ratio is AFTER's time divided
by the best BEFORE's, with 5 microseconds added to both for the call.  Prints, for each operator, quantiles of the ratio
and the worst scenes; with --growth, exponents of the time between scenes of n and 4 n boxes; with --table, the time of
each build for fixed scenes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scene = dict[str, Any]
Array = NDArray[Any]

OPERATORS = ("nms", "batched_nms", "nms_indices", "multiclass_nms", "nms_match", "nms_rotated", "soft_nms")
MAX_BOXES = {
    "nms": 1_000_000, "batched_nms": 300_000, "nms_indices": 300_000, "multiclass_nms": 20_000, "nms_match": 20_000,
    "nms_rotated": 100_000, "soft_nms": 10_000,
}  # fmt: skip
SIZES = ("one", "uniform", "log", "long", "clusters", "anchors", "equal", "nested", "giant")
ORDERS = ("random", "size", "position", "ties")
METHODS = ("naive", "linear", "gaussian")
CALL = 5e-6
"""Seconds; what differs by less is no difference between kernels."""
TURNS = 3
SAMPLE = 2e-3
"""Seconds that the calls of a turn take at least together."""
TABLE: tuple[tuple[str, int, str, float, float, float], ...] = (
    ("nms", 300_000, "long", 4_000, 0.1, 0),
    ("nms", 300_000, "clusters", 1_000, 0.5, 0),
    ("nms", 100_000, "one", 4_000, 0.1, 0),
    ("nms", 10_000, "one", 4_000, 0.1, 0),
    ("nms", 300_000, "one", 4_000, 0.1, 0),
    ("nms", 300_000, "clusters", 4_000, 0.1, 0),
    ("nms", 300_000, "uniform", 4_000, 0.1, 0),
    ("nms", 100_000, "uniform", 4_000, 0.1, 0),
    ("nms", 300_000, "log", 4_000, 0.3, 0),
    ("nms", 100_000, "log", 4_000, 0.3, 0),
    ("nms", 100_000, "uniform", 1_000, 0.3, 0),
    ("nms", 3_000, "one", 4_000, 0.1, 0),
    ("batched_nms", 30_000, "long", 1_000, 0.1, 20),
    ("nms_rotated", 30_000, "clusters", 1_000, 0.1, 0),
    ("multiclass_nms", 10_000, "clusters", 4_000, 0.7, 20),
    ("soft_nms", 1_000, "clusters", 1_000, 0.5, 0),
    ("nms_match", 10_000, "one", 1_000, 0.5, 0),
    ("nms", 131_072, "pixels", 0, 0.1, 0),
    ("nms", 120_000, "nested", 0, 0.5, 0),
    ("nms", 260_000, "outlier", 10_000, 0.5, 0),
    ("nms", 260_000, "decades", 0, 0.5, 0),
    ("nms", 300_000, "empty", 0, 0.0, 0),
    ("soft_nms", 100_000, "one", 1_000, 0.5, 0),
    ("nms_match", 100_000, "one", 1_000, 0.5, 0),
)  # fmt: skip
"""Operator, boxes, sizes, plane, threshold, classes."""


# ---- scenes ----------------------------------------------------------------------------------------------------------


def draw(rng: np.random.Generator, operator: str) -> Scene:
    """Return the description of a random scene."""
    count = int(100 * (MAX_BOXES[operator] / 100) ** rng.random())
    return {
        "operator": operator,
        "count": count,
        "density": float(rng.choice([0, 0.1, 1, 3, 10, 30, 100, 300, 1000])),
        "sizes": str(rng.choice(SIZES)),
        "order": str(rng.choice(ORDERS, p=[0.7, 0.1, 0.1, 0.1])),
        "threshold": round(float(rng.uniform(0.1, 0.9)), 2),
        "classes": int(rng.choice([1, 20, 1203])) if operator == "batched_nms" else int(rng.choice([1, 20, 80])),
        "offset": int(rng.random() < 0.1),
        "max_num": int(rng.choice([-1, 100, 1000], p=[0.8, 0.1, 0.1])),
        "dtype": str(rng.choice(["float32", "float64"], p=[0.85, 0.15])),
        "method": str(rng.choice(METHODS)),
        "seed": int(rng.integers(2**31)),
    }


def make_sides(rng: np.random.Generator, kind: str, count: int) -> Array:
    """Return widths and heights of (count, 2)."""
    if kind == "uniform":
        return rng.uniform(10, 100, (count, 2))
    if kind == "log":
        return 2 * 500 ** rng.random((count, 2))
    if kind == "long":
        return np.stack([rng.uniform(100, 300, count), rng.uniform(10, 30, count)], axis=1)
    if kind == "giant":
        sides = rng.uniform(10, 30, (count, 2))
        sides[rng.integers(count)] = 1e5
        return sides
    if kind == "decades":
        return 10 ** rng.uniform(-15, 15, (count, 1)) * np.ones((1, 2))
    return np.full((count, 2), 32.0)


def make_boxes(rng: np.random.Generator, scene: Scene) -> Array:
    """Return corners of (count, 4) in the plane of the scene, or one where a box overlaps `density` others."""
    kind, count = scene["sizes"], scene["count"]
    sides = make_sides(rng, kind, count)
    if kind == "nested":
        centers, sides = np.full((count, 2), 500.0), np.linspace(1, 1000, count)[:, None] * np.ones((1, 2))
    elif kind == "equal":
        centers = np.full((count, 2), 500.0)
    elif kind == "empty":
        centers, sides = rng.uniform(0, 1000, (count, 2)), sides * 0
    elif kind == "pixels":
        centers = np.stack(np.divmod(rng.permutation(count), 512), axis=1) * 1.0
    elif kind == "anchors":
        cells = -(-count // 9)
        columns = math.isqrt(cells - 1) + 1
        shapes = np.array([[a * r, a / r] for a in (32, 40.3, 50.8) for r in (0.7071, 1, 1.4142)])
        positions = np.stack(np.divmod(np.arange(cells), columns), axis=1) * 8.0
        centers = np.repeat(positions, 9, axis=0)[:count]
        sides = np.tile(shapes, (cells, 1))[:count]
    else:
        plane = scene.get("plane") or math.sqrt(
            count * 4 * float(np.median(sides[:, 0]) * np.median(sides[:, 1])) / (scene["density"] or 1e-3)
        )
        centers = rng.uniform(0, plane, (count, 2))
        if kind == "clusters":
            groups = max(count // 50, 1)
            members = np.arange(count) % groups
            sizes = rng.uniform(20, 200, (groups, 2))
            centers = centers[:groups][members] + rng.normal(0, 4, (count, 2))
            sides = sizes[members] * np.exp(rng.normal(0, 0.08, (count, 2)))
        elif kind == "outlier":
            centers[-1], sides[-1] = (1e30, 5), (1e25, 10)
    return np.concatenate([centers - sides / 2, centers + sides / 2], axis=1)


def make_scores(rng: np.random.Generator, scene: Scene, boxes: Array) -> Array:
    scores = rng.random(len(boxes))
    if scene["order"] == "ties":
        scores = np.round(scores, 1)
    elif scene["order"] != "random":
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
        by = area if scene["order"] == "size" else boxes[:, 0]
        scores = np.sort(scores)[np.argsort(np.argsort(by, kind="stable"))]
    return scores


def prepare(scene: Scene) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """Return the function's name and arguments."""
    rng = np.random.default_rng(scene["seed"])
    operator, threshold, classes = scene["operator"], scene["threshold"], scene["classes"]
    boxes = make_boxes(rng, scene)
    scores = make_scores(rng, scene, boxes).astype(scene["dtype"])
    corners, limit = boxes.astype(scene["dtype"]), scene["max_num"]
    if operator == "nms":
        return operator, (corners, scores, threshold), {"offset": scene["offset"], "max_num": limit}
    if operator == "batched_nms":
        labels = rng.integers(0, max(classes, 1), len(boxes))
        return operator, (corners, scores, labels, {"type": "nms", "iou_threshold": threshold, "max_num": limit}), {}
    if operator == "nms_match":
        return operator, (np.concatenate([corners, scores[:, None]], axis=1), threshold), {}
    if operator == "soft_nms":
        return operator, (corners, scores), {"iou_threshold": threshold, "method": scene["method"]}
    if operator == "nms_indices":
        classes = min(classes, 5)
        scores = np.stack([rng.permutation(scores) for _ in range(classes)])[None]
        options = {"iou_threshold": threshold, "score_threshold": 0.05, "max_per_class": limit}
        return operator, (corners[None], scores), options
    if operator == "multiclass_nms":
        few = np.zeros((1, len(boxes), classes), scene["dtype"])
        few[0, np.arange(len(boxes)), rng.integers(0, classes, len(boxes))] = scores
        options = {"iou_threshold": threshold, "score_threshold": 0.05, "max_per_image": limit}
        return operator, (corners[None], few), options
    angles = rng.uniform(-1.6, 1.6, (len(boxes), 1))
    if scene["sizes"] in {"clusters", "equal"}:
        angles[:] = 0.3
    rotated = np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2], angles], axis=1)
    return operator, (rotated.astype(scene["dtype"]), scores, threshold), {}


# ---- a build ---------------------------------------------------------------------------------------------------------


def digest(value: Any, state: Any) -> None:
    """Add the bits of a result to a hash."""
    if isinstance(value, (tuple, list)):
        for part in value:
            digest(part, state)
    else:
        state.update(np.ascontiguousarray(value).tobytes())


def serve(threads: int, limit: float) -> None:
    """Time the scenes that come as lines of JSON; answer with seconds and a hash of the result.

    A scene that takes more than `limit` seconds ends the process.
    """
    import mmort

    mmort.set_num_threads(threads)
    clock = time.process_time if threads == 1 else time.perf_counter
    known: str = ""
    for line in sys.stdin:
        if line != known:
            name, arguments, options = prepare(json.loads(line))
            known = line
        function = getattr(mmort, name, None)
        answer: dict[str, Any] = {"seconds": None, "hash": None}
        if function is not None:
            signal.setitimer(signal.ITIMER_REAL, limit)  # a timer of CPU time would make its clock coarse
            try:
                state = hashlib.sha256()
                begin = clock()
                result = function(*arguments, **options)
                seconds = clock() - begin
                digest(result, state)
                calls = int(SAMPLE / max(seconds, 1e-7))
                samples = [seconds]
                for _ in range(3 if calls else 0):
                    begin = clock()
                    for _ in range(calls):
                        function(*arguments, **options)
                    samples.append((clock() - begin) / calls)
                answer = {"seconds": min(samples), "hash": state.hexdigest()}
            except (ValueError, MemoryError) as error:
                answer["error"] = str(error)
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), flush=True)


class Build:
    """A build of mmort in a directory, and its process."""

    def __init__(self, directory: str, threads: int) -> None:
        self.directory, self.threads = directory, threads
        self.process: subprocess.Popen[str] | None = None

    def time(self, scene: Scene, limit: float) -> dict[str, Any]:
        """Return the answer of a turn; a call may take `limit` seconds."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, "-P", __file__, "--serve", "--threads", str(self.threads), "--limit", str(limit)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": self.directory},
            )  # fmt: skip
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(scene) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if line:
            return dict(json.loads(line))
        status = self.process.wait()
        self.process = None
        if status != -signal.SIGALRM:
            raise SystemExit(f"{self.directory} ended with {status}: {describe(scene)} {scene}")
        return {"seconds": limit, "hash": None, "error": f"more than {limit:g} s"}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


# ---- comparison ------------------------------------------------------------------------------------------------------


def measure(builds: list[Build], scene: Scene, limit: float) -> list[dict[str, Any]]:
    """Return the best answer of each build; raise if results differ."""
    answers: list[list[dict[str, Any]]] = [[] for _ in builds]
    for turn in range(TURNS):
        for i in range(len(builds)):
            k = (i + turn) % len(builds)
            if turn and (answers[k][-1].get("error") or answers[k][-1]["seconds"] is None):
                continue
            if turn and answers[k][-1]["seconds"] > limit / 10:
                continue
            answers[k].append(builds[k].time(scene, limit))
    best = [min(turns, key=lambda answer: answer["seconds"] or math.inf) for turns in answers]
    hashes = {answer["hash"] for answer in best if answer["hash"]}
    if len(hashes) > 1:
        raise SystemExit(f"results differ: {describe(scene)} {scene}")
    return best


def describe(scene: Scene) -> str:
    """Return a line of what matters to the operator."""
    words = [f"{scene['count']:,} {scene['sizes']}", f"IoU {scene['threshold']}"]
    if scene.get("plane"):
        words.append(f"in {scene['plane']:,}")
    elif scene["sizes"] not in {"equal", "nested", "anchors", "pixels", "empty"}:
        words.append(f"{scene['density']:g} overlaps")
    words.append(f"scores by {scene['order']}" if scene["order"] in {"size", "position"} else scene["order"])
    if scene["classes"] > 1 and scene["operator"] in {"batched_nms", "multiclass_nms", "nms_indices"}:
        words.append(f"{scene['classes']} classes")
    if scene["max_num"] > 0 and scene["operator"] in {"nms", "batched_nms", "multiclass_nms", "nms_indices"}:
        words.append(f"at most {scene['max_num']}")
    if scene["operator"] == "soft_nms":
        words.append(scene["method"])
    words += [scene["dtype"]] * (scene["dtype"] == "float64") + ["offset 1"] * (scene["offset"] == 1)
    return ", ".join(words)


def milliseconds(answer: dict[str, Any]) -> str:
    if answer.get("error"):
        return "refused" if answer["seconds"] is None else f"> {1e3 * answer['seconds']:,.0f}"
    return "-" if answer["seconds"] is None else f"{1e3 * answer['seconds']:.3g}"


def compare(builds: list[Build], options: argparse.Namespace) -> None:
    """Print quantiles and the worst scenes of each operator."""
    print("| operator | scenes | smallest | 5 % | median | 95 % | worst | scene of the worst |\n|-|-|-|-|-|-|-|-|")
    listing: list[str] = []
    for operator in options.operators:
        rng = np.random.default_rng([options.seed, OPERATORS.index(operator)])
        rows: list[tuple[float, Scene, list[dict[str, Any]]]] = []
        end = time.monotonic() + options.seconds / len(options.operators)
        for _ in range(options.scenes):
            if time.monotonic() > end:
                break
            scene = draw(rng, operator)
            answers = measure(builds, scene, options.limit)
            before = [answer["seconds"] for answer in answers[:-1] if answer["seconds"] is not None]
            if answers[-1].get("error") and any(answer["hash"] for answer in answers):
                raise SystemExit(f"{answers[-1]['error']}: {describe(scene)} {scene}")
            if before and answers[-1]["seconds"]:
                rows.append(((answers[-1]["seconds"] + CALL) / (min(before) + CALL), scene, answers))
        if len(rows) < 2:
            print(f"| `{operator}` | {len(rows)} | too few for quantiles: more --seconds | | | | | |", flush=True)
            continue
        rows.sort(key=lambda row: row[0])
        ratios = [row[0] for row in rows]
        cuts = statistics.quantiles(ratios, n=20, method="inclusive")
        print(
            f"| `{operator}` | {len(rows)} | {ratios[0]:.3f} | {cuts[0]:.2f} | {cuts[9]:.2f} | {cuts[18]:.2f} "
            f"| {ratios[-1]:.2f} | {describe(rows[-1][1])} |", flush=True
        )  # fmt: skip
        for ratio, scene, answers in rows[: -options.worst - 1 : -1]:
            times = " ".join(f"{milliseconds(answer):>8}" for answer in answers)
            listing.append(f"{ratio:6.2f} {times} ms  {operator}: {describe(scene)}")
    print("\n" + "\n".join(listing))


def grow(builds: list[Build], options: argparse.Namespace) -> None:
    """Print exponents of growth: of each build's time between n and 4 n boxes of the same density."""
    print("| operator | sizes | overlaps | IoU | boxes |" + " exponent |" * len(builds))
    print("|-|-|-|-|-|" + "-|" * len(builds))
    for operator in options.operators:
        largest = MAX_BOXES[operator] // 4
        for sizes in SIZES:
            for density, threshold in ((1.0, 0.5), (100.0, 0.1), (100.0, 0.5)):
                scene = {
                    "operator": operator, "count": largest, "density": density, "sizes": sizes, "order": "random",
                    "threshold": threshold, "classes": 1, "offset": 0, "max_num": -1, "dtype": "float32",
                    "method": "linear", "seed": options.seed,
                }  # fmt: skip
                if sizes in {"anchors", "equal", "nested"} and density == 1.0:
                    continue
                small, large = (measure(builds, scene | {"count": n}, options.limit) for n in (largest, 4 * largest))
                words = []
                for few, many in zip(small, large, strict=True):
                    both = few["seconds"] and many["seconds"]
                    words.append(f"{math.log(many['seconds'] / few['seconds'], 4):.2f}" if both else "-")
                print(f"| `{operator}` | {sizes} | {density:g} | {threshold} | {largest:,} | {' | '.join(words)} |",
                      flush=True)  # fmt: skip


def tabulate(builds: list[Build], options: argparse.Namespace) -> None:
    """Print the times of the fixed scenes."""
    print("| scene |" + "".join(f" {os.path.basename(build.directory.rstrip('/'))} |" for build in builds))
    print("|-|" + "-|" * len(builds))
    for operator, count, sizes, plane, threshold, classes in TABLE:
        if operator in options.operators:
            scene = {
                "operator": operator, "count": count, "plane": plane, "density": 1.0, "sizes": sizes,
                "order": "size" if sizes == "nested" else "random", "threshold": threshold, "classes": classes or 1,
                "offset": 0, "max_num": -1, "dtype": "float32", "method": "linear", "seed": options.seed,
            }  # fmt: skip
            answers = measure(builds, scene, options.limit)
            print(f"| `{operator}`, {describe(scene)} | {' | '.join(map(milliseconds, answers))} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("builds", nargs="*", help="directories; the last is compared with the best of the others")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
    parser.add_argument("--scenes", type=int, default=100, help="of each operator")
    parser.add_argument("--seconds", type=float, default=600, help="for all scenes together")
    parser.add_argument("--limit", type=float, default=10, help="seconds for the calls of a turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--operators", nargs="+", choices=OPERATORS, default=OPERATORS)
    parser.add_argument("--worst", type=int, default=10, help="scenes to list of each operator")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads, options.limit)
        return
    builds = [Build(directory, options.threads) for directory in options.builds]
    print(f"seed {options.seed}, threads {options.threads}, load {os.getloadavg()[0]:.1f}\n")
    try:
        (grow if options.growth else tabulate if options.table else compare)(builds, options)
    finally:
        for build in builds:
            build.end()


if __name__ == "__main__":
    main()
