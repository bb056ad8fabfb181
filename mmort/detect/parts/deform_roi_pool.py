"""Deformable RoI pooling: each bin of a region is pooled where the region's features point to.

Source: J. Dai et al., "Deformable Convolutional Networks", ICCV 2017; X. Zhu et al., "Deformable ConvNets v2", CVPR
2019, which adds a weight of each bin.  MMCV's ``DeformRoIPoolPack`` and ``ModulatedDeformRoIPoolPack``.

A bin is averaged exactly as RoIAlign averages a region of one bin, so that operator computes both.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import Schema
from mmort.torch import roi_align

SLACK = 2**12
"""How many units of rounding, in pixels, a bin is smaller: one of N cells, as in a whole image, has N samples then."""


class DeformRoIPoolLayer:
    """The settings of the layers, one for each level."""

    modulated: ClassVar = False

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        output_size: int | tuple[int, int]
        output_channels: int
        deform_fc_channels: int = 1024
        sampling_ratio: int = 0
        gamma: float = 0.1

        ignored: ClassVar = {"spatial_scale": "every level has its own"}

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def at_stride(self, stride: float) -> DeformRoIPool:
        """Return the layer for a level with a stride."""
        return DeformRoIPool(1 / stride, modulated=self.modulated, **dataclasses.asdict(self.entries))


class ModulatedDeformRoIPoolLayer(DeformRoIPoolLayer):
    """The settings of layers whose bins have weights."""

    modulated: ClassVar = True


class DeformRoIPool(nn.Module):
    """Deformable RoI pooling with the layers that predict its offsets, and perhaps the weights of the bins."""

    def __init__(
        self,
        spatial_scale: float,
        output_size: int | tuple[int, int],
        output_channels: int,
        deform_fc_channels: int,
        sampling_ratio: int,
        gamma: float,
        modulated: bool,
    ) -> None:
        super().__init__()
        self.size = (output_size, output_size) if isinstance(output_size, int) else output_size
        self.spatial_scale, self.sampling_ratio, self.gamma = spatial_scale, sampling_ratio, gamma
        bins, width = self.size[0] * self.size[1], deform_fc_channels

        def layers(*widths: int) -> Sequence[nn.Module]:
            """Return linear layers with a ReLU between them."""
            pairs = itertools.pairwise(widths)
            return [layer for pair in pairs for layer in (nn.Linear(*pair), nn.ReLU())][:-1]

        self.offset_fc = nn.Sequential(*layers(bins * output_channels, width, width, 2 * bins))
        self.mask_fc = nn.Sequential(*layers(bins * output_channels, width, bins), nn.Sigmoid()) if modulated else None

    def forward(self, features: Tensor, rois: Tensor) -> Tensor:
        """Return [R, C, h, w] for a map [N, C, H, W] and regions [R, 5]."""
        pooled = roi_align(features, rois, self.size, self.spatial_scale, self.sampling_ratio).flatten(1)
        offsets = torch.unflatten(self.offset_fc(pooled), 1, (2, *self.size))
        deformed = deform_roi_pool(
            features, rois, offsets, self.spatial_scale, sampling_ratio=self.sampling_ratio, gamma=self.gamma
        )
        return (
            deformed if self.mask_fc is None else deformed * torch.unflatten(self.mask_fc(pooled), 1, (1, *self.size))
        )


def deform_roi_pool(
    features: Tensor, rois: Tensor, offsets: Tensor, spatial_scale: float, *, sampling_ratio: int, gamma: float
) -> Tensor:
    """Pool regions whose bins are shifted.

    Parameters
    ----------
    features : Tensor, [N, C, H, W]
    rois : Tensor, [R, 5]
        Index of the image in the batch, x1, y1, x2, y2 in pixels.
    offsets : Tensor, [R, 2, h, w]
        Shift of each bin, x before y, in units of `gamma` times the region's size.
    spatial_scale : float
        Factor from pixels to cells of `features`.
    sampling_ratio : int
        Samples along each side of a bin; 0: one for each cell of its side, rounded up.
    gamma : float

    Returns
    -------
    Tensor, [R, C, h, w]
    """
    height, width = offsets.shape[2:]
    bins = torch.tensor([width, height], device=rois.device)
    columns, rows = torch.arange(width, device=rois.device), torch.arange(height, device=rois.device)
    cells = torch.stack(torch.meshgrid(columns, rows, indexing="xy"), 2)  # x, y of the bins, [h, w, 2]
    extent = (rois[:, 3:] - rois[:, 1:3])[:, None, None]  # [R, 1, 1, 2]
    first = rois[:, None, None, 1:3] + extent * (
        cells.to(rois.dtype) / bins + gamma * offsets.permute(0, 2, 3, 1)
    )  # [R, h, w, 2]
    last = first + extent / bins - SLACK * torch.finfo(rois.dtype).eps
    image = rois[:, :1, None, None].expand(-1, height, width, 1)
    regions = torch.cat([image, first, last], 3).flatten(0, 2)  # of one bin each
    pooled = roi_align(features, regions, 1, spatial_scale, sampling_ratio)[:, :, 0, 0]  # [R * h * w, C]
    return torch.unflatten(pooled, 0, (-1, height, width)).permute(0, 3, 1, 2)
