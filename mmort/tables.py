"""Tables as commands and reports print them."""

from __future__ import annotations

from collections.abc import Sequence


def lay_out(lines: Sequence[Sequence[str]]) -> str:
    """Write lines of cells, the cells of a column below one another."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
