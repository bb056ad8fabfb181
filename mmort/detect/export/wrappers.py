"""Detectors with the inputs and outputs of their files."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmort.detect.detector import Detector
from mmort.detect.export.graph_masks import paste_masks


class Exported(nn.Module):
    """A detector whose `img_shape` may be 0 or too large; with a threshold, its masks are pasted."""

    def __init__(self, detector: Detector, mask_threshold: float | None) -> None:
        super().__init__()
        self.detector, self.mask_threshold = detector, mask_threshold
        self.eval()

    def forward(self, input: Tensor, img_shape: Tensor) -> tuple[Tensor, ...]:
        """Return dets, labels and perhaps masks; 0 in `img_shape` [N, 2] means the height or width of `input`."""
        height, width = (torch.scalar_tensor(side, dtype=torch.int64) for side in input.shape[2:])
        whole = torch.stack([height, width])
        outputs = self.detector(input, torch.where(img_shape > 0, torch.minimum(img_shape, whole), whole))
        if self.mask_threshold is None or len(outputs) < 3:
            return outputs
        dets, labels, masks = outputs
        return dets, labels, paste_masks(masks, dets, input.shape[2], input.shape[3], self.mask_threshold)


class Raw(nn.Module):
    """A detector without its post-processing."""

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector = detector
        self.eval()

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the heads' outputs."""
        return self.detector.raw(input)
