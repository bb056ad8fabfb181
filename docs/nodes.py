"""The table of an operator's ONNX nodes, written from its row in operators.c, below its docstring on the site."""

from __future__ import annotations

from typing import Any

from mmort import schemas


def append_tables(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append the table to a numpy function's docstring; called by Sphinx for each docstring."""
    module, _, kernel = name.rpartition(".")
    if module == "mmort":
        lines.extend(table(kernel))


def table(kernel: str) -> list[str]:
    """Return the lines of reStructuredText; none for a function that ONNX has no node for."""
    rows = [operator for operator in schemas.operators() if operator.kernel == kernel]
    if not rows:
        return []
    row = rows[0]
    cells = [("", "name", "type", "shape, or default and values")]
    for tensor in row.inputs:
        cells.append(("input", tensor.name, tensor.type, tensor.shape + (", optional" if tensor.optional else "")))
    for tensor in row.outputs:
        cells.append(("output", tensor.name, tensor.type, tensor.shape))
    for attribute in row.attributes:
        cells.append(("attribute", attribute.name, attribute.type, _values(attribute)))
    nodes = " and ".join(f"``{operator.domain}::{operator.type}``" for operator in rows)
    lines = ["", ".. rubric:: ONNX node", "", nodes, "", ".. list-table::", "   :header-rows: 1", ""]
    for cell in cells:
        lines += [f"   {'-' if i else '* -'} {text}".replace("   - ", "     - ") for i, text in enumerate(cell)]
    return [*lines, ""]


def _values(attribute: schemas.Attribute) -> str:
    """Describe an attribute's default, its values, and its name in the numpy API and in old files."""
    parts = ["required" if attribute.default is None else f"default {attribute.default}"]
    if attribute.type == "STRING":
        parts.append(" or ".join(attribute.words))
    elif attribute.words:
        parts.append(", ".join(f"{index} {word}" for index, word in enumerate(attribute.words)))
    elif attribute.flag:
        parts.append("0 or 1")
    if attribute.argument != attribute.name:
        parts.append(f"argument ``{attribute.argument}``")
    if attribute.former_name:
        parts.append(f"formerly ``{attribute.former_name}``")
    return "; ".join(parts)
