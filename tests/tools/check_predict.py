"""Measure what `mmort predict` promises.  Run by hand, on a machine that does nothing else.

    python -m tests.tools.check_predict speed MODEL.onnx FOLDER [--threads 2] [--batch-size 1]
    python -m tests.tools.check_predict memory MODEL.onnx FOLDER [--count 10000]
    python -m tests.tools.check_predict resume MODEL.onnx FOLDER [--count 10000] [--kills 10]

`speed` compares predicting the pictures of a folder with bare ``session.run`` on the same inputs, prepared beforehand,
and shows what the rest takes.  `memory` prints the resident memory while pictures are predicted.  `resume` kills
``mmort predict`` again and again until it has finished, and checks that each picture has one line.  `count` pictures
are links to those in the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

from mmort import Predictor
from mmort.predict import OnnxRuntime, list_images

ROUNDS = 9


def speed(model: str, folder: str, threads: int, batch_size: int) -> int:
    """Print how fast predicting is, relative to bare ``session.run``."""
    predict, paths = Predictor(OnnxRuntime(model, threads=threads), score_threshold=0), list_images(folder)
    parallel = Predictor(OnnxRuntime(model, threads=threads, parallel=2), score_threshold=0)
    prepared = [predict.preprocessing(path) for path in paths]
    starts = range(0, len(paths), batch_size)
    batches = [predict.preprocessing.batch(prepared[start : start + batch_size]) for start in starts]

    def bare() -> None:
        for batch in batches:
            predict.network(*batch)

    stages: dict[str, Callable[[], object]] = {
        "session.run alone": bare,
        "predict": lambda: list(predict.predict(paths, batch_size)),
        "predict, parallel=2": lambda: list(parallel.predict(paths, batch_size)),
        "reading and preprocessing alone": lambda: [predict.preprocessing(path) for path in paths],
    }
    seconds: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(ROUNDS + 1):
        for name, run in stages.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first round warms up
    for name, median in medians.items():
        print(f"{name:32}{median / len(paths) * 1e3:8.2f} ms a picture")
    bare_times, best = seconds["session.run alone"][1:], 0.0
    for name in ("predict", "predict, parallel=2"):
        ratio = statistics.median(one / two for one, two in zip(bare_times, seconds[name][1:], strict=True))
        best = max(best, ratio)
        print(f"speed of {name}, relative to session.run: {ratio:.3f} (median of {ROUNDS} rounds)")
    return best < 0.9


def memory(model: str, folder: str, count: int) -> int:
    """Print the resident memory after each tenth of the pictures."""
    predict, paths = Predictor(OnnxRuntime(model, threads=2), score_threshold=0), list_images(folder)
    sizes = []
    for number, _ in enumerate(predict.predict(islice(cycle(paths), count)), 1):
        if number % (count // 10) == 0:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            sizes.append(pages * resource.getpagesize() / 1e6)
            print(f"{number:8} pictures{sizes[-1]:8.1f} MB", flush=True)
    return sizes[-1] > sizes[0] * 1.05


def resume(model: str, folder: str, count: int, kills: int) -> int:
    """Kill the command at random moments, and check its record in the end."""
    random.seed(0)
    sources = list_images(folder)
    with tempfile.TemporaryDirectory() as directory:
        photos = Path(directory, "photos")
        photos.mkdir()
        for number, source in enumerate(islice(cycle(sources), count)):
            (photos / f"{number:06}{source.suffix}").symlink_to(source.resolve())
        record = Path(directory, "out", "detections.jsonl")
        command = [sys.executable, "-m", "mmort", "predict", model, str(photos), "--out-dir", str(record.parent)]
        for attempt in range(kills + 1):
            before = record.read_bytes().count(b"\n") if record.exists() else 0
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            target = before + (count - before) // (kills + 1 - attempt) + random.randrange(20)
            while process.poll() is None:
                if attempt < kills and record.exists() and record.stat().st_size and _lines(record) >= target:
                    os.kill(process.pid, signal.SIGKILL)
                    process.wait()
                time.sleep(0.01)
            text = record.read_text()
            half = "" if text.endswith("\n") else ", and half a line"
            print(f"run {attempt + 1}: exit code {process.returncode}, {text.count(chr(10))} lines{half}", flush=True)
        images = [json.loads(line)["image"] for line in record.read_text().splitlines()]
        wrong = images != [str(path) for path in sorted(photos.iterdir())]
        print(f"{len(images)} lines of {len(set(images))} pictures, of {count}; in order: {not wrong}")
    return wrong


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


def main() -> int:
    """Run a check of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "memory", "resume"])
    parser.add_argument("model")
    parser.add_argument("folder")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=10)
    arguments = parser.parse_args()
    model, folder = arguments.model, arguments.folder
    if arguments.what == "speed":
        return speed(model, folder, arguments.threads, arguments.batch_size)
    if arguments.what == "memory":
        return memory(model, folder, arguments.count)
    return resume(model, folder, arguments.count, arguments.kills)


if __name__ == "__main__":
    sys.exit(main())
