"""The error that reading a config raises, and the excerpt of the config that its message quotes."""

from __future__ import annotations

import ast

MAX_EXCERPT = 80  # characters


class ConfigError(ValueError):
    """A config that cannot be read; the message starts with the file and, where known, the line."""


def excerpt(node: ast.AST) -> str:
    """Return the source of a syntax node, on one line and shortened."""
    line = ast.unparse(node).partition("\n")[0]
    return line if len(line) <= MAX_EXCERPT else f"{line[: MAX_EXCERPT - 3]}..."
