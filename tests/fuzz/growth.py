"""The same valid calls of each operator again and again, through numpy and ONNX Runtime: memory does not grow.

python -m tests.fuzz.growth [OPERATOR ...] --count 1000000 [--seconds S]: the count is that of each operator.
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np

from tests import front_ends
from tests.fuzz import children, record
from tests.fuzz.valid import VALID, make_call

WARM_UP = 2_000
MAX_GROWTH = 4e6
"""Bytes; a leak of four bytes a call would pass this in 1,000,000 calls, and allocations are larger than four."""


def resident() -> float:
    """Return the memory of this process, in bytes."""
    return float(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def grow(operator: str, count: int, seconds: float, path: Path | None) -> int:
    """Run calls; return the exit code."""
    part = f"growth {operator}"
    left = count - record.done(path, part)
    if left <= 0:
        return 0
    calls = [make_call(operator, np.random.default_rng(seed)) for seed in range(20)]
    row = front_ends.row_of(operator)

    def run(i: int) -> None:
        call = calls[i % len(calls)]
        if row is not None and i % 2:
            front_ends.run_ort(operator, call.arrays, call.attributes)
        else:
            front_ends.run_numpy(operator, call.arrays, call.attributes)

    for i in range(min(WARM_UP, left)):
        run(i)
    before, start, done = resident(), time.monotonic(), 0
    while done < left and time.monotonic() < start + seconds:
        for i in range(min(500, left - done)):
            run(i)
        done += min(500, left - done)
    growth = resident() - before
    record.note(path, part, cases=done, seconds=round(time.monotonic() - start, 1), max_growth_kb=round(growth / 1e3))
    print(f"{done} calls of {operator}: {growth / 1e3:.0f} kB more")
    return int(growth > MAX_GROWTH)


def main() -> int:
    parser = children.parser("Calls without growth of memory.")
    parser.add_argument("operators", nargs="*", default=sorted(VALID), metavar="OPERATOR")
    options = parser.parse_args()
    seconds = options.seconds / len(options.operators)
    with np.errstate(all="ignore"):
        return max(grow(operator, options.count, seconds, options.record) for operator in options.operators)


if __name__ == "__main__":
    sys.exit(main())
