"""Compare builds of mmort over scenes that a seed draws: no list that a kernel could be tuned to.

    pip install --target BEFORE --no-deps SOURCES      # for each build
    python benchmarks/scenes.py BEFORE ... AFTER [--seed S] [--scenes N] [--threads T] [--operators NAME ...]

Each build runs in a process of its own; they take turns, scene by scene.  Results of suppression must be the same
bits; other results may differ in rounding, and it is said how many do.

A scene's cost is the smallest of its turns: CPU time on one thread, else elapsed time, with 5 microseconds added for
the call; or, with --instructions, a number of instructions.  Calls of less than a millisecond take inputs of further
seeds by turns, and their mean counts: a processor learns the branches of an input that is repeated, which no user's is.
A scene's ratio is AFTER's cost divided by the best BEFORE's.
Other work of the machine makes single turns longer, never shorter: a scene whose ratio is above 1.1 gets ever more
turns of all builds, in up to 8 new processes, before it counts.
Prints, for each operator, quantiles of the ratio and the worst scenes; with --fail-above, fails if a ratio is larger.
With --growth, prints exponents of the cost between scenes of n and 4 n boxes; with --table, the cost of each build for
fixed scenes.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import map_scenes
import numpy as np
import suppression_scenes
from instructions import Counter, command, make_directory
from numpy.typing import NDArray
from suppression_scenes import MAX_BOXES, SIZES, TABLE

Scene = dict[str, Any]
Array = NDArray[Any]

OPERATORS = suppression_scenes.OPERATORS + map_scenes.OPERATORS
CALL = 5e-6
"""Seconds; what differs by less is no difference between kernels."""
CALL_INSTRUCTIONS = 20_000
"""Likewise."""
TURNS = 5
MORE_PROCESSES = 8
"""Of a scene whose ratio is still above `DOUBTFUL`, each with as many turns: some processes take twice as long."""
DOUBTFUL = 1.1
SAMPLE = 1e-3
"""Seconds that the calls of a sample take at least together."""
SAMPLES = 4
INPUTS = 16
"""Of a scene whose calls are shorter than a sample."""
LONG = 5.0
"""Seconds of a build's turns, from which on there are no more of them at a time."""


def module_of(operator: str) -> Any:
    return map_scenes if operator in map_scenes.OPERATORS else suppression_scenes


def describe(scene: Scene) -> str:
    return str(module_of(scene["operator"]).describe(scene))


# ---- a build ---------------------------------------------------------------------------------------------------------


def digest(value: Any, state: Any) -> None:
    """Add the bits of a result to a hash."""
    if isinstance(value, (tuple, list)):
        for part in value:
            digest(part, state)
    else:
        state.update(np.ascontiguousarray(value).tobytes())


def summarize(value: Any) -> list[float]:
    """Return numbers that are about the same if results are."""
    parts = value if isinstance(value, (tuple, list)) else [value]
    return [float(f(np.asarray(part, np.float64))) for part in parts for f in (np.size, np.sum, np.linalg.norm)]


def measure_time(call_of: Callable[[int], Callable[[], Any]], threads: int) -> tuple[float, Any]:
    """Return the seconds of a call, the smallest of some samples, and the result for the first input."""
    clock = time.thread_time if threads == 1 else time.perf_counter
    call = call_of(0)
    begin = clock()
    result = call()
    seconds = clock() - begin
    if seconds > SAMPLE:
        return seconds, result
    calls = [call_of(index) for index in range(INPUTS)]
    rounds = 1 + int(SAMPLE / INPUTS / max(seconds, 1e-7))
    samples = []
    for _ in range(SAMPLES):
        begin = clock()
        for _ in range(rounds):
            for call in calls:
                call()
        samples.append((clock() - begin) / rounds / INPUTS)
    return min(samples), result


def serve(threads: int, limit: float, counted: str | None) -> None:
    """Measure the scenes that come as lines of JSON; answer with the cost and what tells results apart.

    A scene that takes more than `limit` seconds ends the process.  `counted` is the directory of the counter.
    """
    import mmort

    mmort.set_num_threads(threads)
    counter = Counter(counted) if counted else None
    called: set[str] = set()

    @functools.lru_cache(maxsize=INPUTS)
    def prepare(line: str, index: int) -> tuple[str, Callable[[], Any] | None]:
        """Return the function's name and a call of it, for the scene's seed or a later one; None without it."""
        scene = json.loads(line)
        name, arguments, options = module_of(scene["operator"]).prepare({**scene, "seed": scene["seed"] + index})
        function = getattr(mmort, name, None)
        return name, None if function is None else functools.partial(function, *arguments, **options)

    for line in sys.stdin:
        name, call = prepare(line, 0)
        answer: dict[str, Any] = {"cost": None, "hash": None}
        if call is not None:
            signal.setitimer(signal.ITIMER_REAL, limit)  # a timer of CPU time would make its clock coarse
            try:
                if counter and name not in called:
                    call()  # imports what the function needs
                    called.add(name)
                if counter:
                    cost, result = counter.count(call)
                else:
                    cost, result = measure_time(lambda index, line=line: prepare(line, index)[1], threads)
                state = hashlib.sha256()
                digest(result, state)
                answer = {"cost": cost, "hash": state.hexdigest(), "summary": summarize(result)}
            except (ValueError, MemoryError) as error:
                answer["error"] = str(error)
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(answer), flush=True)


