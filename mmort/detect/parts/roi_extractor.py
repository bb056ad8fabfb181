"""Features of regions of interest, each from the pyramid level that fits its size.

Source: T.-Y. Lin et al., "Feature Pyramid Networks", CVPR 2017; MMDetection's ``SingleRoIExtractor``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, at_least, part
from mmort.detect.parts.deform_roi_pool import DeformRoIPoolLayer, ModulatedDeformRoIPoolLayer
from mmort.torch import RoIAlign


class RoILayer:
    """The settings of the RoIAlign layers, one for each level."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        output_size: int | tuple[int, int]
        sampling_ratio: int = 0
        pool_mode: Literal["avg", "max"] = "avg"
        aligned: bool = True

        ignored: ClassVar = {
            "spatial_scale": "every level has its own",
            "use_torchvision": "another implementation of the same numbers",
        }

    def __init__(self, entries: Entries) -> None:
        self.entries = entries

    def at_stride(self, stride: float) -> RoIAlign:
        """Return the layer for a level with a stride."""
        return RoIAlign(spatial_scale=1 / stride, **dataclasses.asdict(self.entries))


_ROI_LAYERS: dict[str, type[Any]] = {
    "RoIAlign": RoILayer,
    "DeformRoIPoolPack": DeformRoIPoolLayer,
    "ModulatedDeformRoIPoolPack": ModulatedDeformRoIPoolLayer,
}


@PARTS.register("RoI extractor", "SingleRoIExtractor")
class RoIExtractor(nn.Module):
    """RoIAlign, or deformable RoI pooling, over the levels of a feature pyramid."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_roi_extractor`` or ``mask_roi_extractor``."""

        roi_layer: RoILayer | DeformRoIPoolLayer = part("roi_layer", types=_ROI_LAYERS)
        featmap_strides: list[int]
        finest_scale: float = at_least(1, default=56)

        ignored: ClassVar = {"out_channels": "those of the features"}

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        self.finest_scale = entries.finest_scale
        self.roi_layers = nn.ModuleList(entries.roi_layer.at_stride(stride) for stride in entries.featmap_strides)

    def forward(self, features: list[Tensor], rois: Tensor, scale: float = 1.0) -> Tensor:
        """Pool the features of regions.

        Parameters
        ----------
        features : list of Tensor, [N, C, h, w]
            By level, finest first; levels beyond the last stride are not read, nor are strides beyond the last level.
        rois : Tensor, [R, 5]
            Index of the image in the batch, x1, y1, x2, y2 in pixels of the network's input.
        scale : float, default 1
            Factor of the regions' sides; their levels are those of the sizes before.  One level alone has no factor.

        Returns
        -------
        Tensor, [R, C, output height, output width]
        """
        count = min(len(self.roi_layers), len(features))
        if count == 1:  # as in MMDetection, whatever the factor
            return self.roi_layers[0](features[0], rois)
        level = self.levels(rois, count)
        if scale != 1:
            rois = scaled(rois, scale)
        rows = [torch.nonzero(level == index)[:, 0] for index in range(count)]  # [R'] for each level
        aligned = [self.roi_layers[index](features[index], rois.index_select(0, rows[index])) for index in range(count)]
        order = torch.cat(rows)
        # Gathering by position takes half the time of writing each level's regions to their rows.
        nothing = aligned[0].new_zeros(1, *aligned[0].shape[1:])  # for regions without a level
        positions = torch.zeros_like(level, dtype=torch.int64)
        positions = positions.scatter(0, order, torch.arange(1, order.shape[0] + 1, device=level.device))
        return torch.cat([nothing, *aligned]).index_select(0, positions)

    def levels(self, rois: Tensor, count: int) -> Tensor:
        """Return the level of each region, [R], of `count`: 0 below twice ``finest_scale``, one more by each doubling.

        A region whose width or height is negative, as SABL's sides allow, has none: NaN.
        """
        scale = torch.sqrt((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2]))
        return torch.floor(torch.log2(scale / self.finest_scale + 1e-6)).clamp(0, count - 1)


def scaled(rois: Tensor, factor: float) -> Tensor:
    """Return regions [R, 5] of the same centres, whose sides have `factor` times the length."""
    centre = (rois[:, 1:3] + rois[:, 3:]) * 0.5
    half = (rois[:, 3:] - rois[:, 1:3]) * factor * 0.5
    return torch.cat([rois[:, :1], centre - half, centre + half], 1)
