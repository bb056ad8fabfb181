"""Drafts: files and folders that get their name when they are whole, or are gone when the block that made them ends.

A process holds a lock on each of its drafts.  What a killed process has left has none, and is removed by the next one
that makes a draft in the same directory.  Where there are no locks, as on Windows, nothing is removed.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

TEMPORARY = ".mmort-"
_NAME = re.compile(rf"{re.escape(TEMPORARY)}[0-9a-f]{{16}}", re.ASCII)
"""The name of a draft; a file that belongs to a folder of drafts has a name that begins so, and goes on with ``-``."""

_EXCHANGE = ".mmort_exchange-"
"""How folders begin that a later run must not remove: if the process is killed, a former folder is there."""

_swept: set[tuple[int, int]] = set()
"""Directories from which this process has removed what others left."""

_unfinished: dict[str, int] = {}
"""Drafts whose blocks have not ended, with the id of the process that made them."""


@contextlib.contextmanager
def draft_file(directory: str | os.PathLike[str]) -> Iterator[str]:
    """Make an empty file with a hidden name, which is removed at the end of the block unless it is renamed.

    Examples
    --------
    >>> import os, tempfile
    >>> from mmort._files.drafts import draft_file, replace_by, write_draft
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with draft_file(directory) as draft:
    ...         write_draft(draft, b"whole")
    ...         replace_by(draft, os.path.join(directory, "file"))
    ...     os.listdir(directory)
    ['file']
    """

    def make(draft: str) -> None:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))

    with _draft(directory, make) as draft:
        yield draft


@contextlib.contextmanager
def draft_folder(directory: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a folder with a hidden name, which is removed at the end of the block.

    Examples
    --------
    >>> import os, tempfile
    >>> from mmort._files.drafts import draft_folder
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with draft_folder(directory) as folder:
    ...         os.listdir(directory) == [folder.name]
    ...     os.listdir(directory)
    True
    []
    """
    with _draft(directory, lambda folder: os.mkdir(folder, 0o700)) as folder:
        yield Path(folder)


@contextlib.contextmanager
def _draft(directory: str | os.PathLike[str], make: Callable[[str], None]) -> Iterator[str]:
    """Make a file or a folder with a hidden name, locked, which is removed at the end of the block if it is there."""
    _remove_left(directory)
    while True:
        draft = _new_name(directory)
        try:
            make(draft)
            with _locked(draft, wait=True):
                if os.path.exists(draft):  # another process has not removed it before it was locked
                    yield draft
                    return
        finally:
            _remove(draft)


def temporary_folder() -> contextlib.AbstractContextManager[Path]:
    """Make a folder among the system's temporary files, which is removed at the end of the block."""
    return draft_folder(tempfile.gettempdir())


@contextlib.contextmanager
def draft_beside(path: Path) -> Iterator[Path]:
    """Yield a hidden path beside a file, for a draft that refers to the file's neighbours; it is removed if it is left.

    Examples
    --------
    >>> import os, pathlib, tempfile
    >>> from mmort._files.drafts import draft_beside, write_draft
    >>> with tempfile.TemporaryDirectory() as directory:
    ...     with draft_beside(pathlib.Path(directory, "a.onnx")) as draft:
    ...         write_draft(draft, b"")
    ...         len(os.listdir(directory)), draft.name.endswith("-a.onnx")
    ...     os.listdir(directory)
    (2, True)
    []
    """
    with draft_folder(path.parent) as folder:
        yield path.with_name(f"{folder.name}-{path.name}")


@contextlib.contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Replace a folder by a draft at the end of the block, unless the block raises; yields the draft's path.

    A process that is killed between the two renames leaves the former folder and the draft in a hidden one.
    """
    directory = folder.parent
    with tempfile.TemporaryDirectory(prefix=_EXCHANGE, dir=directory) as drafts:
        draft, former = Path(drafts, folder.name), Path(drafts, "former")
        draft.mkdir()
        yield draft
        if folder.exists():
            folder.rename(former)
        draft.rename(folder)
        synchronize_directory(directory)


def write_draft(draft: str | os.PathLike[str], content: bytes) -> None:
    """Write the content of a draft, or of a file in a folder of drafts."""
    with open(draft, "wb") as stream:
        stream.write(content)


def remove_draft(draft: Path) -> None:
    """Remove a file in a folder of drafts, which is not needed after all."""
    draft.unlink()


def replace_by(draft: str | os.PathLike[str], file: str | os.PathLike[str], mode: int | None = None) -> None:
    """Give a finished draft a file's name, so that a power loss leaves the former file or the whole new one.

    If there is a `mode`, the draft gets it last, as it may let nobody write.
    """
    synchronize_file(draft)
    if mode is not None:
        os.chmod(draft, mode)
    os.replace(draft, file)
    synchronize_directory(os.path.dirname(os.path.abspath(file)))


def synchronize_file(file: str | os.PathLike[str]) -> None:
    """Have the content of a file survive a power loss."""
    with open(file, "r+b") as stream:  # Windows synchronizes no file that is open to read
        os.fsync(stream.fileno())


def synchronize_directory(directory: str | os.PathLike[str]) -> None:
    """Have the names in a directory survive a power loss, where the system can do that."""
    with contextlib.suppress(OSError):  # Windows opens no directories, and some file systems do not synchronize them
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def remove_unfinished() -> None:
    """Remove the drafts of this process whose blocks an interrupt has ended before or in their clean-up."""
    for draft, process in list(_unfinished.items()):
        if process == os.getpid():
            _remove(draft)


def _new_name(directory: str | os.PathLike[str]) -> str:
    """Return a path that no file has, and note it."""
    draft = os.path.join(directory, f"{TEMPORARY}{secrets.token_hex(8)}")
    _unfinished[draft] = os.getpid()
    return draft


def _remove(draft: str | os.PathLike[str]) -> None:
    """Remove a draft, unless it has another name by now, and the files that belong to it."""
    directory, name = os.path.split(draft)
    with contextlib.suppress(OSError):
        if stat.S_ISDIR(os.lstat(draft).st_mode):
            for belonging in Path(directory).glob(f"{name}-*"):
                belonging.unlink(missing_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
        else:
            os.unlink(draft)
    _unfinished.pop(os.fspath(draft), None)


@contextlib.contextmanager
def _locked(path: str | os.PathLike[str], *, wait: bool) -> Iterator[bool]:
    """Lock a file or folder; yield whether that worked, which it does not on Windows and some file systems."""
    try:
        import fcntl

        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (ImportError, OSError):
        yield False
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _remove_left(directory: str | os.PathLike[str]) -> None:
    """Remove the drafts that no process has locked, once for each directory."""
    status = os.stat(directory)
    if (status.st_dev, status.st_ino) in _swept:
        return
    _swept.add((status.st_dev, status.st_ino))
    try:
        drafts = [path for path in Path(directory).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:  # it may be one that can be written to, but not read
        return
    for draft in drafts:
        if draft.is_symlink() or not (draft.is_file() or draft.is_dir()):
            continue
        with _locked(draft, wait=False) as is_left:
            if is_left:
                _remove(draft)
