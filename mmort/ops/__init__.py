"""The numpy door: one module per family of operators, everything public re-exported by `mmort`."""

from mmort.ops.boxes import box_iou
from mmort.ops.corner import corner_pool
from mmort.ops.deform import deform_conv2d, modulated_deform_conv2d
from mmort.ops.grid import grid_sample, point_sample
from mmort.ops.nms import batched_nms, nms, nms_match, soft_nms
from mmort.ops.roi import roi_align
from mmort.ops.scan import cummax, cummin

__all__ = [
    "batched_nms",
    "box_iou",
    "corner_pool",
    "cummax",
    "cummin",
    "deform_conv2d",
    "grid_sample",
    "modulated_deform_conv2d",
    "nms",
    "nms_match",
    "point_sample",
    "roi_align",
    "soft_nms",
]
