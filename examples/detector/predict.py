"""Run an exported detector on images and draw the detections, with ONNX Runtime, OpenCV and numpy, without torch.

python predict.py MODEL.onnx IMAGE [IMAGE ...] [--output DIRECTORY] [--score-threshold 0.3]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray

import mmort.ort
from mmort.predict import Preprocessing, paste_masks, read_image


@dataclass(frozen=True)
class Detection:
    box: NDArray[np.float32]  # x1, y1, x2, y2 in pixels of the image
    score: float
    name: str
    mask: NDArray[np.bool_] | None  # (H, W), of the whole image


class Predictor:
    """An exported detector; its preprocessing and its classes are in the file's metadata."""

    def __init__(self, path: str | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # no warning that img_shape has a default value
        self.session = mmort.ort.session(path, sess_options=options)
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.classes = json.loads(metadata["classes"])
        self.preprocessing = Preprocessing.from_dict(json.loads(metadata["preprocessing"]))

    def __call__(self, image: NDArray[np.uint8], score_threshold: float) -> list[Detection]:
        """Return the detections in an image (H, W, 3), blue, green, red, by descending score."""
        prepared = self.preprocessing(image)
        inputs = {"input": prepared.input[None], "img_shape": np.array([prepared.img_shape], np.int64)}
        dets, labels, *masks = (output[0] for output in self.session.run(None, inputs))
        used = (labels >= 0) & (dets[:, 4] >= score_threshold)
        top, left = prepared.offset
        boxes = (dets[used, :4] - np.array([left, top, left, top], np.float32)) / prepared.scale_factor
        pasted: Any = [None] * len(boxes)
        if masks:
            pasted = paste_masks(masks[0][used], boxes, *prepared.ori_shape)
        names = (self.classes[label] if self.classes else str(label) for label in labels[used])
        return list(map(Detection, boxes, dets[used, 4].tolist(), names, pasted))


def draw(image: NDArray[np.uint8], detections: list[Detection]) -> NDArray[np.uint8]:
    """Return the image with masks, boxes, names and scores, the highest scores on top."""
    drawn = image.copy()
    for detection, colour in zip(detections[::-1], _colours(len(detections)), strict=True):
        if detection.mask is not None:
            drawn[detection.mask] = (drawn[detection.mask] * 0.6 + np.array(colour) * 0.4).astype(np.uint8)
        x1, y1, x2, y2 = (round(float(edge)) for edge in detection.box)
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour)
        text = f"{detection.name} {detection.score:.2f}"
        cv2.putText(drawn, text, (x1, max(y1 - 2, 8)), cv2.FONT_HERSHEY_PLAIN, 0.8, colour)
    return drawn


def _colours(count: int) -> Iterator[tuple[int, int, int]]:
    for index in range(count):
        hue = np.uint8([[[index * 47 % 180, 160, 255]]])
        yield tuple(cv2.cvtColor(hue, cv2.COLOR_HSV2BGR)[0, 0].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("images", nargs="+")
    parser.add_argument("--output", default=".", type=Path, help="directory for the drawn images (default: this one)")
    parser.add_argument("--score-threshold", default=0.3, type=float)
    arguments = parser.parse_args()
    predictor = Predictor(arguments.model)
    for path in map(Path, arguments.images):
        image = read_image(path)
        detections = predictor(image, arguments.score_threshold)
        target = arguments.output / f"{path.stem}.detected.png"
        if not cv2.imwrite(str(target), draw(image, detections)):
            raise OSError(f"{target} cannot be written")
        found = ", ".join(f"{detection.name} {detection.score:.2f}" for detection in detections)
        print(f"{path}: {found or 'nothing'} -> {target}")


if __name__ == "__main__":
    main()
