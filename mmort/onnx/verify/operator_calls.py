"""Calls of torch operators, each handed to a function that observes or replaces it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

Handler = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]
"""From an operator, its positional and its keyword arguments to the result of the call."""


class Intercepted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context manager that hands all calls of operators in the block to a function, which returns their results.

    The calls that the function makes are not handed to it; an enclosing block gets them.
    """

    def __init__(self, handler: Handler) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._handler = handler

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let the function answer a call."""
        return self._handler(func, args, kwargs or {})


def arguments_by_name(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return all arguments of a call by the names of the operator's schema, defaults included."""
    formals = func._schema.arguments
    arguments = {formal.name: formal.default_value for formal in formals}
    arguments |= {formal.name: value for formal, value in zip(formals, args, strict=False)}
    return arguments | dict(kwargs)
