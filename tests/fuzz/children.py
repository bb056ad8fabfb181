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
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz import record

OUT_OF_MEMORY = "AddressSanitizer: allocator is out of memory"
"""Where `operator new` would throw, the sanitizer ends the process: such a case is refused."""

NOTE_SECONDS = 20.0
"""How often a long run notes what it has done."""


@dataclass(frozen=True)
class Fuzzer:
    """Random cases: `make` returns the case of a seed, and may put files into a folder; `run` runs it.

    `run` may raise `refusals`, which its documentation names.  The limits are those of a case, in seconds of CPU and
    bytes.
    """

    name: str
    make: Callable[[random.Random, Path], Any]
    run: Callable[[Any], object]
    refusals: tuple[type[Exception], ...] = (ValueError, OSError, ImportError)
    batch: int = 25


def parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of the options that all commands have."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--seconds", type=float, default=60, help="how long to run")
    options.add_argument("--seed", type=int, default=0, help="the first case")
    options.add_argument("--count", type=int, default=10**9, help="number of cases at most")
    options.add_argument("--record", type=Path, help="file that notes what has run; another run continues there")
    options.add_argument("--max-seconds", type=float, default=2.0, help="limit of a case; sanitizers need more")
    options.add_argument("--max-megabytes", type=float, default=500.0, help="limit of a case; sanitizers need more")
    return options


def main(fuzzer: Fuzzer, options: argparse.Namespace | None = None) -> int:
    """Make and run cases until the time is over; return the exit code."""
    options = options or parser(f"Random {fuzzer.name}, each accepted or refused within limits.").parse_args()
    first = options.seed + record.done(options.record, fuzzer.name)
    last = options.seed + options.count
    end, seed = time.monotonic() + options.seconds, first
    refused, noted, slowest, largest = 0, _Noted(first), (0.0, 0), (0.0, 0)
    while time.monotonic() < end and seed < last:
        batch = range(seed, min(seed + fuzzer.batch, last))
        results, errors = _in_child(batch, fuzzer, options.max_megabytes)
        if len(results) < len(batch) and OUT_OF_MEMORY in errors:
            results.append((0.0, 0.0, "refused"))
        for case, (seconds, size, problem) in zip(batch, results, strict=False):
            refused += problem == "refused"
            slowest, largest = max(slowest, (seconds, case)), max(largest, (size, case))
            too_much = seconds > options.max_seconds or size > options.max_megabytes * 1e6
            if too_much or problem not in ("", "refused"):
                return _report(case, fuzzer, f"{seconds:.2f} s, {size / 1e6:.0f} MB {problem}")
        if len(results) < len(batch) and OUT_OF_MEMORY not in errors:
            print(errors)
            return _report(seed + len(results), fuzzer, "the process ended")
        seed += len(results)
        if noted.is_due():
            noted.note(options.record, fuzzer.name, seed, refused, slowest[0], largest[0])
    noted.note(options.record, fuzzer.name, seed, refused, slowest[0], largest[0])
    print(
        f"{seed - first} {fuzzer.name}, {refused} refused; at most {slowest[0]:.2f} s (case {slowest[1]}), "
        f"{largest[0] / 1e6:.0f} MB (case {largest[1]})"
    )
    return 0


class _Noted:
    """What the record holds of this run."""

    def __init__(self, seed: int):
        self.seed, self.refused, self.time = seed, 0, time.monotonic()

    def is_due(self) -> bool:
        return time.monotonic() > self.time + NOTE_SECONDS

    def note(self, path: Path | None, name: str, seed: int, refused: int, slowest: float, largest: float) -> None:
        now = time.monotonic()
        if seed == self.seed:
            return
        figures = {"cases": seed - self.seed, "refused": refused - self.refused, "seconds": round(now - self.time, 1)}
        record.note(path, name, **figures, max_seconds=round(slowest, 2), max_mb=round(largest / 1e6))
        self.seed, self.refused, self.time = seed, refused, now


def _in_child(batch: range, fuzzer: Fuzzer, megabytes: float) -> tuple[list[tuple[float, float, str]], str]:
    """Run cases in a child process; return what each took and gave, and what the child wrote to stderr.

    That is seconds of CPU, bytes by which the peak of memory grew, and the outcome.  Results that would take ten times
    the limit of memory cannot be allocated.
    """
    receiving, sending = os.pipe()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="backslashreplace") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + int(megabytes * 1e7)
            resource.setrlimit(resource.RLIMIT_AS, (size, size))
            resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
            try:
                for case in batch:
                    os.write(sending, (repr(_run(case, fuzzer)) + "\n").encode("utf-8", "backslashreplace"))
            except BaseException:
                traceback.print_exc()  # of `make`
            os._exit(0)
        os.close(sending)
        with open(receiving, "rb") as file:
            lines = file.read().decode().splitlines()
        os.waitpid(child, 0)
        errors.seek(0)
        return [eval(line, {"__builtins__": {}}) for line in lines], errors.read()  # reprs of three constants


def _run(seed: int, fuzzer: Fuzzer) -> tuple[float, float, str]:
    """Run a case."""
    with tempfile.TemporaryDirectory() as folder:
        case = fuzzer.make(random.Random(seed), Path(folder))
        memory, start, problem = _peak(), time.process_time(), ""
        try:
            fuzzer.run(case)
        except fuzzer.refusals:
            problem = "refused"
        except BaseException as error:
            problem = f"{type(error).__name__}: {error}"[:400]
        return time.process_time() - start, _peak() - memory, problem


def _peak() -> float:
    """Return the peak of the process's memory, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _report(case: int, fuzzer: Fuzzer, problem: str) -> int:
    """Print a case that broke a limit and keep its files."""
    folder = Path(tempfile.mkdtemp(prefix="mmort-fuzz-"))
    with contextlib.suppress(Exception):
        fuzzer.make(random.Random(case), folder)
    print(f"{fuzzer.name}, case {case} (files in {folder}): {problem}")
    return 1
