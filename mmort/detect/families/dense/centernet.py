"""CenterNet: an object is a local maximum of the heatmap of its class, with a size and an offset; no suppression.

Source: X. Zhou et al., "Objects as Points", 2019; MMDetection's ``CenterNetHead`` and ``CTResNetNeck``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from mmort.detect.detector import Detector, ModelEntries
from mmort.detect.entries import PARTS, Schema, at_least, part


class CenterNetHead(nn.Module):
    """Two convolutions each for the heatmaps, the sizes and the offsets."""

    class_layers: ClassVar = {"heatmap_head.2": 0}

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        """The entries of ``bbox_head``; MMDetection 2 has the channels in the singular."""

        num_classes: int
        in_channels: int | None = None
        in_channel: int | None = None
        feat_channels: int | None = None
        feat_channel: int | None = None

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        inputs, channels = entries.in_channels or entries.in_channel, entries.feat_channels or entries.feat_channel
        if inputs is None or channels is None:
            raise ValueError("detect.build: bbox_head 'CenterNetHead' must have in_channels and feat_channels")
        self.heatmap_head, self.wh_head, self.offset_head = (
            nn.Sequential(nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(), nn.Conv2d(channels, count, 1))
            for count in (entries.num_classes, 2, 2)
        )

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return probabilities [N, classes, h, w], sizes [N, 2, h, w] and offsets [N, 2, h, w] (x, y)."""
        (x,) = features
        return self.heatmap_head(x).sigmoid(), self.wh_head(x), self.offset_head(x)


@dataclass(frozen=True, kw_only=True)
class CenterNetTestCfg(Schema):
    """The entries of ``test_cfg``."""

    topk: int = at_least(1, default=100)
    local_maximum_kernel: int = 3

    ignored: ClassVar = {"max_per_img": "of the suppression of MMDetection's flip test", "nms": "likewise"}


@PARTS.register("detector", "CenterNetHead")
class CenterNet(Detector):
    """CenterNet; the image lies in the middle of the input."""

    family = "CenterNet"
    TestCfg = CenterNetTestCfg
    test_cfg: CenterNetTestCfg
    bbox_head: CenterNetHead

    @dataclass(frozen=True, kw_only=True)
    class Model(ModelEntries):
        neck: nn.Module = part("neck")
        bbox_head: CenterNetHead = part("bbox_head", types={"CenterNetHead": CenterNetHead})

    @property
    def raw_names(self) -> tuple[str, ...]:
        """The names of the head's maps."""
        return "center_heatmap_pred", "wh_pred", "offset_pred"

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the head's maps."""
        return self.bbox_head(self.levels(input))

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        # Nothing here is clipped to the image, so its shape does not matter.
        heat, sizes, offsets = self.raw(input)
        kernel = self.test_cfg.local_maximum_kernel
        peaks = functional.max_pool2d(heat, kernel, stride=1, padding=(kernel - 1) // 2) == heat
        flat = torch.where(peaks, heat, 0).flatten(1)  # [N, classes * h * w]
        scores, indices = flat.topk(min(self.test_cfg.topk, flat.shape[1]))  # [N, K]
        # Sizes as tensors: torch's exporter cannot divide by the sizes themselves.
        rows, columns = (torch.scalar_tensor(side, dtype=torch.int64, device=heat.device) for side in heat.shape[2:])
        area = rows * columns
        labels = indices // area
        location = indices - labels * area
        at = location[:, None].expand(-1, 2, -1)
        extent, offset = (map.flatten(2).gather(2, at).transpose(1, 2) for map in (sizes, offsets))  # [N, K, 2]
        y = location // columns
        centre = torch.stack([location - y * columns, y], 2) + offset
        pixels = torch.stack(
            [torch.scalar_tensor(side, device=heat.device) for side in (input.shape[3], input.shape[2])]
        )
        scale = (pixels / torch.stack([columns, rows])).to(heat)
        dets = torch.cat([(centre - extent / 2) * scale, (centre + extent / 2) * scale, scores[..., None]], 2)
        used = scores > 0  # an image may have fewer maxima
        return torch.where(used[..., None], dets, 0), torch.where(used, labels, -1)
