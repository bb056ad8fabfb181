"""Files that are read: regular ones only, as a pipe or a device could block or never end, and nothing is downloaded."""

from __future__ import annotations

import os
import re
import stat
from typing import BinaryIO


def refuse_address(name: str, path: str | os.PathLike[str]) -> None:
    """Refuse ``https://...``, ``open-mmlab://...`` and the like, which MMDetection would download.

    Parameters
    ----------
    name : str
        What the path is of, for the message.
    path : path

    Raises
    ------
    ValueError
        If `path` is an address.

    Examples
    --------
    >>> from mmort._files.inputs import refuse_address
    >>> refuse_address("checkpoint", "https://download.openmmlab.com/x.pth")
    Traceback (most recent call last):
      ...
    ValueError: checkpoint must be a file, download it first: https://download.openmmlab.com/x.pth
    """
    if re.match(r"[A-Za-z][\w.+-]+:/", os.fspath(path)):  # at least two letters, unlike a drive
        raise ValueError(f"{name} must be a file, download it first: {os.fspath(path)}")


def is_checkpoint(path: str | os.PathLike[str]) -> bool:
    """Return whether a file's name is that of torch's weights, which people pass where an ONNX file belongs."""
    return os.fspath(path).endswith((".pth", ".pt"))


def open_regular(name: str, path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file to read bytes.

    Parameters
    ----------
    name : str
        What the file is, for the message.
    path : path

    Raises
    ------
    ValueError
        If `path` is an address, neither a regular file nor a directory, or no path at all.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> from mmort._files.inputs import open_regular
    >>> open_regular("image", "/dev/null")
    Traceback (most recent call last):
      ...
    ValueError: image must be a regular file, got a pipe or a device: /dev/null
    """
    if "\0" in os.fspath(path):
        raise ValueError(f"{name} must be a path, got one with a null character: {os.fspath(path)!r}")
    refuse_address(name, path)
    without_waiting = getattr(os, "O_NONBLOCK", 0)  # for a writer of a pipe
    file = open(path, "rb", opener=lambda file, flags: os.open(file, flags | without_waiting))  # noqa: SIM115
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise ValueError(f"{name} must be a regular file, got a pipe or a device: {os.fspath(path)}")


def require_regular(name: str, path: str | os.PathLike[str]) -> None:
    """Refuse a path that leads to no regular file, for libraries that open it themselves; see `open_regular`."""
    open_regular(name, path).close()


def read_bytes(name: str, path: str | os.PathLike[str], limit: int | None = None) -> bytes:
    """Read a regular file; refuse one of more than `limit` bytes."""
    with open_regular(name, path) as file:
        size = os.fstat(file.fileno()).st_size
        if limit is not None and size > limit:
            raise ValueError(f"{name} must have at most {limit} bytes, got {size}: {os.fspath(path)}")
        return file.read()


def read_text(name: str, path: str | os.PathLike[str]) -> str:
    """Read a regular file in UTF-8; ValueError names a file that is not."""
    try:
        return read_bytes(name, path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name} must be UTF-8 text: {os.fspath(path)}: {error}") from None
