"""The tables of docs/detectors.md and docs/detector_files.md: `python docs/detector_tables.py` writes them.

They come from what is registered in `mmort.detect` and from the table of tasks in `mmort.contract`; builds of the site
make them anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mmort.contract import TASKS
from mmort.contract.tasks import Tensor
from mmort.detect import list_families
from mmort.detect.listing import list_parts

FOLDER = Path(__file__).parent


def families() -> str:
    """Return a row for each family of detectors."""
    rows = ((f"`{family.name}`", _types(family.heads), family.summary) for family in list_families())
    return _table(("family", "types of heads", ""), rows)


def parts() -> str:
    """Return a row for each kind of part with its types."""
    return _table(("kind", "types"), ((kind, _types(types)) for kind, types in list_parts().items()))


def inputs() -> str:
    """Return a row for each input that files may have."""
    return _tensors(dict.fromkeys(tensor for task in TASKS.values() for tensor in task.inputs))


def outputs() -> str:
    """Return a row for each output that files may have."""
    return _tensors(tensor for task in TASKS.values() for tensor in task.outputs)


TABLES: dict[str, dict[str, Callable[[], str]]] = {
    "docs/detectors": {"families": families, "parts": parts},
    "docs/detector_files": {"inputs": inputs, "outputs": outputs},
}
"""The tables of each page, by the name between their marks."""


def fill_in(app: Any, docname: str, source: list[str]) -> None:
    """Make the tables anew when the site is built; called by Sphinx for each page."""
    if docname in TABLES:
        source[0] = filled(source[0], TABLES[docname])


def filled(page: str, tables: dict[str, Callable[[], str]]) -> str:
    """Return a page with today's tables between their marks."""
    for name, table in tables.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{table()}{end}{rest.partition(end)[2]}"
    return page


def _tensors(tensors: Iterable[Tensor]) -> str:
    """Return a row for each input or output."""
    rows = ((f"`{tensor.name}`", f"{tensor.dtype} {tensor.text()}", tensor.meaning) for tensor in tensors)
    return _table(("name", "type and shape", "meaning"), rows)


def _types(names: Iterable[str]) -> str:
    """Return names of types as code."""
    return ", ".join(f"`{name}`" for name in names)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a table in Markdown; reStructuredText's code becomes Markdown's."""
    ruler = f"|{'-|' * len(header)}\n"
    return "".join([_row(header), ruler, *map(_row, rows)])


def _row(cells: tuple[str, ...]) -> str:
    """Return a row in Markdown."""
    return "| " + " | ".join(re.sub(r"``(.+?)``", r"`\1`", cell) for cell in cells) + " |\n"


if __name__ == "__main__":
    for docname, tables in TABLES.items():
        path = FOLDER.parent / f"{docname}.md"
        path.write_text(filled(path.read_text(encoding="utf-8"), tables), encoding="utf-8")
