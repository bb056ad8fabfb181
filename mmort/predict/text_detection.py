"""From a map of probabilities to the `TextRegions` of an image, in the arithmetic of MMOCR's ``DBPostprocessor``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.contract import TextDetectionFormat
from mmort.contract.format import Format
from mmort.contract.mask_format import MaskFormat
from mmort.contract.preprocessing import Prepared
from mmort.detections.text_regions import TextRegions
from mmort.images import ColorType, opencv

MIN_CORNERS = 4
"""Of outlines, before and after they grow."""


def clipper() -> ModuleType:
    """Return pyclipper, which moves outlines outwards.

    Raises
    ------
    ImportError
        If it is not installed; the message has the command.
    """
    try:
        import pyclipper
    except ModuleNotFoundError:
        raise ImportError("text detection needs pyclipper: pip install 'mmort[text]'") from None
    module: ModuleType = pyclipper
    return module


@dataclass(frozen=True)
class TextRegionsPostprocessing:
    """Base of the postprocessings of an image's row of a text detection's output.

    Parameters
    ----------
    classes : tuple of str
        Has no effect: there is one class, text.
    score_threshold : float
        Texts with a lower score are left out.
    format : Format
    color_type : str
        How images are read.
    """

    classes: tuple[str, ...]
    score_threshold: float
    format: Format
    color_type: ColorType

    def regions(
        self, image: Prepared, found: Iterable[tuple[NDArray[np.float32], float]], scale: float = 1.0
    ) -> TextRegions:
        """Return outlines and scores as texts; `scale` is the pixels of the output to each of the input."""
        outlines = list(found)
        sides = np.array([image.img_shape[1] / image.ori_shape[1], image.img_shape[0] / image.ori_shape[0]])
        polygons = tuple(outline * (1 / (sides * scale)) for outline, _ in outlines)
        texts = TextRegions(polygons, np.array([score for _, score in outlines]), image.ori_shape, self.color_type)
        return texts.above(self.score_threshold)


@dataclass(frozen=True)
class TextDetectionPostprocessing(TextRegionsPostprocessing):
    """Postprocessing of an image's row of a text detection's map of probabilities."""

    format: TextDetectionFormat

    def __call__(
        self, image: Prepared, canvas: tuple[int, int], rows: Sequence[NDArray[Any]], mask_format: MaskFormat | None
    ) -> TextRegions:
        """Return the texts in an image; ValueError if the map has not the size of the input."""
        (probabilities,) = rows
        if probabilities.shape != tuple(canvas):
            raise ValueError(
                f"the model's probability must be {tuple(canvas)}, as the input is, got {probabilities.shape}"
            )
        height, width = image.pad_shape
        return self.regions(image, _regions(np.ascontiguousarray(probabilities[:height, :width]), self.format))


def _regions(
    probabilities: NDArray[np.float32], format: TextDetectionFormat
) -> Iterator[tuple[NDArray[np.float32], float]]:
    """Yield the outline of each text in a map, and its score."""
    cv2, pyclipper = opencv(), clipper()
    mask = (probabilities > np.float32(format.threshold)).astype(np.uint8) * 255
    contours, _ = cv2.findContours(mask, cv2.RETR_LIST, cv2.CHAIN_APPROX_SIMPLE)
    for contour in contours[: format.max_candidates + 1]:
        corners = cv2.approxPolyDP(contour, format.epsilon_ratio * cv2.arcLength(contour, True), True).reshape(-1, 2)
        if len(corners) < MIN_CORNERS:
            continue
        score = _score(probabilities, corners)
        if score < format.min_score:
            continue
        outline = _grown(pyclipper, corners, format.unclip_ratio)
        if outline is not None and format.shape == "quad":
            rectangle = cv2.minAreaRect(outline)
            outline = cv2.boxPoints(rectangle) if min(rectangle[1]) >= format.min_width else None
        if outline is not None and len(outline) >= MIN_CORNERS:
            yield outline, score


def _score(probabilities: NDArray[np.float32], corners: NDArray[np.int32]) -> float:
    """Return the mean probability inside an outline."""
    cv2, corner = opencv(), corners.min(axis=0)
    width, height = corners.max(axis=0) - corner + 1
    mask = np.zeros((height, width), np.uint8)
    cv2.fillPoly(mask, (corners - corner)[None], 1)
    left, top = corner
    return float(cv2.mean(probabilities[top : top + height, left : left + width], mask)[0])


def _grown(pyclipper: ModuleType, corners: NDArray[np.int32], ratio: float) -> NDArray[np.float32] | None:
    """Return an outline moved outwards; None if nothing or several outlines of different lengths become of it."""
    x, y = corners.T.astype(np.float64)
    edges = np.roll(corners, -1, axis=0).astype(np.float64) - corners
    area = abs(float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum())) / 2  # exact, as of whole numbers
    length = float(np.sqrt((edges**2).sum(axis=1)).cumsum()[-1])
    offset = pyclipper.PyclipperOffset()
    offset.AddPath(corners, pyclipper.JT_ROUND, pyclipper.ET_CLOSEDPOLYGON)
    outlines = offset.Execute(area * ratio / length)
    if len({len(outline) for outline in outlines}) != 1:  # MMOCR takes the first of several that are equally long
        return None
    return np.array(outlines[0], np.float32)
