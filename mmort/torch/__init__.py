"""The torch door: the operators as functions and layers, known to torch.export and so to ONNX."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("mmort.torch needs torch: pip install 'mmort[torch]'") from None

from mmort.torch.definition import define
from mmort.torch.functions import (
    batched_nms,
    bbox_overlaps,
    box_iou_rotated,
    corner_pool,
    deform_conv2d,
    grid_sample,
    modulated_deform_conv2d,
    multi_scale_deformable_attention,
    multiclass_nms,
    nms,
    nms_match,
    nms_rotated,
    point_sample,
    rel_roi_point_to_rel_img_point,
    roi_align,
    roi_align_rotated,
    rotated_feature_align,
    soft_nms,
)
from mmort.torch.modules import (
    CornerPool,
    DeformConv2d,
    DeformConv2dPack,
    ModulatedDeformConv2d,
    ModulatedDeformConv2dPack,
    RoIAlign,
    RoIAlignRotated,
    SimpleRoIAlign,
)

__all__ = [
    "CornerPool",
    "DeformConv2d",
    "DeformConv2dPack",
    "ModulatedDeformConv2d",
    "ModulatedDeformConv2dPack",
    "RoIAlign",
    "RoIAlignRotated",
    "SimpleRoIAlign",
    "batched_nms",
    "bbox_overlaps",
    "box_iou_rotated",
    "corner_pool",
    "define",
    "deform_conv2d",
    "grid_sample",
    "modulated_deform_conv2d",
    "multi_scale_deformable_attention",
    "multiclass_nms",
    "nms",
    "nms_match",
    "nms_rotated",
    "point_sample",
    "rel_roi_point_to_rel_img_point",
    "roi_align",
    "roi_align_rotated",
    "rotated_feature_align",
    "soft_nms",
]
