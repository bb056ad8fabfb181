"""Write the table in docs/rotated.md: which of MMRotate's published configs `mmort export` supports.

pip download --no-deps mmrotate==0.3.4; pip download --no-deps mmrotate==1.0.0rc1
python -m zipfile -e mmrotate-VERSION-py3-none-any.whl FOLDER              # for each
pip install pyyaml && python -m tests.tools.tabulate_rotated_configs FOLDER_0 FOLDER_1
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path

from tests.tools.tabulate_configs import cell, rows

PAGE = Path(__file__).parents[2] / "docs" / "rotated.md"
VERSIONS = ("0.3.4", "1.0.0rc1")
HEADING, NEXT = "\n## Which configs work\n", "\n## The file\n"


def main(*folders: str) -> None:
    """Replace the table of the page."""
    warnings.simplefilter("ignore")
    tables = [rows(Path(folder).resolve() / "mmrotate" / ".mim" / "configs") for folder in folders]
    totals = [
        f"{sum(row.supported for row in table.values())} / {sum(row.configs for row in table.values())}"
        for table in tables
    ]
    lines = [f"| folder | {' | '.join(f'MMRotate {version}' for version in VERSIONS)} | missing |", "|-|-|-|-|"]
    lines.append(f"| all | {' | '.join(totals)} | |")
    for folder in sorted({folder for table in tables for folder in table}):
        columns = [table.get(folder) for table in tables]
        missing = sum((row.missing for row in columns if row is not None), Counter[str]())
        lines.append(f"| {folder} | {' | '.join(map(cell, columns))} | {'; '.join(missing)} |")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(HEADING)
    after = rest.partition(NEXT)[2]
    text = "`mmort export --check` accepts these of the configs that MMRotate publishes:\n"
    PAGE.write_text("".join([before, HEADING, "\n", text, "\n", "\n".join(lines), "\n", NEXT, after]), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
