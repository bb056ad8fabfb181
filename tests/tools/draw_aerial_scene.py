"""Draw the synthetic aerial scene of the tests: what each window detects, and what merging leaves.

    python -m tests.tools.draw_aerial_scene OUT.png

Above, the detections of each window in its own colour, and the windows' borders; objects in an overlap are found
twice, and have a line of each window around them.
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
    predictor = Predictor(
        aerial_scene.ShipDetector(), classes=("ship",), preprocessing=Preprocessing(), score_threshold=0
    )
    positions = WINDOWS.positions(*image.shape[:2])
    rows, columns = (sorted(set(starts)) for starts in zip(*positions, strict=True))
    # Neighbours draw lines of different widths, the thickest first, so that all stay visible.
    widths = [7 - 4 * (rows.index(y) % 2) - 2 * (columns.index(x) % 2) for y, x in positions]
    above, count = image.copy(), 0
    for index in np.argsort(widths, kind="stable")[::-1]:
        (y, x), width = positions[index], widths[index]
        colour = [round(255 * part) for part in colorsys.hsv_to_rgb(index / len(positions), 1, 1)]
        detections = predictor(image[y : y + WINDOWS.size, x : x + WINDOWS.size])
        count += len(detections)
        inset = width // 2  # the borders are side by side
        last = x + WINDOWS.size - 1 - inset, y + WINDOWS.size - 1 - inset
        cv2.rectangle(above, (x + inset, y + inset), last, colour, 1)
        corners = _rotated.corners(detections.rotated_boxes) + np.array([x, y])
        cv2.polylines(above, list(np.rint(corners).astype(np.int32)), True, colour, width, cv2.LINE_AA)
    merged = predict_windows(predictor, image, WINDOWS)
    cv2.imwrite(path, np.vstack([above, draw(image, merged)]))
    print(f"{len(positions)} windows, {count} detections; merged: {len(merged)}, of {len(boxes)} ships")


if __name__ == "__main__":
    main(*sys.argv[1:])
