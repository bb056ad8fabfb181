"""A synthetic aerial picture of ships on water, and a detector of its ships without weights."""

import cv2
import numpy as np

from mmort.detections.boxes import corners

WATER, WAVES = (120, 80, 40), 12
HULL = (205, 215, 220)
MIN_AREA = 60  # pixels


def scene(height=600, width=900, count=40, seed=0):
    """Return a picture and its ships: boxes (N, 5) with the width as the longer side."""
    rng = np.random.default_rng(seed)
    waves = rng.normal(0, WAVES, (height // 4, width // 4, 1)).astype(np.float32)
    image = np.array(WATER, np.float32) + cv2.resize(waves, (width, height))[:, :, None]
    boxes = np.zeros((0, 5), np.float32)
    while len(boxes) < count:
        length = rng.uniform(24, 90)
        box = [*rng.uniform(50, (width - 50, height - 50)), length, length * 0.3, rng.uniform(-np.pi / 2, np.pi / 2)]
        gaps = np.hypot(*(boxes[:, :2] - box[:2]).T) - (boxes[:, 2] + length) / 2
        if gaps.min(initial=9) > 4:
            boxes = np.vstack([boxes, np.array(box, np.float32)])
    for polygon in corners(boxes):
        cv2.fillPoly(image, [np.rint(polygon * 16).astype(np.int32)], HULL, cv2.LINE_AA, 4)
    return np.clip(image, 0, 255).astype(np.uint8), boxes


class ShipDetector:
    """A network of rotated boxes: around bright parts of its input that it does not cut; large parts score higher."""

    input_shape = None, None, None
    mask_format = None

    def __call__(self, input, img_shape):
        dets, labels = np.zeros((len(input), 60, 6), np.float32), np.full((len(input), 60), -1)
        for image, row, label in zip(input, dets, labels, strict=True):
            bright = (image[0] > 160).astype(np.uint8)
            contours, _ = cv2.findContours(bright, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            last = np.array(bright.shape[::-1]) - 1
            whole = [contour for contour in contours if (contour > 0).all() and (contour < last).all()]
            rectangles = [cv2.minAreaRect(contour) for contour in whole if cv2.contourArea(contour) > MIN_AREA]
            for index, ((x, y), (width, height), degrees) in enumerate(rectangles):
                angle = np.radians(degrees if width > height else degrees + 90)
                width, height = max(width, height) + 1, min(width, height) + 1
                score = min(1, width * height / 3000)
                row[index], label[index] = (x + 0.5, y + 0.5, width, height, angle, score), 0
        return dets, labels
