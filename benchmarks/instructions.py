"""Counting the instructions of calls, which other work on the machine does not change: by valgrind's tool callgrind.

A process that `command` starts runs without being counted between calls of `Counter.count`, so imports cost little.
valgrind knows AVX2 but not AVX-512, so what is counted is the kernels' way on a processor with AVX2.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")

SOURCE = """
#include <valgrind/callgrind.h>
void begin_counting(void) { CALLGRIND_START_INSTRUMENTATION; CALLGRIND_ZERO_STATS; }
void end_counting(void) { CALLGRIND_DUMP_STATS; CALLGRIND_STOP_INSTRUMENTATION; }
"""
LIBRARY = "counting.so"


def command(directory: str) -> list[str]:
    """Return the beginning of a command line that counts, and builds into the directory what the process needs."""
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions are counted by valgrind, which is not installed")
    source, library = os.path.join(directory, "counting.c"), os.path.join(directory, LIBRARY)
    if not os.path.exists(library):
        with open(source, "w") as file:
            file.write(SOURCE)
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    out = os.path.join(directory, "out.%p")
    return ["valgrind", "-q", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]


class Counter:
    """The counter of a process, whose command line begins with `command(directory)`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.library = ctypes.CDLL(os.path.join(directory, LIBRARY))

    def count(self, function: Callable[[], Result]) -> tuple[int, Result]:
        """Return the instructions of a call, and its result."""
        self.library.begin_counting()
        result = function()
        self.library.end_counting()
        prefix = f"out.{os.getpid()}."
        (name,) = (name for name in os.listdir(self.directory) if name.startswith(prefix))
        path = os.path.join(self.directory, name)
        with open(path) as file:
            totals = re.findall(r"^totals: (\d+)", file.read(), re.MULTILINE)
        os.remove(path)
        return sum(map(int, totals)), result


def make_directory() -> tempfile.TemporaryDirectory[str]:
    """Return a directory for `command` and `Counter`, which the caller cleans up."""
    return tempfile.TemporaryDirectory(prefix="counting-")
