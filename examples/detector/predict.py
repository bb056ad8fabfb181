"""Draws what an exported detector finds in pictures: ONNX Runtime, OpenCV and numpy, without torch.

python predict.py MODEL.onnx PICTURE [PICTURE ...] [--output FOLDER] [--score-threshold 0.3]
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
    box: NDArray[np.float32]  # x1, y1, x2, y2 in pixels of the picture
    score: float
    name: str
    mask: NDArray[np.bool_] | None  # [H, W] of the picture


class Predictor:
    """A detector's file: what it needs to know of pictures and classes stands in its metadata."""

    def __init__(self, path: str | Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # not the warning that img_shape has a default value
        self.session = mmort.ort.session(path, sess_options=options)
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.classes = json.loads(metadata["classes"])
        self.preprocessing = Preprocessing.from_dict(json.loads(metadata["preprocessing"]))

    def __call__(self, picture: NDArray[np.uint8], score_threshold: float) -> list[Detection]:
        """Detect in a picture [H, W, 3], blue, green, red; by descending score."""
        image = self.preprocessing(picture)
        inputs = {"input": image.input[None], "img_shape": np.array([image.img_shape], np.int64)}
        dets, labels, *masks = (output[0] for output in self.session.run(None, inputs))
        used = (labels >= 0) & (dets[:, 4] >= score_threshold)
        top, left = image.offset
        boxes = (dets[used, :4] - np.array([left, top, left, top], np.float32)) / image.scale_factor
        pasted: Any = [None] * len(boxes)
        if masks:
            pasted = paste_masks(masks[0][used], boxes, *image.ori_shape)
        names = (self.classes[label] if self.classes else str(label) for label in labels[used])
        return list(map(Detection, boxes, dets[used, 4].tolist(), names, pasted))


def draw(picture: NDArray[np.uint8], detections: list[Detection]) -> NDArray[np.uint8]:
    """Return the picture with masks, boxes, names and scores, the best on top."""
    drawn = picture.copy()
    for detection, colour in zip(detections[::-1], _colours(len(detections)), strict=True):
        if detection.mask is not None:
            drawn[detection.mask] = (drawn[detection.mask] * 0.6 + np.array(colour) * 0.4).astype(np.uint8)
        x1, y1, x2, y2 = (round(float(edge)) for edge in detection.box)
        cv2.rectangle(drawn, (x1, y1), (x2, y2), colour)
        text = f"{detection.name} {detection.score:.2f}"
        cv2.putText(drawn, text, (x1, max(y1 - 2, 8)), cv2.FONT_HERSHEY_PLAIN, 0.8, colour)
    return drawn


def _colours(count: int) -> Iterator[tuple[int, int, int]]:
    for place in range(count):
        hue = np.uint8([[[place * 47 % 180, 160, 255]]])
        yield tuple(cv2.cvtColor(hue, cv2.COLOR_HSV2BGR)[0, 0].tolist())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("pictures", nargs="+")
    parser.add_argument("--output", default=".", type=Path, help="the folder for the drawn pictures (default: here)")
    parser.add_argument("--score-threshold", default=0.3, type=float)
    arguments = parser.parse_args()
    predictor = Predictor(arguments.model)
    for path in map(Path, arguments.pictures):
        picture = read_image(path)
        detections = predictor(picture, arguments.score_threshold)
        target = arguments.output / f"{path.stem}.detected.png"
        if not cv2.imwrite(str(target), draw(picture, detections)):
            raise OSError(f"{target} cannot be written")
        print(f"{path}: {', '.join(f'{one.name} {one.score:.2f}' for one in detections) or 'nothing'} -> {target}")


if __name__ == "__main__":
    main()
