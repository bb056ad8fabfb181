"""The result of a comparison: rows, a table for people, JSON for programs, and the error that carries them."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any, ClassVar, Protocol

from mmort.tables import lay_out


class Row(Protocol):
    """A line of a report.  Each kind of output has its own class of rows, a dataclass with its own columns."""

    HEADINGS: ClassVar[tuple[str, ...]]
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
            lay_out([(*kind.HEADINGS, ""), *((*row.cells(), _verdict(row)) for row in rows)])
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


def _verdict(row: Row) -> str:
    """Return the text of the last column."""
    if row.problem:
        undecided = getattr(row, "proves_nothing", False)
        return f"UNDECIDED: {row.problem}" if undecided else f"DIFFERS: {row.problem}"
    note = getattr(row, "note", "")
    return f"ok: {note}" if note else "ok"
