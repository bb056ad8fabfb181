"""The threads of the numpy API: one shared pool, used only for jobs long enough to gain from it."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

MIN_CHUNKS = 16
"""Jobs of fewer chunks (of about 20 microseconds each) run on the calling thread: handing work over costs as much."""

_CHUNKS_PER_THREAD = 4  # so that one delayed thread does not delay the call

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def get_num_threads() -> int:
    """Return how many threads a call of the numpy API may use.

    Returns
    -------
    int
        The number last set with `set_num_threads`; before that, the number of processors this process may use.

    Examples
    --------
    >>> import mmort
    >>> mmort.get_num_threads() >= 1
    True
    """
    return _num_threads


def set_num_threads(num_threads: int) -> None:
    """Set how many threads a call of the numpy API may use, for the whole process.

    Small calls always run on the calling thread.  ONNX Runtime sessions use their own threads
    (``SessionOptions.intra_op_num_threads``).

    Parameters
    ----------
    num_threads : int
        At least 1.

    Raises
    ------
    TypeError, ValueError
        If `num_threads` is not an integer, or below 1.

    Examples
    --------
    >>> import mmort
    >>> before = mmort.get_num_threads()
    >>> mmort.set_num_threads(1)
    >>> mmort.get_num_threads()
    1
    >>> mmort.set_num_threads(before)
    """
    global _num_threads, _pool
    if not isinstance(num_threads, int) or isinstance(num_threads, bool):
        raise TypeError(f"set_num_threads: num_threads must be an integer, got {num_threads!r}")
    if num_threads < 1:
        raise ValueError(f"set_num_threads: num_threads must be at least 1, got {num_threads}")
    with _lock:
        _num_threads, _pool = num_threads, None  # running calls keep the pool they have


def _get_pool() -> ThreadPoolExecutor:
    """Return the pool, created by the first call that needs it."""
    global _pool
    with _lock:
        if _pool is None:
            _pool = ThreadPoolExecutor(max(1, _num_threads - 1), thread_name_prefix="mmort")
        return _pool


def split(run_range: Callable[[int, int, int], object], phase: int, work: int, chunks: int) -> None:
    """Call ``run_range(phase, begin, end)`` for ranges that make up [0, work), on all threads.

    The calling thread works too, and waits only for ranges that another thread has begun: if the machine or the pool
    is busy, it does the work alone.
    """
    threads = get_num_threads()
    count = min(chunks, threads * _CHUNKS_PER_THREAD)
    numbers = itertools.count()  # next() on it is atomic

    def help_out() -> None:
        while (number := next(numbers)) < count:
            run_range(phase, work * number // count, work * (number + 1) // count)

    helpers = []
    with contextlib.suppress(RuntimeError):  # the interpreter is exiting, and starts no threads any more
        helpers += [_get_pool().submit(help_out) for _ in range(min(threads, count) - 1)]
    try:
        help_out()
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        for helper in begun:
            helper.exception()  # waits
    for helper in begun:
        helper.result()


def _forget_pool() -> None:
    """Drop a pool whose threads are gone, and a lock that one of them may have held."""
    global _pool, _lock
    _pool, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)  # threads do not survive a fork
