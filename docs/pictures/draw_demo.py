"""Draw demo.jpg, the first picture of the README: `python docs/pictures/draw_demo.py`.

Two of the demo's images with their detections, side by side, twice as large as a repository's page shows them.
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

import mmort
from mmort.demo import IMAGES, MODEL

WIDTH, GAP = 1660, 20
FILE = Path(__file__).with_name("demo.jpg")
PARAMETERS = (cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444)


def main() -> None:
    """Write the picture."""
    predict = mmort.Predictor(MODEL, score_threshold=0.5)
    images = [cv2.imread(str(path)) for path in IMAGES[:2]]
    height = (WIDTH - GAP) / sum(image.shape[1] / image.shape[0] for image in images)
    panels = [predict(image).plot(image, scale=height / image.shape[0]) for image in images]
    lowest = min(len(panel) for panel in panels)
    gap = np.full((lowest, GAP, 3), 255, np.uint8)
    left, right = (panel[:lowest] for panel in panels)
    cv2.imwrite(str(FILE), np.concatenate([left, gap, right], axis=1), PARAMETERS)


if __name__ == "__main__":
    main()
