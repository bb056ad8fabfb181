"""From maps of kernels to the `TextRegions` of an image, as MMOCR's ``PSEPostprocessor`` and ``PANPostprocessor``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import TextKernelsFormat
from mmort.contract.mask_format import MaskFormat
from mmort.contract.preprocessing import Prepared
from mmort.detections.text_growth import Labels, expanded, grouped
from mmort.detections.text_regions import TextRegions
from mmort.images import opencv
from mmort.predict.text_detection import MIN_CORNERS, TextRegionsPostprocessing

_Maps = NDArray[np.float32]


@dataclass(frozen=True)
class TextKernelsPostprocessing(TextRegionsPostprocessing):
    """Postprocessing of an image's row of a text detection's kernels."""

    format: TextKernelsFormat

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> TextRegions:
        """Return the texts in an image; ValueError if there are too few maps."""
        (maps,) = rows
        least = 1 if self.format.growth == "pse" else 3
        if len(maps) < least:
            raise ValueError(f"the model's kernels must have at least {least} maps, got {len(maps)}")
        height, width = (
            -(-side * size // of) for side, size, of in zip(image.pad_shape, maps.shape[1:], canvas, strict=True)
        )
        labels, scores = _GROWTHS[self.format.growth](maps[:, :height, :width], self.format)
        return self.regions(image, _regions(labels, scores, self.format), self.format.scale)


def _probabilities(logits: _Maps) -> _Maps:
    """Return the probabilities of logits."""
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-logits))


def _kernels(mask: NDArray[np.bool_]) -> tuple[int, NDArray[np.int32]]:
    """Return the number of kernels and one, and the label of each pixel; pixels touch at their sides."""
    return opencv().connectedComponents(mask.astype(np.uint8), connectivity=4)  # type: ignore[no-any-return]


def _grown_from_last(maps: _Maps, format: TextKernelsFormat) -> tuple[Labels, _Maps]:
    """Return labels and probabilities of texts that grow from the last map's kernels."""
    probabilities = _probabilities(maps)
    masks = probabilities > np.float32(format.min_kernel)
    _, seeds = _kernels(masks[-1] & masks[0])
    # MMCV's contour_expand lets kernels grow only if there are further maps.
    return expanded(masks[0] & (len(maps) > 1), seeds, format.min_kernel_area), probabilities[0]


def _grown_by_embeddings(maps: _Maps, format: TextKernelsFormat) -> tuple[Labels, _Maps]:
    """Return labels and probabilities of texts that grow from the second map's kernels to pixels like them."""
    cv2, (text, kernel) = opencv(), _probabilities(maps[:2])
    mask = text > np.float32(format.min_text)
    of_kernels = (kernel > np.float32(format.min_kernel)) & mask
    count, seeds = _kernels(of_kernels)
    outlines, _ = cv2.findContours(of_kernels.astype(np.uint8) * 255, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    contours = np.zeros(mask.shape, np.uint8)
    cv2.drawContours(contours, outlines, -1, 255)
    vectors = np.ascontiguousarray((maps[2:] * mask).transpose(1, 2, 0))
    return grouped(mask, vectors, seeds, contours != 0, count, format.max_distance), text


_GROWTHS = {"pse": _grown_from_last, "pan": _grown_by_embeddings}


def _regions(labels: Labels, scores: _Maps, format: TextKernelsFormat) -> Iterator[tuple[NDArray[np.float32], float]]:
    """Yield the outline of each text, and its score."""
    for label in range(1, int(labels.max(initial=0)) + 1):
        mask = labels == label
        area = np.count_nonzero(mask)
        if not area:
            continue
        score = float(scores[mask].mean())
        is_large, is_probable = area >= format.min_text_area, score > format.min_score
        if not (is_large or is_probable if format.growth == "pse" else is_large and is_probable):
            continue
        outline = _outline(mask, format)
        if len(outline) >= MIN_CORNERS:
            yield outline, score


def _outline(mask: NDArray[np.bool_], format: TextKernelsFormat) -> NDArray[np.float32]:
    """Return the corners of a text's pixels."""
    cv2 = opencv()
    if format.shape == "quad":
        rows, columns = mask.nonzero()
        corners: NDArray[np.float32] = cv2.boxPoints(cv2.minAreaRect(np.stack([columns, rows], 1).astype(np.int32)))
        return corners
    outlines, _ = cv2.findContours(mask.astype(np.uint8) * 255, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE)
    return outlines[0].reshape(-1, 2).astype(np.float32)  # type: ignore[no-any-return]
