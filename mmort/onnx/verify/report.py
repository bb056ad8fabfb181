"""The result of a comparison: rows, a table for people, JSON for programs, and the error that carries them."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, ClassVar, Protocol

from mmort.tables import lay_out, shortened

LINE_WIDTH = 100
"""Characters of a line, unless an output differs: the names of the others are shortened for it."""

MIN_NAME = 16
"""Characters that a shortened name keeps."""

_OK = "ok"


class Row(Protocol):
    """A line of a report.  Each kind of output has its own class of rows, a dataclass with its own columns."""

    HEADINGS: ClassVar[tuple[str, ...]]
    NAMES: ClassVar[str]
    """The heading of the column whose texts may be shortened; "" if there is none."""
    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def inputs(self) -> str:
        """The inputs' shapes, ``2x3x64x96, 2x2``."""

    @property
    def problem(self) -> str:
        """The difference in words, or an empty string."""

    def cells(self) -> tuple[str, ...]:
        """Return the text of each column."""


@dataclasses.dataclass(frozen=True)
class Report:
    """The result of `verify`; prints as a table with a line for each output or, of a detector, for each image."""

    rows: tuple[Row, ...]

    @property
    def ok(self) -> bool:
        """Whether all outputs agree on all inputs.  False if nothing was compared."""
        return bool(self.rows) and not any(row.problem for row in self.rows)

    @property
    def proves_nothing(self) -> bool:
        """Whether nothing differs, but a detector detected nothing, or nothing but ties."""
        differing = [row for row in self.rows if row.problem]
        return bool(differing) and all(getattr(row, "proves_nothing", False) for row in differing)

    def to_json(self) -> str:
        """Return ``ok`` and the rows as JSON.  Infinities and NaN are null."""
        rows = [dataclasses.asdict(row) | {"ok": not row.problem, "problem": row.problem} for row in self.rows]
        for row in rows:
            for name, value in row.items():
                if isinstance(value, float) and not math.isfinite(value):
                    row[name] = None
        return json.dumps({"ok": self.ok, "rows": rows}, indent=2)

    def __str__(self) -> str:
        """Lay out the rows, a table for each class of rows."""
        if not self.rows:
            return "nothing was compared"
        groups: dict[type[Row], list[Row]] = {}
        for row in self.rows:
            groups.setdefault(type(row), []).append(row)
        return "\n\n".join(
            lay_out([(*kind.HEADINGS, ""), *zip(*_columns(kind, rows), map(_verdict, rows), strict=True)])
            for kind, rows in groups.items()
        )


class VerificationError(ValueError):
    """An ONNX file does not compute what the model computes.

    Attributes
    ----------
    report : Report
        The rows of the table in the text.
    """

    def __init__(self, text: str, report: Report) -> None:
        super().__init__(text)
        self.report = report

    def __reduce__(self) -> tuple[type[VerificationError], tuple[str, Report]]:
        """Pickle both arguments; an exception would pickle the text only."""
        return type(self), (str(self), self.report)


def number_text(value: float | None) -> str:
    """Write a number with two digits, or a dash for None."""
    return "-" if value is None else f"{value:.2g}"


def _columns(kind: type[Row], rows: list[Row]) -> list[tuple[str, ...]]:
    """Return the texts of each column, with names so short that a line of a row that agrees fits `LINE_WIDTH`."""
    columns = list(zip(*(row.cells() for row in rows), strict=True))
    if not kind.NAMES:
        return columns
    position = kind.HEADINGS.index(kind.NAMES)
    widths = [max(map(len, column)) for column in zip(kind.HEADINGS, *zip(*columns, strict=True), strict=True)]
    gaps = 2 * len(widths)
    room = max(LINE_WIDTH - (sum(widths) - widths[position] + gaps + len(_OK)), MIN_NAME)
    columns[position] = tuple(
        name if row.problem else shortened(name, room) for name, row in zip(columns[position], rows, strict=True)
    )
    return columns


def _verdict(row: Row) -> str:
    """Return the text of the last column."""
    if row.problem:
        undecided = getattr(row, "proves_nothing", False)
        return f"UNDECIDED: {row.problem}" if undecided else f"DIFFERS: {row.problem}"
    note = getattr(row, "note", "")
    return f"{_OK}: {note}" if note else _OK
