"""Features of regions of interest, each from the pyramid level that fits its size.

Source: T.-Y. Lin et al., "Feature Pyramid Networks", CVPR 2017; MMDetection's ``SingleRoIExtractor``.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.detector import require
from mmort.torch import roi_align


class RoIExtractor(nn.Module):
    """RoIAlign over the levels of a feature pyramid.

    Parameters
    ----------
    config : dict
        ``bbox_roi_extractor`` or ``mask_roi_extractor`` of the RoI head.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        layer = dict(config["roi_layer"])
        require("RoI extractor", config["type"], "SingleRoIExtractor")
        require("roi_layer", layer.pop("type"), "RoIAlign")
        self.strides: list[int] = config["featmap_strides"]
        self.channels: int = config["out_channels"]
        self.finest_scale: float = config.get("finest_scale", 56)
        size = layer.pop("output_size")
        self.output_size: tuple[int, int] = (size, size) if isinstance(size, int) else tuple(size)
        layer.pop("use_torchvision", None)  # the same numbers
        self.layer: dict[str, Any] = layer

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
            return self._align(features[0], rois, self.strides[0])
        pooled = rois.new_zeros(rois.shape[0], self.channels, *self.output_size)
        level = self.levels(rois)
        for index, stride in enumerate(self.strides):
            rows = torch.nonzero(level == index)[:, 0]  # [R'], the regions of this level
            aligned = self._align(features[index], rois.index_select(0, rows), stride)
            pooled = pooled.index_put((rows,), aligned)
        return pooled

    def levels(self, rois: Tensor) -> Tensor:
        """Return the level of each region, [R]: 0 below twice ``finest_scale``, one more with each doubling."""
        scale = torch.sqrt((rois[:, 3] - rois[:, 1]) * (rois[:, 4] - rois[:, 2]))
        level = torch.floor(torch.log2(scale / self.finest_scale + 1e-6))
        return level.clamp(0, len(self.strides) - 1).long()

    def _align(self, features: Tensor, rois: Tensor, stride: int) -> Tensor:
        return roi_align(features, rois, self.output_size, spatial_scale=1 / stride, **self.layer)


def regions(boxes: Tensor) -> Tensor:
    """Turn the boxes of a batch, [N, K, 4], into RoIs, [N*K, 5]: the image's place in the batch before each box."""
    images, count, _ = boxes.shape
    place = torch.arange(images, device=boxes.device, dtype=boxes.dtype)
    return torch.cat([place[:, None, None].expand(images, count, 1), boxes], 2).flatten(0, 1)
