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

from report import describe
from rows import LARGE
from timing import time_in_turns

TURNS = 3
RUNS = 5


def measure(beginnings: tuple[str, ...], threads: int) -> dict[str, float]:
    """Return the milliseconds of the rows, of the build of this interpreter."""
    import mmort

    mmort.set_num_threads(threads)
    times = {}
    for function, row in LARGE:
        name = f"{function.__name__}, {describe(row)}"
        if name.startswith(beginnings):
            contender = next(function(**row))
            times[name] = 1e3 * time_in_turns([contender], RUNS)[contender.name]
    return times


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
        print(json.dumps(measure(tuple(options.row) or ("",), options.threads)))
        return
    figures: dict[str, dict[str, list[float]]] = {options.before: {}, options.after: {}}
    for _ in range(TURNS):
        for python in figures:
            command = [python, __file__, *sys.argv[1:], "--measure"]
            measured = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
            for row, figure in measured.items():
                figures[python].setdefault(row, []).append(figure)
    print(f"| {options.threads} threads | before, ms | after, ms | ratio |\n|-|-|-|-|")
    for row in figures[options.after]:
        before, after = (statistics.median(figures[python][row]) for python in (options.before, options.after))
        print(f"| {row} | {before:.3g} | {after:.3g} | {before / after:.2f} |")


if __name__ == "__main__":
    main()
