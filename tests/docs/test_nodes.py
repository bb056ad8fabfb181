"""The site's tables of ONNX nodes name everything that a row of operators.c holds."""

import importlib.util
import pathlib

import pytest

from mmort import schemas

spec = importlib.util.spec_from_file_location("nodes", pathlib.Path(__file__).parents[2] / "docs" / "nodes.py")
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
        "     - shape or default",
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
        "     - required",
        "",
    ]


def test_no_table_without_a_node():
    assert nodes.table("box_iou") == []
