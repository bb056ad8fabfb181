"""Draw the synthetic aerial scene of the tests: what each window detects, and what merging leaves.

    python -m tests.tools.draw_aerial_scene OUT.png

Above, the detections of each window in its own colour, and the windows' borders; objects in an overlap are found twice.
Below, the detections of `predict_windows`.  Prints how many there are.
"""

from __future__ import annotations

import colorsys
import sys

import cv2
import numpy as np

from mmort import Predictor, _rotated
from mmort.predict import Preprocessing, Windows, draw, predict_windows
from tests.predict import aerial_scene

WINDOWS = Windows(300, 100)


def main(path: str) -> None:
    """Write the picture."""
    image, boxes = aerial_scene.scene()
    predictor = Predictor(aerial_scene.ShipDetector(), classes=("ship",), preprocessing=Preprocessing())
    positions = WINDOWS.positions(*image.shape[:2])
    above, count = image.copy(), 0
    for index, (y, x) in enumerate(positions):
        colour = [round(255 * part) for part in colorsys.hsv_to_rgb(index / len(positions), 1, 1)]
        found = predictor(image[y : y + WINDOWS.size, x : x + WINDOWS.size])
        count += len(found)
        # Windows' own shades of a border keep those that overlap apart.
        cv2.rectangle(above, (x + index % 4, y + index % 4), (x + WINDOWS.size - 1, y + WINDOWS.size - 1), colour, 1)
        corners = _rotated.corners(found.rotated_boxes) + np.array([x, y])
        cv2.polylines(above, list(np.rint(corners).astype(np.int32)), True, colour, 1 + index % 2, cv2.LINE_AA)
    merged = predict_windows(predictor, image, WINDOWS)
    cv2.imwrite(path, np.vstack([above, draw(image, merged)]))
    print(f"{len(positions)} windows, {count} detections; merged: {len(merged)}, of {len(boxes)} ships")


if __name__ == "__main__":
    main(*sys.argv[1:])
