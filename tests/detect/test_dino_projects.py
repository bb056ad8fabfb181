"""Align-DETR and H-DINO with the keys of their checkpoints, against what MMDetection's projects detected."""

import copy
import json
import pathlib
import re

import pytest

from mmort.detect import build, unsupported
from mmort.detect.checkpoint import load_weights
from tests.detect import co_dino_cases, dino_projects_cases, query_cases

RECORDED = json.loads((pathlib.Path(__file__).parents[1] / "data/detect/dino_projects.json").read_text())


@pytest.mark.parametrize("name", dino_projects_cases.MODELS)
def test_detections_are_the_projects(name):
    detector, recorded = build({"model": copy.deepcopy(dino_projects_cases.MODELS[name])}), RECORDED[name]
    load_weights(detector, co_dino_cases.weights(recorded["shapes"]))
    query_cases.assert_recorded(detector, recorded)


@pytest.mark.parametrize(
    ("name", "entries", "match"),
    [
        ("align_detr", {"delta": 1.0}, "bbox_head with delta is not supported"),
        (
            "h_dino",
            {"num_query_one2one": 12},
            "num_query_one2one of model.bbox_head must be less than num_queries, got 12",
        ),
    ],
)
def test_other_entries_are_refused(name, entries, match):
    model = copy.deepcopy(dino_projects_cases.MODELS[name])
    model["bbox_head"] |= entries
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model})


def test_entries_of_the_training_are_of_one_head():
    model = copy.deepcopy(query_cases.MODELS["dino"])
    model["bbox_head"]["alpha"] = 0.25
    (message, _) = unsupported({"model": model})
    assert message == "bbox_head with alpha is not supported"


def test_frozen_normalization_has_no_other_entries():
    model = copy.deepcopy(dino_projects_cases.MODELS["align_detr"])
    model["backbone"]["norm_cfg"]["affine"] = False
    with pytest.raises(ValueError, match="norm_cfg 'FrozenBN' with affine is not supported"):
        build({"model": model})
