"""Refuses sub-interpreters, before an import of numpy or of the kernels fails there in words of their own."""

import sys

if sys.implementation.name == "cpython":
    try:
        import _interpreters as _interpreters  # Python 3.13 and newer
    except ModuleNotFoundError:
        try:
            import _xxsubinterpreters as _interpreters
        except ModuleNotFoundError:
            _interpreters = None
    if _interpreters is not None and _interpreters.get_current() != _interpreters.get_main():
        raise ImportError(
            "mmort cannot be imported into a sub-interpreter, as numpy cannot: use it in the main interpreter, or in "
            "another process (for mod_wsgi: WSGIApplicationGroup %{GLOBAL})"
        )