class Build:
    """A build of mmort in a directory, and its process."""

    def __init__(self, directory: str, options: argparse.Namespace, counted: str | None) -> None:
        self.directory, self.threads, self.limit, self.counted = directory, options.threads, options.limit, counted
        self.process: subprocess.Popen[str] | None = None

    def measure(self, scene: Scene) -> dict[str, Any]:
        """Return the answer of a turn."""
        if self.process is None:
            words = [sys.executable, "-P", __file__, "--serve", "--threads", str(self.threads)]
            words += ["--limit", str(self.limit)]
            if self.counted:
                words = [*command(self.counted), *words, "--counted", self.counted]
            self.process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([self.directory, os.path.dirname(__file__)])},
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
        return {"cost": math.inf, "hash": None, "error": f"more than {self.limit:g} s"}

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


# ---- comparison ------------------------------------------------------------------------------------------------------


def check_results(scene: Scene, answers: list[dict[str, Any]]) -> bool:
    """Raise if results differ in more than rounding; return whether they are the same bits."""
    known = [answer for answer in answers if answer["hash"]]
    equal = len({answer["hash"] for answer in known}) <= 1
    if not equal and scene["operator"] in suppression_scenes.OPERATORS:
        raise SystemExit(f"results differ: {describe(scene)} {scene}")
    for answer in known[1:]:
        if not np.allclose(answer["summary"], known[0]["summary"], rtol=1e-3, atol=1e-2, equal_nan=True):
            raise SystemExit(f"results differ by more than rounding: {describe(scene)} {scene}")
    return equal


def measure(builds: list[Build], scene: Scene) -> list[dict[str, Any]]:
    """Return the best answer of each build."""
    answers: list[list[dict[str, Any]]] = [[] for _ in builds]
    for turn in range(1 if builds[0].counted else TURNS):
        for i in range(len(builds)):
            k = (i + turn) % len(builds)
            if turn and (answers[k][-1].get("error") or answers[k][-1]["cost"] is None):
                continue
            if turn and turn * answers[k][-1]["cost"] > LONG:
                continue
            answers[k].append(builds[k].measure(scene))
    return [best(several) for several in answers]


