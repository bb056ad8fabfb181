"""The small detectors of the tests by name, each with the function that gives it weights."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.detect import (
    co_dino_cases,
    dense_cases,
    mask_cases,
    panoptic_cases,
    query_cases,
    remaining_cases,
    rotated_1_cases,
    rotated_cases,
    text_cases,
    two_stage_cases,
)
from tests.tools import check_two_stage

Fill = Callable[[torch.nn.Module], None]


def small_cases() -> dict[str, tuple[dict[str, Any], Fill]]:
    """Return the model entry of each config, and what fills its weights."""
    groups: list[tuple[Any, Callable[[str], dict[str, Any]], Callable[[str], Fill]]] = [
        (dense_cases.HEADS, dense_cases.config, lambda name: dense_cases.fill),
        (mask_cases.MODELS, mask_cases.config, lambda name: mask_cases.fill),
        (panoptic_cases.MODELS, panoptic_cases.config, lambda name: partial(panoptic_cases.fill, name)),
        (query_cases.MODELS, lambda name: {"model": query_cases.MODELS[name]}, lambda name: query_cases.fill),
        (co_dino_cases.MODELS, co_dino_cases.config, lambda name: query_cases.fill),
        (["co_deformable"], lambda name: {"model": co_dino_cases.OF_AUTHORS[name]}, lambda name: query_cases.fill),
        (text_cases.MODELS, text_cases.config, lambda name: text_cases.fill),
        (two_stage_cases.CASES, two_stage_cases.config_of, lambda name: check_two_stage.randomize),
        (rotated_cases.CASES, rotated_cases.config_of, lambda name: dense_cases.fill),
        (rotated_1_cases.CASES, rotated_1_cases.config_of, lambda name: rotated_1_cases.fill),
        (remaining_cases.MODELS, remaining_cases.config, lambda name: partial(remaining_cases.fill, name)),
    ]
    return {name: (config(name)["model"], fill(name)) for names, config, fill in groups for name in names}
