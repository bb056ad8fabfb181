"""The operators in standard ONNX operators: for each kernel that has one, a function that writes its definition.

A definition computes what the kernel computes, to float32's rounding where sums are made; docs/portable.md lists what
it assumes.  It is written for the attributes of one node, so it has no branches for other attributes.  A value that
does not change the form of the definition is a reference to the node's attribute, so that many nodes share it.  The
arguments are the node's inputs; an optional input that is left out is None.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mmort.onnx.portable.definitions import (
    attention,
    convolution,
    match,
    normalization,
    regions,
    rotated,
    rotated_suppression,
    sampling,
    scans,
    suppression,
)

MIN_OPSET = 16
"""The lowest opset that has all operators used (GridSample, RoiAlign with half pixels)."""

DEFINITIONS: dict[str, Callable[..., Any]] = {
    definition.__name__: definition
    for definition in (
        suppression.filter_scores,
        suppression.nms,
        suppression.soft_nms,
        suppression.multiclass_nms,
        suppression.nms_indices,
        match.nms_match_pairs,
        sampling.carafe,
        regions.roi_align,
        sampling.grid_sample,
        convolution.deform_conv2d,
        convolution.modulated_deform_conv2d,
        attention.multi_scale_deformable_attention,
        scans.corner_pool,
        scans.cummax,
        scans.cummin,
        normalization.group_norm,
        rotated.roi_align_rotated,
        rotated_suppression.nms_rotated,
        rotated_suppression.nms_rotated_indices,
        rotated.rotated_feature_align,
    )
}
