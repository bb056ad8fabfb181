"""Detectors with the inputs and outputs of their files."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from mmort.contract.tasks import PANOPTIC
from mmort.detect.detector import Detector
from mmort.detect.export.graph_masks import paste_masks
from mmort.detect.export.graph_panoptic import panoptic_map


class Exported(nn.Module):
    """A detector whose `img_shape` may be 0 or too large.

    With `pasted`, its masks are of 0 and 1 over the input.  If they are those of a panoptic segmentation, they stay as
    they are, and there is another output, ``panoptic``.

    Attributes
    ----------
    mask_format : MaskFormat
        What the output ``masks`` holds.
    output_names : tuple of str
    """

    def __init__(self, detector: Detector, *, pasted: bool) -> None:
        super().__init__()
        self.detector, self.pasted = detector, pasted
        self.mask_format, self.output_names = detector.mask_format, detector.output_names
        if pasted and detector.mask_format.panoptic is not None:
            self.output_names = (*detector.output_names, PANOPTIC.name)
        elif pasted:
            self.mask_format = replace(detector.mask_format, area="image", threshold=0.5, stride=1, scores="output")
        self.eval()

    def forward(self, input: Tensor, img_shape: Tensor) -> tuple[Tensor, ...]:
        """Return dets, labels and perhaps masks; 0 in `img_shape` [N, 2] means the height or width of `input`."""
        return self.outputs(input, img_shape)

    def outputs(self, input: Tensor, img_shape: Tensor, *further: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs of `forward`; `further` are further arguments of the detector."""
        height, width = (torch.scalar_tensor(side, dtype=torch.int64) for side in input.shape[2:])
        whole = torch.stack([height, width])
        img_shape = torch.where(img_shape > 0, torch.minimum(img_shape, whole), whole)
        outputs: tuple[Tensor, ...] = self.detector(input, img_shape, *further)
        if not self.pasted or len(outputs) < 3:
            return outputs
        if self.mask_format.panoptic is not None:
            return *outputs, panoptic_map(self.mask_format, outputs, img_shape, input)
        dets, labels, masks = outputs
        return dets, labels, paste_masks(self.detector.mask_format, masks, dets, input.shape[2], input.shape[3])


class ExportedWithProposals(Exported):
    """Such a detector that takes proposals; they come second, as inputs that may be left out come last."""

    def forward(self, input: Tensor, proposals: Tensor, img_shape: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        """Return the outputs of `Exported` for proposals [N, P, 4]."""
        return self.outputs(input, img_shape, proposals)


class ExportedWithTexts(Exported):
    """Such a detector that takes words: `TextEncoder.text` makes all three arguments."""

    def forward(  # type: ignore[override]
        self, input: Tensor, text: Tensor, text_positions: Tensor, text_shares: Tensor, img_shape: Tensor
    ) -> tuple[Tensor, ...]:
        """Return the outputs of `Exported` for words [1, T, D], [1, T], [S, C]."""
        return self.outputs(input, img_shape, text, text_positions, text_shares)


class Raw(nn.Module):
    """A detector without its post-processing.

    Attributes
    ----------
    output_names : tuple of str
    """

    def __init__(self, detector: Detector) -> None:
        super().__init__()
        self.detector, self.output_names = detector, detector.raw_names
        self.eval()

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the heads' outputs."""
        return self.detector.raw(input)