def best(answers: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the answer of the smallest cost."""
    return min(answers, key=lambda answer: answer["cost"] or math.inf)


def ratio_of(answers: list[dict[str, Any]]) -> float | None:
    """Return the last cost divided by the smallest of the others; None without one of them."""
    call = CALL_INSTRUCTIONS if isinstance(answers[-1]["cost"], int) else CALL
    before = [answer["cost"] for answer in answers[:-1] if answer["cost"] is not None]
    return (answers[-1]["cost"] + call) / (min(before) + call) if before and answers[-1]["cost"] else None


def measure_ratio(builds: list[Build], scene: Scene) -> tuple[float | None, list[dict[str, Any]]]:
    """Return the ratio of a scene and the best answers: of more processes while the ratio is doubtful."""
    answers = measure(builds, scene)
    for _ in range(0 if builds[0].counted else MORE_PROCESSES):
        ratio = ratio_of(answers)
        if ratio is None or not DOUBTFUL < ratio < math.inf:
            break
        for build in builds:
            build.end()
        answers = [best(pair) for pair in zip(answers, measure(builds, scene), strict=True)]
    return ratio_of(answers), answers


def show(answer: dict[str, Any]) -> str:
    """Return milliseconds, or millions of instructions."""
    if answer.get("error"):
        return "refused" if answer["cost"] is None else "too slow"
    if answer["cost"] is None:
        return "-"
    return f"{answer['cost'] * (1e-6 if isinstance(answer['cost'], int) else 1e3):.3g}"


def compare(builds: list[Build], options: argparse.Namespace) -> None:
    """Print quantiles and the worst scenes of each operator."""
    print("| operator | scenes | smallest | 5 % | median | 95 % | worst | scene of the worst |\n|-|-|-|-|-|-|-|-|")
    listing: list[str] = []
    rounded: dict[str, int] = {}
    largest = 0.0
    for operator in options.operators:
        rng = np.random.default_rng([options.seed, zlib.crc32(operator.encode())])
        rows: list[tuple[float, Scene, list[dict[str, Any]]]] = []
        end = time.monotonic() + options.seconds / len(options.operators)
        for _ in range(options.scenes):
            if time.monotonic() > end:
                break
            scene = module_of(operator).draw(rng, operator, options.scale)
            ratio, answers = measure_ratio(builds, scene)
            if answers[-1].get("error") and any(answer["hash"] for answer in answers):
                raise SystemExit(f"{answers[-1]['error']}: {describe(scene)} {scene}")
            if not check_results(scene, answers):
                rounded[operator] = rounded.get(operator, 0) + 1
            if ratio is not None:
                rows.append((ratio, scene, answers))
        if len(rows) < 2:
            print(
                f"| `{operator}` | {len(rows)} | not in earlier builds, or too few: more --seconds | | | | | |",
                flush=True,
            )
            continue
        rows.sort(key=lambda row: row[0])
        ratios = [row[0] for row in rows]
        largest = max(largest, ratios[-1])
        cuts = statistics.quantiles(ratios, n=20, method="inclusive")
        print(
            f"| `{operator}` | {len(rows)} | {ratios[0]:.3f} | {cuts[0]:.2f} | {cuts[9]:.2f} | {cuts[18]:.2f} "
            f"| {ratios[-1]:.2f} | {describe(rows[-1][1])} |", flush=True
        )  # fmt: skip
        unit = "million instructions" if options.instructions else "ms"
        for ratio, scene, answers in rows[: -options.worst - 1 : -1]:
            costs = " ".join(f"{show(answer):>8}" for answer in answers)
            listing.append(f"{ratio:6.2f} {costs} {unit}  {operator}: {describe(scene)}")
    print("\n" + "\n".join(listing))
    for operator, number in rounded.items():
        print(f"{operator}: {number} results differ in rounding")
    if options.fail_above is not None and largest > options.fail_above:
        raise SystemExit(f"a scene costs {largest:.2f} times as much as before, more than {options.fail_above:g}")


def grow(builds: list[Build], options: argparse.Namespace) -> None:
    """Print exponents of growth: of each build's time between n and 4 n boxes of the same density."""
    print("| operator | sizes | overlaps | IoU | boxes |" + " exponent |" * len(builds))
    print("|-|-|-|-|-|" + "-|" * len(builds))
    for operator in (name for name in options.operators if name in MAX_BOXES):
        largest = int(options.scale * MAX_BOXES[operator]) // 4
        for sizes in SIZES:
            for density, threshold in ((1.0, 0.5), (100.0, 0.1), (100.0, 0.5)):
                scene = {
                    "operator": operator, "count": largest, "density": density, "sizes": sizes, "order": "random",
                    "threshold": threshold, "classes": 1, "offset": 0, "max_num": -1, "dtype": "float32",
                    "method": "linear", "angles": "any", "seed": options.seed,
                }  # fmt: skip
                if sizes in {"anchors", "equal", "nested"} and density == 1.0:
                    continue
                small, large = (measure(builds, scene | {"count": n}) for n in (largest, 4 * largest))
                words = []
                for few, many in zip(small, large, strict=True):
                    both = few["hash"] and many["hash"]
                    words.append(f"{math.log(many['cost'] / few['cost'], 4):.2f}" if both else "-")
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
                "offset": 0, "max_num": -1, "dtype": "float32", "method": "linear",
                "angles": "any", "seed": options.seed,
            }  # fmt: skip
            answers = measure(builds, scene)
            print(f"| `{operator}`, {describe(scene)} | {' | '.join(map(show, answers))} |", flush=True)


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
    parser.add_argument("--scale", type=float, default=1, help="of the largest scenes")
    parser.add_argument("--instructions", action="store_true", help="count them by valgrind instead of taking times")
    parser.add_argument("--fail-above", type=float, metavar="RATIO")
    parser.add_argument("--counted", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.threads, options.limit, options.counted)
        return
    unit = "instructions" if options.instructions else "CPU time" if options.threads == 1 else "elapsed time"
    print(f"seed {options.seed}, {unit}, threads {options.threads}, load {os.getloadavg()[0]:.1f}\n")
    with make_directory() as directory:
        builds = [Build(name, options, directory if options.instructions else None) for name in options.builds]
        try:
            (grow if options.growth else tabulate if options.table else compare)(builds, options)
        finally:
            for build in builds:
                build.end()


if __name__ == "__main__":
    main()
