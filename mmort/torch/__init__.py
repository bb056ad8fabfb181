"""The torch door: the operators as functions and layers, known to torch.export and so to ONNX."""

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError:
    raise ImportError("mmort.torch needs torch: pip install 'mmort[torch]'") from None

from mmort.torch.definition import define
from mmort.torch.functions import (
    corner_pool,
    deform_conv2d,
    grid_sample,
    modulated_deform_conv2d,
    multiclass_nms,
    nms,
    roi_align,
    soft_nms,
)
from mmort.torch.modules import (
    CornerPool,
    DeformConv2d,
    DeformConv2dPack,
    ModulatedDeformConv2d,
    ModulatedDeformConv2dPack,
    RoIAlign,
)

__all__ = [
    "CornerPool",
    "DeformConv2d",
    "DeformConv2dPack",
    "ModulatedDeformConv2d",
    "ModulatedDeformConv2dPack",
    "RoIAlign",
    "corner_pool",
    "define",
    "deform_conv2d",
    "grid_sample",
    "modulated_deform_conv2d",
    "multiclass_nms",
    "nms",
    "roi_align",
    "soft_nms",
]
