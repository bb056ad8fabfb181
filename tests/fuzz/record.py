"""The file in which long runs note what they have done, a line of JSON a chunk, so that another run continues there.

python -m tests.fuzz.record FILE prints the totals.
"""

import json
import sys
from pathlib import Path
from typing import Any


def note(path: Path | None, part: str, **figures: float) -> None:
    """Append what a part has done: counts, which are added up, and figures ``max_...``, of which the largest counts."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"part": part, **figures}) + "\n")


def totals(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the totals of each part."""
    parts: dict[str, dict[str, Any]] = {}
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    for entry in map(json.loads, lines):
        total = parts.setdefault(entry.pop("part"), {})
        for name, figure in entry.items():
            add = max if name.startswith("max_") else lambda first, second: first + second
            total[name] = add(total.get(name, 0), figure)
    return parts


def done(path: Path | None, part: str) -> int:
    """Return how many cases of a part have been run."""
    return int(totals(path).get(part, {}).get("cases", 0))


if __name__ == "__main__":
    for part, figures in totals(Path(sys.argv[1])).items():
        print(f"{part:45}", ", ".join(f"{name} {figure:g}" for name, figure in figures.items()))
