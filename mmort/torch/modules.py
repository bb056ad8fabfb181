"""Layers with the arguments and the ``state_dict`` keys of their namesakes in ``mmcv.ops``."""

from __future__ import annotations

import inspect
import math
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.utils import _pair

from mmort import schemas
from mmort._kernels import as_choice
from mmort.ops._other_names import explains_other_names
from mmort.torch.dtypes import as_floating, in_dtype
from mmort.torch.functions import (
    corner_pool,
    deform_conv2d,
    modulated_deform_conv2d,
    point_sample,
    rel_roi_point_to_rel_img_point,
    roi_align,
    roi_align_rotated,
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
]

Pair = int | tuple[int, int]


class _Layer(nn.Module):
    """A layer that prints its settings: those arguments that are its attributes."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "__init__" in vars(cls):
            cls.__init__ = explains_other_names(cls.__init__)  # type: ignore[method-assign]

    def extra_repr(self) -> str:
        names = [name for name in inspect.signature(type(self)).parameters if hasattr(self, name)]
        settings = {name: getattr(self, name) for name in names}
        return ", ".join(
            f"{name}={value!r}" for name, value in settings.items() if isinstance(value, (bool, int, float, str, tuple))
        )


class RoIAlign(_Layer):
    """Pool the features of regions of interest; the arguments are those of `mmort.roi_align`."""

    def __init__(
        self,
        output_size: Pair,
        spatial_scale: float = 1.0,
        sampling_ratio: int = 0,
        pool_mode: Literal["avg", "max"] = "avg",
        aligned: bool = True,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.sampling_ratio = int(sampling_ratio)
        self.pool_mode = pool_mode
        self.aligned = aligned

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Return (K, C, output height, output width) for maps (N, C, H, W) and regions (K, 5)."""
        return roi_align(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.pool_mode, self.aligned
        )


class RoIAlignRotated(_Layer):
    """Pool the features of rotated regions of interest; the arguments are those of `mmort.roi_align_rotated`."""

    def __init__(
        self,
        output_size: Pair,
        spatial_scale: float,
        sampling_ratio: int = 0,
        aligned: bool = True,
        clockwise: bool = False,
    ) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.sampling_ratio = int(sampling_ratio)
        self.aligned = aligned
        self.clockwise = clockwise

    def forward(self, input: Tensor, rois: Tensor) -> Tensor:
        """Return (K, C, output height, output width) for maps (N, C, H, W) and regions (K, 6)."""
        return roi_align_rotated(
            input, rois, self.output_size, self.spatial_scale, self.sampling_ratio, self.aligned, self.clockwise
        )


class SimpleRoIAlign(_Layer):
    """Sample feature maps at the bin centres of regions: RoIAlign with one sample per bin, as PointRend uses it."""

    def __init__(self, output_size: Pair, spatial_scale: float, aligned: bool = True) -> None:
        super().__init__()
        self.output_size = _pair(output_size)
        self.spatial_scale = float(spatial_scale)
        self.aligned = aligned

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """Return (K, C, output height, output width) for maps (N, C, H, W) and regions (K, 5).

        Every map is sampled at the points of all regions: a loop over maps, or over their regions, cannot be exported.
        """
        (features, rois), dtype = as_floating("SimpleRoIAlign", features=features, rois=rois)
        height, width = self.output_size
        y = (torch.arange(height, dtype=rois.dtype, device=rois.device) + 0.5) / height
        x = (torch.arange(width, dtype=rois.dtype, device=rois.device) + 0.5) / width
        centres = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=2).flatten(0, 1)  # (OH*OW, 2)
        points = rel_roi_point_to_rel_img_point(rois, centres[None], features, self.spatial_scale)  # (K, OH*OW, 2)
        points = points[None].expand(features.shape[0], -1, -1, -1)
        sampled = point_sample(features, points, align_corners=not self.aligned)  # (N, C, K, OH*OW)
        pooled = sampled.transpose(1, 2)[rois[:, 0].long(), torch.arange(rois.shape[0], device=rois.device)]
        return in_dtype(pooled, dtype).reshape(-1, features.shape[1], height, width)


