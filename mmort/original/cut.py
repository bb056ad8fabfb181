"""The cut: the call of an original at which a file ends, and from which the original goes on with a file's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any


class _CutError(Exception):
    """Ends the original at the cut."""


@contextmanager
def replaced(owner: Any, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """Let an object's method, or a part that it calls as one, be another function in the block."""
    part = vars(owner).get(name)
    if isinstance(part, FunctionType):
        raise ValueError(f"export: {type(owner).__name__}.{name} is replaced already")
    vars(owner)[name] = function  # not by setattr, which modules of torch have their own ideas of
    try:
        yield
    finally:
        del vars(owner)[name]
        if part is not None:
            vars(owner)[name] = part


def arguments_at(owner: Any, name: str, run: Callable[[], Any]) -> tuple[Any, ...]:
    """Return the arguments with which the original first calls a method, and end it there.

    Raises
    ------
    ValueError
        If it never does.
    """
    found: list[tuple[Any, ...]] = []

    def cut(*arguments: Any, **_: Any) -> None:
        found.append(arguments)
        raise _CutError

    with replaced(owner, name, cut):
        try:
            run()
        except _CutError:
            return found[0]
    raise ValueError(f"export: the original never calls {type(owner).__name__}.{name}, which its file would end at")
