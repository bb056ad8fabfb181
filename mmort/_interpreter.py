"""Refuses sub-interpreters, before an import of numpy or of the kernels fails there in words of their own."""

from importlib import import_module
from typing import Any


def _interpreters() -> Any:
    """Return Python's own module of interpreters; None if it has none."""
    for name in ("_interpreters", "_xxsubinterpreters"):  # the second until Python 3.12
        try:
            return import_module(name)
        except ModuleNotFoundError:
            pass
    return None


if (_module := _interpreters()) is not None and _module.get_current() != _module.get_main():
    raise ImportError(
        "mmort cannot be imported into a sub-interpreter, as numpy cannot: use it in the main interpreter, or in "
        "another process (for mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
    )
