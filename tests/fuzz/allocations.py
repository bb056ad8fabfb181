"""Each allocation of the numpy module fails once: a call raises MemoryError, and the next one gives the same results.

python -m tests.fuzz.allocations [--count 40] [--seed N]: the count is that of each operator's valid calls.
"""

import ctypes
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import mmort
from tests import front_ends
from tests.compare import assert_same
from tests.fuzz import children, record
from tests.fuzz.valid import VALID, Call, make_call

SOURCE = Path(__file__).parent / "bridge" / "failing_malloc.c"


def run(call: Call) -> tuple[np.ndarray, ...]:
    return front_ends.run_numpy(call.operator, call.arrays, call.attributes)


def main() -> int:
    parser = children.parser("Failing allocations of the numpy API.")
    parser.set_defaults(count=40)
    options = parser.parse_args()
    if "failing_malloc" not in os.environ.get("LD_PRELOAD", ""):
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder, "failing_malloc.so")
            subprocess.run(["cc", "-O1", "-shared", "-fPIC", SOURCE, "-o", library, "-ldl"], check=True)
            command = [sys.executable, "-m", "tests.fuzz.allocations", *sys.argv[1:]]
            environment = os.environ | {"LD_PRELOAD": str(library)}
            return subprocess.run(command, check=False, env=environment).returncode
    process = ctypes.CDLL(None)
    mmort.set_num_threads(1)
    failures = calls = 0
    first = options.seed + record.done(options.record, "failing allocations") // len(VALID)
    for operator in sorted(VALID):
        for seed in range(first, options.seed + options.count):
            call = make_call(operator, np.random.default_rng(seed))
            process.fail_malloc(0)
            wanted = run(call)
            for k in range(1, process.count_malloc() + 1):
                process.fail_malloc(k)
                try:
                    run(call)
                except MemoryError:
                    failures += 1
                else:
                    raise AssertionError(f"{operator}, seed {seed}: allocation {k} failed without a MemoryError")
            process.fail_malloc(0)
            assert_same(run(call), wanted, f"{operator}, seed {seed}")
            calls += 1
    if calls:
        record.note(options.record, "failing allocations", cases=calls, failures=failures)
    print(f"{calls} calls, {failures} failed allocations")
    return 0


if __name__ == "__main__":
    sys.exit(main())
