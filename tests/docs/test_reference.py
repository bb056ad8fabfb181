"""The reference on the site: tables of ONNX nodes hold a row of operators.c, pages list every public name."""

import importlib
import importlib.util
import pathlib
import re

import pytest

import mmort
from mmort import schemas
from tests.tools import run_on_runtimes

DOCS = pathlib.Path(__file__).parents[2] / "docs"

spec = importlib.util.spec_from_file_location("nodes", DOCS / "nodes.py")
nodes = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nodes)


@pytest.mark.parametrize("operator", schemas.operators(), ids=lambda operator: f"{operator.domain}.{operator.type}")
def test_table_names_everything_in_the_row(operator):
    text = "\n".join(nodes.table(operator.kernel))
    assert f"``{operator.domain}::{operator.type}``" in text
    for row in (*operator.inputs, *operator.outputs, *operator.attributes):
        assert f"     - {row.name}\n" in text


def test_table_of_an_attribute():
    assert nodes.table("corner_pool") == [
        "",
        ".. rubric:: ONNX node",
        "",
        "``mmcv::MMCVCornerPool``",
        "",
        ".. list-table::",
        "   :header-rows: 1",
        "",
        "   * - ",
        "     - name",
        "     - type",
        "     - shape, or default and values",
        "   * - input",
        "     - input",
        "     - float32",
        "     - [N, C, H, W]",
        "   * - output",
        "     - output",
        "     - float32",
        "     - [N, C, H, W]",
        "   * - attribute",
        "     - mode",
        "     - INT",
        "     - required; 0 top, 1 bottom, 2 left, 3 right",
        "",
    ]


def test_values_of_attributes():
    text = "\n".join(nodes.table("roi_align"))
    for values in (
        "required; argument ``output_size``; formerly ``aligned_height``",
        "default 1",
        "default avg; avg or max; argument ``pool_mode``; formerly ``pool_mode``",
        "default 1; 0 or 1",
    ):
        assert f"     - {values}\n" in text


def test_no_table_without_a_node():
    assert nodes.table("box_iou") == []


@pytest.mark.parametrize("name", ["onnx", "detect", "torch"])
def test_page_lists_every_public_name(name):
    """Of modules that Sphinx cannot list, or not by task."""
    module = importlib.import_module(f"mmort.{name}")
    public = getattr(
        module, "__all__", [key for key, value in vars(module).items() if key[0] != "_" and callable(value)]
    )
    page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. auto(?:function|class|exception):: (\w+)$", page, re.M)
    assert sorted(listed) == sorted(public)


def test_numpy_page_lists_every_function():
    page = (DOCS / "reference" / "numpy.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\.\. autofunction:: (\w+)$", page, re.M)
    functions = {*mmort.__all__} - {"Detections", "Predictor"}
    assert set(listed) == functions, f"docs/reference/numpy.md: missing {sorted(functions - set(listed))}"
    assert len(listed) == len(functions)


def test_table_of_operators_lists_every_function():
    """But those that control threads."""
    table = (DOCS / "operators.md").read_text(encoding="utf-8").partition("\n## ")[0]
    listed = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in re.findall(r"`(\w+)`", row)}
    functions = {*mmort.ops.__all__} - {"get_num_threads", "set_num_threads"}
    assert listed == functions, f"docs/operators.md, table: missing {sorted(functions - listed)}"


@pytest.mark.parametrize("name", ["numpy", "torch"])
def test_summaries_list_what_follows_them(name):
    page = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    blocks = page.split(".. autosummary::")[1:]
    assert len(blocks) >= 6
    for block in blocks:
        block = block.partition("```")[0]
        described = re.findall(r"^\.\. auto(?:function|class):: (\w+)$", block, re.M)
        assert re.findall(r"^   (\w+)$", block, re.M) == described


def test_torch_versions_are_those_of_the_code():
    """The guide and the README name the versions that the file of torch's private parts was tested with."""
    sentence = re.compile(r"[Tt]ested with torch (\d[\d., and]+\d)")
    code = (DOCS.parent / "mmort" / "onnx" / "export" / "torch_internals.py").read_text(encoding="utf-8")
    versions = sentence.search(code)[1]
    assert sentence.search((DOCS / "export.md").read_text(encoding="utf-8"))[1] == versions
    assert f"torch {versions}" in (DOCS.parent / "README.md").read_text(encoding="utf-8")


def test_runtimes_are_those_of_the_tests():
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    *versions, last = run_on_runtimes.RUNTIMES
    assert f"ONNX Runtime {', '.join(versions)} and {last}" in readme


def rows(document):
    """The cells of all tables of a document, without the letters' style."""
    lines = (DOCS.parent / document).read_text(encoding="utf-8").splitlines()
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_speed_in_the_readme_is_that_of_the_benchmarks():
    measured = rows("benchmarks/README.md")
    shown = [row for row in rows("README.md") if len(row) == 6 and row[1].endswith(" scenes")]
    assert {"nms", "roi_align", "grid_sample"} <= {row[0] for row in shown}
    assert [row for row in shown if row not in measured] == []
