"""The lines that an export prints: each step when it begins, signs of life in long ones, and nothing of torch's."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from io import StringIO
from typing import IO

HEARTBEAT = 10.0  # seconds
MIN_SECONDS = 1.0  # of a step whose time is printed


class Steps:
    """Announces steps, prints a line every 10 seconds while one goes on, and the time that it took.

    As a context manager, it ends the last step with the block.

    Parameters
    ----------
    progress : callable
        Takes the lines to print, also in another thread.
    """

    def __init__(self, progress: Callable[[str], None]) -> None:
        self.progress = progress
        self._begin = time.perf_counter()
        self._ended = threading.Event()
        self._heart: threading.Thread | None = None

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.end(failed=kind is not None)

    def begin(self, step: str) -> None:
        """End the current step and announce the next one."""
        self.end()
        self.progress(step)
        self._begin, self._ended = time.perf_counter(), threading.Event()
        self._heart = threading.Thread(target=self._beat, args=(self._begin, self._ended), daemon=True)
        self._heart.start()

    def end(self, failed: bool = False) -> None:
        """End the current step, if there is one; print its time if it took a second or more."""
        if self._heart is None:
            return
        self._ended.set()
        self._heart.join()  # it may print, and the caller may replace stdout after this
        self._heart = None
        seconds = time.perf_counter() - self._begin
        if seconds >= MIN_SECONDS and not failed:
            self.progress(f"  {seconds:.1f} s")

    def _beat(self, begin: float, ended: threading.Event) -> None:
        """Print signs of life until the step has ended."""
        while not ended.wait(HEARTBEAT):
            with suppress(OSError):  # of a full disk; what is printed next says it
                self.progress(f"  ... {time.perf_counter() - begin:.0f} s")


class _Muted(StringIO):
    """Drops what one thread writes, and passes on what others do."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__()
        self._stream, self._thread = stream, threading.get_ident()

    def write(self, text: str) -> int:
        return len(text) if threading.get_ident() == self._thread else self._stream.write(text)

    def flush(self) -> None:
        self._stream.flush()


_KEPT: list[_Muted] = []
"""`print` holds no reference to the stdout that it writes to: another thread's would go on with a freed stream."""


@contextmanager
def muted() -> Iterator[None]:
    """Drop what the block prints: torch's older exporter prints whole graphs, onnxslim a table.

    Other threads go on printing.
    """
    stream = _Muted(sys.stdout)
    _KEPT.append(stream)
    with redirect_stdout(stream):
        yield
