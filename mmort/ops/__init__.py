"""The numpy door: one module per family of operators, everything public re-exported by `mmort`."""

from mmort.ops.attention import multi_scale_deformable_attention
from mmort.ops.boxes import box_iou
from mmort.ops.corner import corner_pool
from mmort.ops.deform import deform_conv2d, modulated_deform_conv2d
from mmort.ops.grid import grid_sample, point_sample
from mmort.ops.nms import batched_nms, multiclass_nms, nms, nms_match, nms_match_pairs, soft_nms
from mmort.ops.normalization import group_norm
from mmort.ops.roi import roi_align
from mmort.ops.rotated import (
    box_iou_rotated,
    multiclass_nms_rotated,
    nms_rotated,
    nms_rotated_indices,
    roi_align_rotated,
    rotated_feature_align,
)
from mmort.ops.scan import cummax, cummin

__all__ = [
    "batched_nms",
    "box_iou",
    "box_iou_rotated",
    "corner_pool",
    "cummax",
    "cummin",
    "deform_conv2d",
    "grid_sample",
    "group_norm",
    "modulated_deform_conv2d",
    "multi_scale_deformable_attention",
    "multiclass_nms",
    "multiclass_nms_rotated",
    "nms",
    "nms_match",
    "nms_match_pairs",
    "nms_rotated",
    "nms_rotated_indices",
    "point_sample",
    "roi_align",
    "roi_align_rotated",
    "rotated_feature_align",
    "soft_nms",
]
