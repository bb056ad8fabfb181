"""The module ``mmcv._ext``: every name that MMCV asks for at import, as a function of mmort or one that raises."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from mmort.limits import MAX_REPEATED
from mmort.mmcv import (
    attention,
    build_information,
    convolutions,
    losses,
    normalization,
    overlaps,
    points,
    pooling,
    regions,
    sequences,
    suppression,
    text_instances,
    upsampling,
)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that refuses sizes which are not those of its output, and counts out of proportion."""
    signature = inspect.signature(function)
    sizes = [name for name in signature.parameters if name.startswith(("pooled_", "aligned_"))]
    counts = [name for name in signature.parameters if name in ("sampling_ratio", "num_samples", "pool_size")]
    pooled = next((name for name in ("grad_output", "output") if name in signature.parameters), None)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        arguments = signature.bind(*args, **kwargs).arguments
        asked = [arguments[name] for name in sizes]
        if pooled is not None and asked and asked != [*arguments[pooled].shape[-2:]]:
            raise ValueError(
                f"mmcv._ext.{function.__name__}: {' and '.join(sizes)} must be those of {pooled}, "
                f"{[*arguments[pooled].shape[-2:]]}, got {asked}"
            )
        for name in counts:
            if arguments[name] > MAX_REPEATED:
                raise ValueError(
                    f"mmcv._ext.{function.__name__}: {name} must be at most {MAX_REPEATED}, got {arguments[name]}"
                )
        return function(*args, **kwargs)

    return call if sizes or counts else function


IMPLEMENTED: dict[str, Callable[..., Any]] = {
    name: torch.no_grad()(_bounded(getattr(module, name)))
    for module in (
        attention,
        build_information,
        convolutions,
        losses,
        normalization,
        overlaps,
        points,
        pooling,
        regions,
        sequences,
        suppression,
        text_instances,
        upsampling,
    )
    for name in module.__all__
}
"""The functions that work, by MMCV's name; as MMCV's, they record no gradients."""

NOT_IMPLEMENTED = (
    "assign_score_withk_backward",
    "assign_score_withk_forward",
    "bias_act",
    "dynamic_point_to_voxel_backward",
    "dynamic_point_to_voxel_forward",
    "filtered_lrelu",
    "filtered_lrelu_act_",
    "furthest_point_sampling_forward",
    "furthest_point_sampling_with_dist_forward",
    "fused_bias_leakyrelu",
    "fused_indice_conv_forward",
    "get_indice_pairs_2d_backward",
    "get_indice_pairs_2d_forward",
    "get_indice_pairs_3d_backward",
    "get_indice_pairs_3d_forward",
    "get_indice_pairs_4d_forward",
    "indice_conv_backward",
    "indice_conv_forward",
    "indice_maxpool_backward",
    "indice_maxpool_forward",
    "iou3d_boxes_overlap_bev_forward",
    "iou3d_nms3d_forward",
    "iou3d_nms3d_normal_forward",
    "knn_forward",
    "points_in_boxes_all_forward",
    "points_in_boxes_part_forward",
    "roiaware_pool3d_backward",
    "roiaware_pool3d_forward",
    "roipoint_pool3d_forward",
    "stack_ball_query_forward",
    "stack_group_points_backward",
    "stack_group_points_forward",
    "upfirdn2d",
)
"""The names of MMCV 2.1 that raise when called; they must exist, as MMCV asserts them when it is imported."""


def functions() -> dict[str, Callable[..., Any]]:
    """Return a function for every name."""
    return {name: _raiser(name) for name in NOT_IMPLEMENTED} | IMPLEMENTED


def _raiser(name: str) -> Callable[..., NoReturn]:
    """Return a function that states that an operator is not implemented."""

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"mmcv._ext.{name}: not implemented by mmort; docs/mmcv_operators.md lists what is")

    call.__name__ = call.__qualname__ = name
    return call
