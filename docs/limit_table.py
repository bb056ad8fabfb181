"""The table of mmort/limits.py in docs/limits.md: `python docs/limit_table.py` writes it, as do builds of the site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mmort.limits import LIMITS, Limit

PAGE = Path(__file__).parent / "limits.md"
BEGIN, END = "<!-- limits of mmort/limits.py -->\n", "<!-- end of the limits -->\n"


def fill_in(app: Any, docname: str, source: list[str]) -> None:
    """Make the table anew when the site is built; called by Sphinx for each page."""
    if docname == "docs/limits":
        source[0] = filled(source[0])


def filled(page: str) -> str:
    """Return the page with the table of today's limits."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}"


def table() -> str:
    """Return the table in Markdown."""
    rows = [f"| {limit.bounds} | {_number(limit)} | {limit.reason} | `{limit.name}` |\n" for limit in LIMITS]
    return "".join(["| what | limit | why | constant |\n", "|-|-|-|-|\n", *rows])


def _number(limit: Limit) -> str:
    """Return a limit as text, with powers of two as such."""
    value = int(limit.value)
    for offset, suffix in ((0, ""), (1, " - 1")):
        exponent = (value + offset).bit_length() - 1
        if value >= 2**12 and value + offset == 2**exponent:
            return f"2**{exponent}{suffix} {limit.unit}".strip()
    return f"{value:,} {limit.unit}".strip()


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
