"""Text of files and paths on a terminal and in JSON, without what could control the one or be refused by the other."""

from __future__ import annotations

import os
import re

_UNSAFE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff"
_CONTROLS, _CONTROLS_AND_BREAKS = re.compile(f"[{_UNSAFE}]"), re.compile(f"[\t\n{_UNSAFE}]")


def printable(text: str, *, breaks: bool = True) -> str:
    r"""Return a text with escapes instead of control characters, marks of direction and lone surrogates.

    Parameters
    ----------
    text : str
    breaks : bool, default True
        Keep line breaks and tabs.

    Examples
    --------
    >>> from mmort._files.text import printable
    >>> print(printable("class \x1b[2J"))
    class \x1b[2J
    """
    return (_CONTROLS if breaks else _CONTROLS_AND_BREAKS).sub(_escape, text)


def path_text(path: str | os.PathLike[str]) -> str:
    """Return a path as text that any reader of JSON takes; bytes that are not UTF-8 become escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _escape(match: re.Match[str]) -> str:
    """Return a character as Python writes it."""
    return ascii(match[0])[1:-1]
