"""Links between documents lead somewhere, and so do the files and modules that documents name."""

import importlib
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PATTERNS = "*.md", "docs/**/*.md", "benchmarks/*.md", "examples/*.md", "examples/*/*.md"
DOCUMENTS = [path for pattern in PATTERNS for path in sorted(ROOT.glob(pattern))]


def prose(path):
    """A document without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)


def anchors(path):
    """The anchors of a document's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.+)$", prose(path), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(path, link):
    """Whether a link in a document leads nowhere; what is on other machines is not looked at."""
    if link.startswith(("https://", "http://")):
        return False
    target, _, anchor = link.partition("#")
    file = path.parent / target if target else path
    return not file.is_file() or (anchor != "" and anchor not in anchors(file))


def missing(name):
    """Whether a name in code letters looks like a file of the repository, or a name in mmort, and is none."""
    if re.fullmatch(r"(mmort|bridge_c|tests|benchmarks|docs|examples)(/[\w.]+)+\.\w+", name):
        return not (ROOT / name).is_file() and not re.search(r"\b[A-Z]+\.", name)  # NAME.pyx is any name
    if re.fullmatch(r"mmort(\.[a-zA-Z_]\w*)+", name):
        module, _, attribute = name.rpartition(".")
        try:
            return not hasattr(importlib.import_module(module), attribute) and not importlib.import_module(name)
        except ModuleNotFoundError:
            return True
    return False


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links(path):
    links = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    assert [link for link in links if broken(path, link)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_names_of_files_and_of_mmort(path):
    text = path.read_text(encoding="utf-8")
    written = set(re.findall(r"^`([\w/.]+)`:\n\n```", text, re.M))  # files whose text the document gives
    names = re.findall(r"(?<!`)`([^`\n(]+)(?:\(.*?\))?`", prose(path))
    assert [name for name in names if name not in written and missing(name)] == []


def test_broken_links_are_found():
    assert [
        link
        for link in ("docs/export.md", "docs/export.md#what-may-go-wrong", "#more", "https://example.org")
        if broken(ROOT / "README.md", link)
    ] == []
    for link in ("docs/none.md", "docs/export.md#none", "#none"):
        assert broken(ROOT / "README.md", link)


def test_missing_names_are_found():
    assert not any(map(missing, ("mmort.ort.session", "mmort.onnx", "tests/docs/test_links.py", "nms", "mmort export")))
    assert all(map(missing, ("mmort.ort.session_options", "mmort.none.session", "tests/docs/test_none.py")))
