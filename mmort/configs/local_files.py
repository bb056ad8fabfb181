"""Configs and checkpoints as users give them: regular files; addresses, pipes and devices are refused."""

from __future__ import annotations

import os
import re
from typing import BinaryIO

from mmort._files.inputs import open_regular


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
    >>> from mmort.configs.local_files import refuse_address
    >>> refuse_address("checkpoint", "https://download.openmmlab.com/x.pth")
    Traceback (most recent call last):
      ...
    ValueError: checkpoint must be a file, download it first: https://download.openmmlab.com/x.pth
    """
    if re.match(r"[A-Za-z][\w.+-]+:/", os.fspath(path)):  # at least two letters, unlike a drive
        raise ValueError(f"{name} must be a file, download it first: {os.fspath(path)}")


def open_file(name: str, path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file to read bytes; a pipe or a device could block or never end.

    Parameters
    ----------
    name : str
        What the file is, for the message.
    path : path

    Raises
    ------
    ValueError
        If `path` is an address, or neither a regular file nor a directory.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> from mmort.configs.local_files import open_file
    >>> open_file("config", "/dev/null")
    Traceback (most recent call last):
      ...
    ValueError: config must be a regular file, got a pipe or a device: /dev/null
    """
    refuse_address(name, path)
    return open_regular(name, path)
