"""A file to which one process at a time appends lines: whole ones, and after a kill perhaps half of the last."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

try:
    import fcntl
except ModuleNotFoundError:  # Windows, where nothing keeps two runs apart
    fcntl = None  # type: ignore[assignment]


class LinesFile:
    """A regular file that this process reads and appends to, and that no other one has meanwhile.

    Parameters
    ----------
    path : path
        It is created if it does not exist, and links are not followed.

    Raises
    ------
    ValueError
        If the file is a pipe or a device, or another process has it.
    OSError
        If it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._descriptor = path, _open(path)
        self.end = os.fstat(self._descriptor).st_size

    def read(self) -> BinaryIO:
        """Return the file to read from its beginning; closing it does not close this one."""
        return open(self._descriptor, "rb", closefd=False)

    def cut(self, end: int) -> None:
        """Shorten the file to a length in bytes."""
        os.ftruncate(self._descriptor, end)
        self.end = end

    def append(self, line: bytes) -> None:
        """Write a line, or raise OSError and leave the file as it was."""
        try:
            if (written := os.write(self._descriptor, line)) != len(line):
                raise OSError(f"{self.path}: only {written} of {len(line)} bytes of a line could be written")
        except OSError:
            os.ftruncate(self._descriptor, self.end)
            raise
        self.end += len(line)

    def remove(self, beside: str, folders: Iterable[Path]) -> None:
        """Remove the file, before it the one of another name beside it, and then folders that are empty.

        While this process has the file, which it removes last of both: another one may wait for it.
        """
        with contextlib.suppress(OSError):  # such as folders with other files, and on Windows files that are open
            self.path.with_name(beside).unlink()
            self.path.unlink()
            for folder in folders:
                folder.rmdir()

    def close(self) -> None:
        """Close the file, after its lines have reached the disk."""
        os.fsync(self._descriptor)
        os.close(self._descriptor)


def _open(path: Path) -> int:
    """Open a file to read and to append, and keep other processes from it."""
    without_links = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | without_links, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise ValueError(f"{path} must be a regular file, got a pipe or a device")
            if fcntl is None:
                return file
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another run that ended in between may have removed the file.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.lstat(path)):
                    return file
        except BlockingIOError:
            os.close(file)
            raise ValueError(
                f"{path}: another run is writing to it; wait for its end, or give another directory"
            ) from None
        except BaseException:
            os.close(file)
            raise
        os.close(file)
