"""Print the table of what kernels take work to cost, with the benchmark row that each number was read off.

    python benchmarks/constants.py

The numbers stand in enumerations of the kernels that begin with "picoseconds"; a comment behind a number, or else that
of its enumeration, names the row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

KERNELS = Path(__file__).parents[1] / "mmort" / "_kernels"
ENUM = re.compile(r"^cdef enum: *# *picoseconds(?P<what>.*)\n(?P<numbers>(?:    .+\n)+)", re.MULTILINE)
NUMBER = re.compile(r"^    (?P<name>\w+) = (?P<value>\d+) *(?:# *(?P<comment>.*))?$", re.MULTILINE)


def constants() -> Iterator[tuple[str, str, int, str]]:
    """Yield the file, the name and the picoseconds of each constant, and what its comments say."""
    for path in sorted((*KERNELS.rglob("*.pyx"), *KERNELS.rglob("*.pxd"))):
        for block in ENUM.finditer(path.read_text(encoding="utf-8")):
            for number in NUMBER.finditer(block["numbers"]):
                comments = block["what"].strip(" ,:;"), (number["comment"] or "").strip()
                row = "; ".join(comment for comment in comments if comment)
                yield path.relative_to(KERNELS).as_posix(), number["name"], int(number["value"]), row


def main() -> None:
    print("| kernel | constant | ps | read off |\n|-|-|-|-|")
    for file, name, value, row in constants():
        print(f"| {file} | `{name}` | {value:,} | {row} |")


if __name__ == "__main__":
    main()
