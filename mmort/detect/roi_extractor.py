"""Features of regions of interest, each from the pyramid level that fits its size.

Source: T.-Y. Lin et al., "Feature Pyramid Networks", CVPR 2017; MMDetection's ``SingleRoIExtractor``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmort.detect.detector import Config, construct
from mmort.torch import RoIAlign


class RoIExtractor(nn.Module):
    """RoIAlign over the levels of a feature pyramid.

    The arguments are the entries of the config's ``bbox_roi_extractor`` or ``mask_roi_extractor``.
    """

    def __init__(
        self, roi_layer: Config, featmap_strides: list[int], out_channels: int, finest_scale: float = 56
    ) -> None:
        super().__init__()
        self.strides = featmap_strides
        self.finest_scale = finest_scale
        self.roi_layers = nn.ModuleList(
            construct("roi_layer", {**roi_layer, "spatial_scale": 1 / stride}, {"RoIAlign": RoIAlign})
            for stride in featmap_strides
        )

    def forward(self, features: list[Tensor], rois: Tensor) -> Tensor:
        """Pool.

        Parameters
        ----------
        features : list of Tensor, [N, C, h, w]
            By level, finest first; those that have no stride here are left out.
        rois : Tensor, [R, 5]
            Image's place in the batch, x1, y1, x2, y2 in pixels of the network's input.

        Returns
        -------
        Tensor, [R, C, output height, output width]
        """
        if len(self.strides) == 1:
            return self.roi_layers[0](features[0], rois)  # type: ignore[no-any-return]
        level = self.levels(rois)
        rows = [torch.nonzero(level == index)[:, 0] for index in range(len(self.strides))]  # [R'] for each level
        aligned = [
            layer(features[index], rois.index_select(0, rows[index])) for index, layer in enumerate(self.roi_layers)
        ]
        order = torch.cat(rows)
        # Where each region has gone.  Picking features up from there costs half of writing each level's to its place.
        places = torch.zeros_like(level).scatter(0, order, torch.arange(level.shape[0], device=level.device))
        return torch.cat(aligned).index_select(0, places)

    def levels(self, rois: Tensor) -> Tensor:
        """Return the level of each region, [R]: 0 below twice ``finest_scale``, one more with each doubling."""
        scale = torch.sqrt((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2]))
        level = torch.floor(torch.log2(scale / self.finest_scale + 1e-6))
        return level.clamp(0, len(self.strides) - 1).long()


def build_roi_extractor(config: Config) -> RoIExtractor:
    """Build one of the RoI head's extractors."""
    extractor: RoIExtractor = construct("RoI extractor", config, {"SingleRoIExtractor": RoIExtractor})
    return extractor


def regions(boxes: Tensor) -> Tensor:
    """Turn the boxes of a batch, [N, K, 4], into RoIs, [N*K, 5]: the image's place in the batch before each box."""
    images, count, _ = boxes.shape
    place = torch.arange(images, device=boxes.device, dtype=boxes.dtype)
    return torch.cat([place[:, None, None].expand(images, count, 1), boxes], 2).flatten(0, 1)
