"""Run random cases in child processes, and measure what they take.

A child runs a batch; the first case that breaks a limit is printed, and its files are kept.  A case follows from its
seed: ``--seed N --count 1`` runs it again.
"""

import argparse
import contextlib
import os
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

BATCH = 25
MAX_SECONDS, MAX_BYTES = 2.0, 500e6


def main(name: str, write: Callable[[random.Random, Path], Path], read: Callable[[Path], None]) -> int:
    """Write and read cases until the time is over; return the exit code.

    `write` puts files into a folder and returns the one to read.  `read` may raise what the reader documents:
    ValueError, OSError and ImportError.
    """
    parser = argparse.ArgumentParser(description=f"Random {name}, each read or refused within limits.")
    parser.add_argument("--seconds", type=float, default=60, help="how long to run")
    parser.add_argument("--seed", type=int, default=0, help="the first case")
    parser.add_argument("--count", type=int, default=10**9, help="number of cases at most")
    options = parser.parse_args()
    end, seed, refused = time.monotonic() + options.seconds, options.seed, 0
    slowest, largest = (0.0, 0), (0.0, 0)
    while time.monotonic() < end and seed < options.seed + options.count:
        batch = range(seed, min(seed + BATCH, options.seed + options.count))
        results = _in_child(batch, write, read)
        for case, (seconds, size, problem) in zip(batch, results, strict=False):
            refused += problem == "refused"
            slowest, largest = max(slowest, (seconds, case)), max(largest, (size, case))
            if seconds > MAX_SECONDS or size > MAX_BYTES or problem not in ("", "refused"):
                return _report(case, write, f"{seconds:.2f} s, {size / 1e6:.0f} MB {problem}")
        if len(results) < len(batch):
            return _report(seed + len(results), write, "the process ended")
        seed += len(batch)
    print(
        f"{seed - options.seed} {name}, {refused} refused; at most {slowest[0]:.2f} s (case {slowest[1]}), "
        f"{largest[0] / 1e6:.0f} MB (case {largest[1]})"
    )
    return 0


def _in_child(
    batch: range, write: Callable[[random.Random, Path], Path], read: Callable[[Path], None]
) -> list[tuple[float, float, str]]:
    """Run cases in a child process; return seconds of CPU, bytes by which the peak of memory grew, and the outcome."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
        for case in batch:
            os.write(sending, (repr(_run(case, write, read)) + "\n").encode("utf-8", "backslashreplace"))
        os._exit(0)
    os.close(sending)
    with open(receiving, "rb") as file:
        lines = file.read().decode().splitlines()
    os.waitpid(child, 0)
    return [eval(line, {"__builtins__": {}}) for line in lines]  # reprs of three constants


def _run(
    case: int, write: Callable[[random.Random, Path], Path], read: Callable[[Path], None]
) -> tuple[float, float, str]:
    """Run a case."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(random.Random(case), Path(folder))
        memory, start, problem = _peak(), time.process_time(), ""
        try:
            read(path)
        except (ValueError, OSError, ImportError):
            problem = "refused"
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"[:200]
        return time.process_time() - start, _peak() - memory, problem


def _peak() -> float:
    """Return the peak of the process's memory, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _report(case: int, write: Callable[[random.Random, Path], Path], problem: str) -> int:
    """Print a case that broke a limit and keep its files."""
    folder = Path(tempfile.mkdtemp(prefix="mmort-fuzz-"))
    with contextlib.suppress(Exception):
        write(random.Random(case), folder)
    print(f"case {case} ({folder}): {problem}")
    return 1
