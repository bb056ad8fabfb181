"""Time detectors' files with mmort's library against their portable forms without it, in ONNX Runtime on one thread.

    python benchmarks/portable_detectors.py FILE ... [--shape 800 1216] [--runs 3]

Prints the CPU seconds of an image, by turns, and the ONNX Runtime operators that gained or lost most, by its profile.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from detectors import session

from mmort.demo import IMAGES
from mmort.images import resize
from mmort.onnx import make_portable
from mmort.predict import read_image


def operators(profile: str) -> Counter[str]:
    """Return the milliseconds of each operator."""
    counts: Counter[str] = Counter()
    for event in json.loads(Path(profile).read_text()):
        if event["name"].endswith("_kernel_time"):
            counts[event["args"]["op_name"]] += round(event["dur"] / 1e3)
    return counts


def row(file: Path, image: np.ndarray, runs: int) -> str:
    """Return the line of a detector."""
    with tempfile.TemporaryDirectory() as folder:
        portable = Path(folder, "portable.onnx")
        make_portable(file, portable)
        sessions = [session(portable, f"{portable}.{library}", library=library) for library in (True, False)]
        seconds: list[list[float]] = [[], []]
        for _ in range(runs):
            for samples, each in zip(seconds, sessions, strict=True):
                begin = time.process_time()
                each.run(None, {"input": image})
                samples.append(time.process_time() - begin)
        profiles = [operators(each.end_profiling()) for each in sessions]
    kernel, definition = map(statistics.median, seconds)
    changes = {name: (profiles[1][name] - profiles[0][name]) // runs for name in profiles[0] | profiles[1]}
    largest = sorted(changes, key=lambda name: -abs(changes[name]))[:4]
    listed = ", ".join(f"{name} {changes[name]:+d} ms" for name in largest)
    return f"| {file.stem} | {kernel:.2f} s | {definition:.2f} s | {definition / kernel:.2f} | {listed} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--shape", nargs=2, type=int, default=(800, 1216), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    height, width = arguments.shape
    image = resize(read_image(IMAGES[0]), width, height)
    image = ((image.astype(np.float32) - 120) / 58).transpose(2, 0, 1)[None]
    print("| file | library | portable | ratio | operators |\n|-|-|-|-|-|")
    for file in arguments.files:
        print(row(file, np.ascontiguousarray(image), arguments.runs), flush=True)


if __name__ == "__main__":
    main()
