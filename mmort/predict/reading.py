"""An iterator that is read ahead by a thread of its own, which may block for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


MAX_WAIT = 1.0
"""Seconds that stopping waits for the iterator's next item, so that the thread of one that does not block has ended."""


@dataclass(frozen=True)
class Chunk(Generic[Result]):
    """Consecutive items, as `handle` returned them.

    Attributes
    ----------
    items : list
    is_last : bool
        Whether the iterator has ended.
    error : Exception, optional
        What the iterator raised in the end.
    """

    items: list[Result]
    is_last: bool
    error: Exception | None = None


class Reader(Generic[Item, Result]):
    """Reads chunks of an iterator, in order, as they are asked for.

    The thread is a daemon: an iterator that blocks, such as one over a camera or a queue, keeps neither `stop` nor the
    process from ending.

    Parameters
    ----------
    iterator : iterator
    handle : callable
        Is called with each item as soon as it is read, in the thread; what it returns is in the chunk.
    """

    def __init__(self, iterator: Iterator[Item], handle: Callable[[Item], Result]) -> None:
        self._iterator, self._handle = iterator, handle
        self._requests: SimpleQueue[tuple[int, Future[Chunk[Result]]] | None] = SimpleQueue()
        self._lock, self._open, self._stopped = threading.Lock(), set[Future[Chunk[Result]]](), False
        self._thread = threading.Thread(target=self._run, name="mmort-reading", daemon=True)
        self._thread.start()

    def request(self, size: int) -> Future[Chunk[Result]]:
        """Return the next chunk, of `size` items unless the iterator ends before, when it will have been read."""
        future: Future[Chunk[Result]] = Future()
        with self._lock:
            self._open.add(future)
        self._requests.put((size, future))
        return future

    def stop(self) -> None:
        """Read no further; chunks that have not been read are empty and the last."""
        with self._lock:
            self._stopped = True
            for future in self._open:
                future.set_result(Chunk([], True))
            self._open.clear()
        self._requests.put(None)
        self._thread.join(MAX_WAIT)

    def _run(self) -> None:
        while (request := self._requests.get()) is not None:
            size, future = request
            try:
                chunk, error = self._read(size), None
            except BaseException as raised:  # SystemExit of the iterator, for instance, is the caller's
                chunk, error = None, raised
            with self._lock:
                if self._stopped:
                    return
                self._open.remove(future)
                if chunk is None:
                    future.set_exception(error)
                else:
                    future.set_result(chunk)

    def _read(self, size: int) -> Chunk[Result]:
        """Read a chunk."""
        items: list[Result] = []
        while len(items) < size and not self._stopped:
            try:
                item = next(self._iterator)
            except StopIteration:
                return Chunk(items, True)
            except Exception as error:
                return Chunk(items, True, error)
            items.append(self._handle(item))
        return Chunk(items, False)
