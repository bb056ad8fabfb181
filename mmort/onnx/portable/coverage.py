"""The result of making a model portable."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Coverage:
    """Whether an operator's nodes run without the library.

    Attributes
    ----------
    operator : str
        Domain and type, ``mmcv::MMCVRoiAlign``.
    nodes : tuple of str
        The names of its nodes.
    missing : str or None
        Why they still need the library; None if they do not.
    """

    operator: str
    nodes: tuple[str, ...]
    missing: str | None
