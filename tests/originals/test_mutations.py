"""A sample of all mutants, the same each time: equal to MMDetection, or refused with a message that names the entry.

``python -m tests.originals.mutations`` runs others, and all.
"""

import random

import pytest

from tests.originals.mutants import Mutant
from tests.originals.outcomes import DEFECTS, EFFECT, REFUSED, Judge
from tests.originals.version_3 import VERSION

PER_CASE = 6
SAMPLE = (
    *("retinanet", "yolox", "centernet", "cornernet", "mask_rcnn", "cascade_rcnn", "point_rend", "sparse_rcnn"),
    *("detr", "deformable_detr", "mask2former_panoptic", "condinst"),
)
"""Cases of the sample: few that are unlike each other, as building a judge costs as much as some mutants."""


@pytest.mark.parametrize("name", sorted({*SAMPLE}))
def test_sample(name):
    judge = Judge(VERSION, name)
    for mutant in random.Random(f"{name} 0").sample(judge.mutants, PER_CASE):
        outcome = judge(mutant)
        assert outcome.kind not in DEFECTS, f"{mutant.text}: {outcome}"


def test_outcomes():
    """The outcomes are told apart: what changes detections, what mmort refuses, and that many mutants are made."""
    judge = Judge(VERSION, "retinanet")
    assert len(judge.mutants) > 500
    threshold = Mutant(("model", "test_cfg", "score_thr"), 0.99)
    assert judge(threshold).kind == EFFECT
    unknown = Mutant(("model", "neck", "no_such_entry"), 1)
    assert judge(unknown).kind == REFUSED


def test_every_part_of_a_config_is_changed():
    paths = {".".join(map(str, mutant.path)) for mutant in Judge(VERSION, "deformable_detr").mutants}
    for path in (
        "model.encoder.layer_cfg.self_attn_cfg.num_points",
        "model.decoder.layer_cfg.cross_attn_cfg.num_heads",
        "model.decoder.layer_cfg.ffn_cfg.add_identity",
        "model.decoder.layer_cfg.norm_cfg",
        "model.positional_encoding.temperature",
        "model.neck.norm_cfg.num_groups",
        "model.backbone.dcn",
        "model.test_cfg.max_per_img",
        "model.data_preprocessor",
        "test_dataloader.dataset.pipeline",
        "test_dataloader.dataset.pipeline.1.keep_ratio",
    ):
        assert path in paths
