"""Co-DETR with the keys of its checkpoints, against what MMDetection's project and its authors' code detected."""

import copy
import json
import pathlib
import re

import pytest
import torch
from torch.nn import functional

from mmort.detect import build, unsupported
from mmort.detect.checkpoint import load_weights
from mmort.detect.families.query.refine_masks import refined
from tests.detect import co_dino_cases, query_cases

RECORDS = pathlib.Path(__file__).parents[1] / "data/detect"
RECORDED = json.loads((RECORDS / "co_dino.json").read_text())
OF_AUTHORS = json.loads((RECORDS / "co_detr.json").read_text())


@pytest.mark.parametrize("name", co_dino_cases.MODELS)
def test_detections_are_mmdetections(name):
    compare(co_dino_cases.config(name), RECORDED[name])


@pytest.mark.parametrize("name", co_dino_cases.OF_AUTHORS)
def test_detections_are_the_authors(name):
    compare({"model": co_dino_cases.OF_AUTHORS[name], "optimizer": {}}, OF_AUTHORS[name])


def compare(config, recorded):
    detector = build(copy.deepcopy(config))
    load_weights(detector, co_dino_cases.weights(recorded["shapes"]))
    query_cases.assert_recorded(detector, recorded)


def test_the_heads_beside_the_queries_are_not_needed():
    """A checkpoint without them loads; one without a weight of the query head does not."""
    shapes = {key: shape for key, shape in RECORDED["co_dino"]["shapes"].items() if not key.startswith("rpn_head")}
    detector = build(copy.deepcopy(co_dino_cases.config("co_dino")))
    weights = co_dino_cases.weights(shapes)
    load_weights(detector, weights)
    del weights["query_head.reg_branches.0.0.weight"]
    with pytest.raises(ValueError, match=r"missing from the checkpoint: bbox_head\.reg_branches\.0\.0\.weight"):
        load_weights(detector, weights)


def test_masks_are_refined_near_boundaries():
    """Where all nine pixels of the mask before are alike, it is enlarged; elsewhere the finer one is taken."""
    coarse = torch.full((1, 8, 8), -1.0)
    coarse[:, 2:6, :4] = 2.0  # as far as the left edge, beyond which nothing is
    finer = torch.full((1, 16, 16), 7.0)
    actual = refined([torch.full((1, 4, 4), 5.0), coarse, finer])[0]
    inside = torch.zeros(8, 8, dtype=torch.bool)
    inside[2:6, :4] = True
    uniform = torch.zeros(8, 8)
    for row in range(8):
        for column in range(8):
            around = [
                bool(inside[y, x]) if 0 <= y < 8 and 0 <= x < 8 else False
                for y in range(row - 1, row + 2)
                for x in range(column - 1, column + 2)
            ]
            uniform[row, column] = len(set(around)) == 1
    enlarge = {"scale_factor": 2, "mode": "bilinear", "align_corners": True}
    kept = functional.interpolate(uniform[None, None], **enlarge)[0, 0] >= 0.5
    assert 0 < int(kept.sum()) < 256
    torch.testing.assert_close(actual, torch.where(kept, functional.interpolate(coarse[None], **enlarge)[0, 0], 7.0))


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"mask_roi_extractor": None}, "model with a mask_head must have a mask_roi_extractor"),
        ({"mask_head.type": "FCNMaskHead"}, "mask_head 'FCNMaskHead' is not supported"),
        ({"mask_head.fusion_type": "Sum"}, "fusion_type of mask_head 'SimpleRefineMaskHead' must be 'MultiBranchFus"),
        ({"mask_head.stage_sup_size": [6, 12, 20, 40]}, "must have sizes that double, got [6, 12, 20, 40]"),
        ({"mask_head.stage_sup_size": [6, 12]}, "stage_sup_size of mask_head 'SimpleRefineMaskHead' must have as many"),
        ({"mask_roi_extractor.featmap_strides": [8, 16, 32, 64]}, "at most num_feature_levels = 3 elements, got 4"),
        ({"test_cfg": [{"max_per_img": 9}, {}]}, "the second test_cfg must have mask_thr_binary"),
    ],
)
def test_other_entries_of_masks_are_refused(entries, match):
    model = copy.deepcopy(co_dino_cases.OF_AUTHORS["co_dino_masks"])
    for path, value in entries.items():
        *parents, last = path.split(".")
        part = model
        for parent in parents:
            part = part[parent]
        part[last] = value
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model, "optimizer": {}})


def test_a_vits_angles_are_computed_and_not_loaded():
    detector = build(copy.deepcopy({"model": co_dino_cases.OF_AUTHORS["co_dino_vit"], "optimizer": {}}))
    weights = co_dino_cases.weights(OF_AUTHORS["co_dino_vit"]["shapes"])
    names = "rope_win", "rope_glb", "blocks.0.attn.rope"
    load_weights(detector, weights | {f"backbone.{name}.freqs_cos": weights["backbone.pos_embed"] for name in names})


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"embed_dim": 96}, "embed_dim of backbone 'ViT' must be 64 num_heads = 128 for blocks without windows"),
        ({"embed_dim": 100, "use_lsj": True}, "embed_dim of backbone 'ViT' must be a multiple of 4 num_heads = 8"),
        ({"use_rel_pos": True}, "use_rel_pos of backbone 'ViT' must be False, got True"),
        ({"norm_cfg": {"type": "LN"}}, "backbone 'ViT' with norm_cfg is not supported"),
    ],
)
def test_entries_of_another_vit_are_refused(entries, match):
    model = copy.deepcopy(co_dino_cases.OF_AUTHORS["co_dino_vit"])
    model["backbone"] |= entries
    with pytest.raises(ValueError, match=re.escape(match)):
        build({"model": model, "optimizer": {}})


def test_all_that_is_unsupported_is_listed():
    model = {**copy.deepcopy(co_dino_cases.MODELS["co_dino"]), "colour": "red", "eval_module": "one-stage"}
    assert unsupported({"model": model}) == [
        "model with colour is not supported",
        "eval_module of model must be 'detr', got 'one-stage'",
        "preprocessing: the config has no test pipeline",
    ]


@pytest.mark.parametrize(
    ("path", "value", "match"),
    [
        ("eval_module", "two-stage", "eval_module of model must be 'detr', got 'two-stage'"),
        ("query_head.as_two_stage", False, "as_two_stage of query_head must be True, got False"),
        ("query_head.colour", "red", "query_head with colour is not supported"),
        ("query_head.transformer.colour", "red", "query_head.transformer with colour is not supported"),
        ("query_head.transformer.decoder.return_intermediate", False, "return_intermediate of query_head.transformer"),
        ("query_head.transformer.decoder.type", "DetrTransformerDecoder", "decoder 'DetrTransformerDecoder' is not"),
        ("test_cfg.0.nms.offset", 1, "nms.offset must be 0"),
        ("test_cfg.0.nms.type", "softer_nms", "nms.type must be 'nms' or 'soft_nms', got 'softer_nms'"),
    ],
)
def test_unsupported_entries_are_named(path, value, match):
    config = copy.deepcopy(co_dino_cases.config("co_dino"))
    *parents, last = path.split(".")
    part = config["model"]
    for parent in parents:
        part = part[int(parent)] if parent.isdigit() else part[parent]
    part[last] = value
    with pytest.raises(ValueError, match=re.escape(match)):
        build(config)
