"""Paths of configs and checkpoints as users give them: addresses are refused with advice."""

from __future__ import annotations

import os
import re


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
    >>> from mmort.detect.local_files import refuse_address
    >>> refuse_address("checkpoint", "https://download.openmmlab.com/x.pth")
    Traceback (most recent call last):
      ...
    ValueError: checkpoint must be a file, download it first: https://download.openmmlab.com/x.pth
    """
    if re.match(r"[A-Za-z][\w.+-]+:/", os.fspath(path)):  # at least two letters, unlike a drive
        raise ValueError(f"{name} must be a file, download it first: {os.fspath(path)}")
