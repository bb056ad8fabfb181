"""The module ``mmcv._ext``: every name that MMCV asks for at import, as a function of mmort or one that raises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import torch

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

IMPLEMENTED: dict[str, Callable[..., Any]] = {
    name: torch.no_grad()(getattr(module, name))
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
        raise NotImplementedError(
            f"mmcv._ext.{name}: not implemented by mmort; docs/mmdetection_on_todays_torch.md lists what is"
        )

    call.__name__ = call.__qualname__ = name
    return call
