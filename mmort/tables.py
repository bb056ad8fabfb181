"""Tables of text, as commands and reports print them."""

from __future__ import annotations

from collections.abc import Sequence

_DOTS = "..."


def shortened(text: str, width: int) -> str:
    """Return a text without the middle if it is longer than `width`.

    Examples
    --------
    >>> from mmort.tables import shortened
    >>> shortened("upsample_bilinear2d_4 (upsample_bilinear2d)", 24)
    'upsample_bi...ilinear2d)'
    """
    if len(text) <= width:
        return text
    kept = max(width - len(_DOTS), 2)
    return f"{text[: (kept + 1) // 2]}{_DOTS}{text[-(kept // 2) :]}"


def lay_out(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of cells as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
