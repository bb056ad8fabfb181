"""Each family of the registry has a small detector that a test exports, or a tool that is run by hand."""

import ast
from pathlib import Path

import pytest

from mmort.configs.layout import DetectorConfig
from mmort.detect.loading import PARTS, _family_of
from tests.detect import (
    dense_cases,
    mask_cases,
    panoptic_cases,
    query_cases,
    rotated_1_cases,
    rotated_cases,
    two_stage_cases,
)

CASES = [
    *map(dense_cases.config, dense_cases.HEADS),
    *map(mask_cases.config, mask_cases.MODELS),
    *map(panoptic_cases.config, panoptic_cases.MODELS),
    *map(rotated_cases.config_of, rotated_cases.CASES),
    *map(rotated_1_cases.config_of, rotated_1_cases.CASES),
    *map(two_stage_cases.config_of, two_stage_cases.CASES),
    *({"model": model} for model in query_cases.MODELS.values()),
]
"""What the tools check_dense_detectors, check_masks, check_two_stage and their like export."""

TESTS = {
    "FCOS": "test_dense_detectors.test_onnx_runtime_agrees_at_sizes_that_were_not_traced",
    "RTMDet": "test_rtmdet_yolox.test_exported_heads",
    "RTMDetIns": "test_rtmdet_yolox.test_exported_heads",
    "YOLOX": "test_rtmdet_yolox.test_exported_heads",
    "CornerNet": "test_query_detectors.test_exported",
    "DETR": "test_query_detectors.test_exported",
}
"""Tests that export a family which no case has."""

DIGITS = ("FSAF", "PointRend", "RetinaNet", "SSD", "YOLOv3")
"""Families without a case of which check_exported exports a trained detector."""

FULL_SIZE = ("CenterNet", "CentripetalNet", "SOLO", "SOLOv2", "TridentFasterRCNN")
"""Families of which only full-size detectors were exported."""


def test_every_family_is_exported_somewhere():
    in_cases = {_family_of(DetectorConfig(config)).__name__ for config in CASES}
    families = {family.__name__ for family in PARTS.types["detector"].values()}
    assert families == in_cases.union(TESTS, DIGITS, FULL_SIZE)
    assert not in_cases.intersection(TESTS, DIGITS, FULL_SIZE)


@pytest.mark.parametrize("name", sorted(set(TESTS.values())))
def test_the_tests_that_export_exist(name):
    module, _, function = name.partition(".")
    tree = ast.parse(Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name == function for node in tree.body)
