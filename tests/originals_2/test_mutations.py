"""A sample of all mutants, the same each time: equal to MMDetection 2 or MMRotate 0, or refused by the entry's name.

``python -m tests.originals_2.mutations`` runs others, and all.
"""

import random

import pytest

from tests.originals.mutants import Mutant
from tests.originals.outcomes import DEFECTS, EFFECT, NO_EFFECT, TIES, Judge
from tests.originals_2.version import PIPELINE, VERSION

PER_CASE = 6


@pytest.mark.parametrize("name", ["retinanet", "mask_rcnn", "sparse_rcnn", "rotated_retinanet", "oriented_rcnn"])
def test_sample(name):
    judge = Judge(VERSION, name)
    for mutant in random.Random(f"{name} 0").sample(judge.mutants, PER_CASE):
        outcome = judge(mutant)
        assert outcome.kind not in DEFECTS, f"{mutant.text}: {outcome}"


def test_a_number_for_padding_is_that_of_blue():
    judge = Judge(VERSION, "retinanet")
    steps = judge.config["data"]["test"]["pipeline"][1]["transforms"]
    pad = {"type": "Pad", "size_divisor": 64, "pad_val": {"img": 50}}
    assert judge(Mutant((*PIPELINE, 1, "transforms"), [*steps[:2], pad, *steps[2:]])).kind == EFFECT


def test_yolact_masks_have_a_fixed_threshold():
    judge = Judge(VERSION, "yolact")
    assert judge(Mutant(("model", "test_cfg", "mask_thr"), 0.9)).kind == NO_EFFECT


def test_queries_that_are_alike_tie():
    judge = Judge(VERSION, "maskformer_panoptic")
    assert judge(Mutant(("model", "backbone", "strides"), (2, 4, 4, 4))).kind == TIES
