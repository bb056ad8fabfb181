"""Count the lines that guard against strangers' input by hand: `python -m tests.tools.count_guards [FOLDER...]`.

FOLDER are folders that have mmort/, such as other checkouts; this one by default.  Two numbers each: lines of code of
the functions that read others' formats only to bound them, and lines of statements that compare with a constant named
``MAX_...`` and raise, in all of the package.  Blank lines, comments and docstrings do not count.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

READERS = {
    "ort/function_expansion.py": None,
    "images/sizes.py": None,
    "predict/video_containers.py": None,
    "configs/budget.py": None,
    "detect/checkpoint.py": {"_refuse_compressed", "_record_sizes", "_bounded", "_written_again"},
    "onnx/graph/structure.py": {"check"},
}
"""Modules, and of some of them the functions, that read what a library reads again."""

SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def lines_of_code(source: str) -> set[int]:
    """Return the numbers of the lines that have code."""
    tree, docstrings = ast.parse(source), set[int]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for token in tokens if token.type not in SKIPPED for line in range(token.start[0], token.end[0] + 1)}
    return code - docstrings


def span(node: ast.AST) -> set[int]:
    """Return the numbers of a node's lines."""
    return set(range(node.lineno, node.end_lineno + 1))  # type: ignore[attr-defined]


def count(folder: Path) -> tuple[int, int]:
    """Return the lines of the readers, and of the statements that compare and raise elsewhere."""
    package, readers, guards = folder / "mmort", 0, 0
    for path in sorted(package.rglob("*.py")):
        source, module = path.read_text(), path.relative_to(package).as_posix()
        tree, code = ast.parse(source), lines_of_code(source)
        reading = set[int]()
        if module in READERS:
            names = READERS[module]
            functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
            reading = code if names is None else set().union(*(span(node) for node in functions if node.name in names))
        readers += len(reading & code)
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and any(isinstance(part, ast.Raise) for part in node.body):
                names_of_test = {part.id for part in ast.walk(node.test) if isinstance(part, ast.Name)}
                if any(name.lstrip("_").startswith("MAX_") for name in names_of_test):
                    body = set().union(*map(span, node.body)) | span(node.test)
                    guards += len((body & code) - reading)
    return readers, guards


if __name__ == "__main__":
    for argument in sys.argv[1:] or [Path(__file__).parents[2]]:
        print(argument, "readers: {}, comparisons: {}".format(*count(Path(argument))))