class CornerPool(_Layer):
    """Take running maxima towards one side of feature maps; the argument is that of `mmort.corner_pool`."""

    def __init__(self, mode: Literal["top", "bottom", "left", "right"]) -> None:
        super().__init__()
        as_choice("CornerPool", "mode", mode, schemas.kernels()["corner_pool"].words("mode"))
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of the shape of `x`, (N, C, H, W)."""
        return corner_pool(x, self.mode)


class _DeformConv(_Layer):
    """The parameters of a deformable convolution, and their initial values."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        padding: Pair,
        dilation: Pair,
        groups: int,
        deform_groups: int,
        bias: bool,
    ) -> None:
        super().__init__()
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: groups must divide in_channels and out_channels, got {groups}, {in_channels} "
                f"and {out_channels}"
            )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride = _pair(kernel_size), _pair(stride)
        self.padding, self.dilation = _pair(padding), _pair(dilation)
        self.groups, self.deform_groups = groups, deform_groups
        self.weight = nn.Parameter(torch.empty(out_channels, in_channels // groups, *self.kernel_size))
        self.bias = nn.Parameter(torch.zeros(out_channels)) if bias else None
        bound = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -bound, bound)

    def _conv_offset(self, values_per_tap: int) -> nn.Conv2d:
        """Return the convolution that computes offsets (and masks), initialized to zero."""
        convolution = nn.Conv2d(
            self.in_channels,
            self.deform_groups * values_per_tap * self.kernel_size[0] * self.kernel_size[1],
            self.kernel_size,
            self.stride,
            self.padding,
            self.dilation,
        )
        for parameter in convolution.parameters():
            nn.init.zeros_(parameter)
        return convolution


class DeformConv2d(_DeformConv):
    """Perform a deformable convolution, without a bias; the arguments are those of `mmort.deform_conv2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: Literal[False] = False,
    ) -> None:
        if bias:
            raise ValueError("DeformConv2d: bias must be False: the operator has none")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, deform_groups, bias=False
        )

    def forward(self, x: Tensor, offset: Tensor) -> Tensor:
        """Return (N, O, OH, OW) for maps (N, C, H, W) and offsets (N, deform_groups*2*KH*KW, OH, OW)."""
        return deform_conv2d(
            x, offset, self.weight, self.stride, self.padding, self.dilation, self.groups, self.deform_groups
        )


class DeformConv2dPack(DeformConv2d):
    """Perform a deformable convolution whose offsets are computed by the layer's own ``conv_offset``."""

    __signature__ = inspect.signature(DeformConv2d)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conv_offset = self._conv_offset(2)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return (N, O, OH, OW) for maps (N, C, H, W)."""
        return super().forward(x, self.conv_offset(x))


class ModulatedDeformConv2d(_DeformConv):
    """Perform a modulated deformable convolution; the arguments are those of `mmort.modulated_deform_conv2d`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        deform_groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, deform_groups, bias)

    def forward(self, x: Tensor, offset: Tensor, mask: Tensor) -> Tensor:
        """Return (N, O, OH, OW) for maps (N, C, H, W), offsets and masks (N, deform_groups*KH*KW, OH, OW)."""
        return modulated_deform_conv2d(
            x,
            offset,
            mask,
            self.weight,
            self.bias,
            self.stride,
            self.padding,
            self.dilation,
            self.groups,
            self.deform_groups,
        )


class ModulatedDeformConv2dPack(ModulatedDeformConv2d):
    """Perform a modulated deformable convolution whose offsets and masks are computed by its own ``conv_offset``."""

    __signature__ = inspect.signature(ModulatedDeformConv2d)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.conv_offset = self._conv_offset(3)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        """Return (N, O, OH, OW) for maps (N, C, H, W)."""
        first, second, mask = self.conv_offset(x).chunk(3, dim=1)
        return super().forward(x, torch.cat((first, second), dim=1), mask.sigmoid())
