"""The error of all of this package, and the excerpt of a config that its messages quote."""

from __future__ import annotations

import ast

MAX_EXCERPT = 80  # characters


class ConfigError(ValueError):
    """A config that cannot be read; the message starts with the file and, mostly, the line."""


def excerpt(node: ast.AST) -> str:
    """Return the source of a syntax node, on one line and shortened."""
    line = ast.unparse(node).partition("\n")[0]
    return line if len(line) <= MAX_EXCERPT else f"{line[: MAX_EXCERPT - 3]}..."
