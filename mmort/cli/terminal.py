"""Output of commands: text of files cannot control the terminal, and an error or warning is one line."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any, TextIO

from mmort._files.text import printable

FORESEEN = (ImportError, MemoryError, OSError, ValueError)
"""The errors that mmort raises on purpose, whose message says what is wrong."""


MAX_MESSAGE = 4_000
"""Characters of a line, about as many as a path of Linux may have."""


class UsageError(ValueError):
    """Arguments that exclude each other, or lack another one."""


class _Neutral:
    """A stream that escapes control characters; everything else is the stream's."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def neutral_output(*, silent: bool = False) -> Iterator[None]:
    """Let nothing that is printed to stdout control the terminal, or fail for characters that it does not have.

    With `silent`, nothing is printed there at all.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere if silent else _Neutral(sys.stdout)),
    ):
        yield


@contextlib.contextmanager
def one_line_warnings() -> Iterator[None]:
    """Let a warning of mmort's be one line, as an error is; other warnings stay as Python prints them."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def showwarning(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if category.__module__.startswith("mmort."):
                print(f"mmort: warning: {one_line(message)}", file=sys.stderr, flush=True)
            else:
                show(message, category, filename, lineno, file, line)

        warnings.showwarning = showwarning
        yield


def print_error(error: BaseException, *, verbose: bool) -> None:
    """Print an error as one line, or with the table of a comparison, or a list; with `verbose`, after its traceback."""
    if verbose:
        print(printable("".join(traceback.format_exception(error))), file=sys.stderr)
    text = message_of(error)
    if isinstance(error, MemoryError):
        text = str(error) or "out of memory"
    elif not isinstance(error, FORESEEN):
        advice = "" if verbose else ", as the same command with -v prints it"
        text = (
            f"{type(error).__name__}: {text} (mmort did not foresee this; please report it to mmort's repository, "
            f"with the traceback{advice})"
        )
    shown = printable(str(error)) if _is_comparison(error) or _is_list(error) else one_line(text)
    print(f"mmort: error: {shown}", file=sys.stderr)


def message_of(error: BaseException) -> str:
    """Return an error's message in one line; that of the operating system as ``cat`` prints it."""
    if isinstance(error, OSError) and isinstance(error.filename, str) and error.strerror and error.filename2 is None:
        return f"{error.filename}: {error.strerror[:1].lower()}{error.strerror[1:]}"
    text = " ".join(str(error).split("\n")) or type(error).__name__  # those of libraries may have several lines
    return text.replace("force=True", "--force") if isinstance(error, FileExistsError) else text


def _is_comparison(error: BaseException) -> bool:
    """Return whether an error carries the table of a comparison, whose module it has loaded then."""
    module = sys.modules.get("mmort.onnx.verify.report")
    return module is not None and isinstance(error, module.VerificationError)


def _is_list(error: BaseException) -> bool:
    """Return whether an error that mmort raises on purpose has a list: all lines but the first are indented."""
    lines = str(error).split("\n")[1:]
    return isinstance(error, FORESEEN) and bool(lines) and all(line.startswith("  ") for line in lines)


def one_line(text: object) -> str:
    """Return a message in one line without control characters, and without the middle of a long one."""
    message = str(text)
    if len(message) > MAX_MESSAGE:
        message = f"{message[: MAX_MESSAGE // 2]} ... {message[-MAX_MESSAGE // 2 :]}"
    return printable(message, breaks=False)
