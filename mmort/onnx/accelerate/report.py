"""The result of an acceleration: what was replaced, what was left, and the times."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from mmort.tables import lay_out


@dataclass(frozen=True)
class Replaced:
    """The replacements of one kind."""

    kind: str
    """The operator in the file, and what took its place."""
    nodes: int
    before: float
    """Seconds that the nodes take in a run of the file."""
    after: float
    """Seconds that the new nodes take."""


@dataclass(frozen=True)
class Left:
    """Nodes that were left as they are."""

    operator: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Acceleration:
    """The result of `accelerate`; prints as a table."""

    replaced: tuple[Replaced, ...]
    left: tuple[Left, ...]
    before: float | None
    """Seconds of the fastest run of the file.  None if there was nothing to replace."""
    after: float | None
    """The same of the new file.  None if none was written."""
    threads: int
    generated: bool
    """Whether the inputs were random numbers."""

    def to_json(self) -> str:
        """Return all fields as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=2)

    def __str__(self) -> str:
        """Lay out a line for each kind, the whole file, and the reasons of what was left."""
        lines = []
        inputs = "generated inputs, so try your own" if self.generated else "the given inputs"
        if self.replaced:
            rows = [
                (row.kind, f"{row.nodes} node{'s' * (row.nodes > 1)}", *_times(row.before, row.after))
                for row in self.replaced
            ]
            if self.before is not None and self.after is not None:
                rows.append(("whole file", "", *_times(self.before, self.after)))
            lines.append(lay_out([("", "", "before", "after", ""), *rows]))
            lines.append(f"measured on {inputs}, {self.threads} thread{'s' * (self.threads > 1)}")
        else:
            lines.append(f"nothing replaced, measured on {inputs}" if self.left else "nothing to replace")
        for left in self.left:
            names = ", ".join(left.nodes[:3]) + (", ..." if len(left.nodes) > 3 else "")
            lines.append(f"left {left.operator} ({names}): {left.reason}")
        return "\n".join(lines)


def _times(before: float, after: float) -> tuple[str, str, str]:
    """Return the texts of two times and their ratio."""
    return f"{1e3 * before:.3g} ms", f"{1e3 * after:.3g} ms", f"{before / after:.1f} times" if after else ""
