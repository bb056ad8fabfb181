"""Names that arguments had in MMCV before 1.x: an error for them says what they are called now."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

RENAMED = {
    "iou_thr": "iou_threshold",
    "score_thr": "score_threshold",
    "max_per_img": "max_num",
    "out_size": "output_size",
    "sample_num": "sampling_ratio",
    "deformable_groups": "deform_groups",
}


def refuse_former_names(function: str, given: Iterable[str], parameters: Iterable[str]) -> None:
    """Raise TypeError if a name is the former one of a parameter that a function has."""
    for name in given:
        if RENAMED.get(name) in set(parameters):
            raise TypeError(f"{function}: {name} was renamed {RENAMED[name]} in MMCV 1.x") from None


def explains_former_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function whose parameters had other names."""
    parameters = function.__code__.co_varnames[: function.__code__.co_argcount]

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except TypeError:
            refuse_former_names(function.__name__, kwargs.keys() - set(parameters), parameters)
            raise

    return call
