"""Draw tasks.jpg, the picture of the guide of originals: `python -m docs.pictures.draw_tasks`.

Small networks of MMSegmentation and MMPose learn for some minutes what the tests draw; the picture has images that they
were not trained on.  Both packages must be installed as the guide says.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

import mmort
from mmort.original import export
from mmort.predict import PosePredictor
from tests.originals_mmpose import original as mmpose
from tests.originals_mmpose import strokes
from tests.originals_mmsegmentation import digits
from tests.originals_mmsegmentation import original as mmsegmentation

HEIGHT, GAP = 420, 20
FILE = Path(__file__).with_name("tasks.jpg")
PARAMETERS = (cv2.IMWRITE_JPEG_QUALITY, 88)


def segmentation(folder: Path) -> np.ndarray:
    """Return an image of digits with its map of classes."""
    digits.write(folder / "learnt", 40, seed=1)
    digits.write(folder / "new", 1, seed=3)
    config = digits.config(folder, "PSPNet", root=folder / "learnt")
    mmsegmentation.save(*mmsegmentation.train(config), folder / "x.pth")
    export(config, folder / "x.pth", folder / "x.onnx", progress=print)
    image = cv2.imread(str(folder / "new/images/000.png"))
    return mmort.Predictor(folder / "x.onnx")(image).plot(image, scale=HEIGHT / len(image))


def poses(folder: Path) -> np.ndarray:
    """Return an image of figures with their skeletons, in the boxes of its annotations."""
    strokes.write(folder / "learnt", 80, seed=1)
    strokes.write(folder / "new", 1, seed=2)
    config = strokes.config(folder, "heatmaps", folder / "learnt")
    model, settings = mmpose.build(config)
    mmpose.train(model, settings, 800)
    mmpose.save(model, folder / "x.pth")
    export(config, folder / "x.pth", folder / "x.onnx", progress=print)
    image = cv2.imread(str(folder / "new/images/000.png"))
    annotations = json.loads((folder / "new/annotations.json").read_text())["annotations"]
    boxes = [[x, y, x + width, y + height] for x, y, width, height in (entry["bbox"] for entry in annotations)]
    return PosePredictor(folder / "x.onnx").poses(image, boxes).plot(image, scale=HEIGHT / len(image))


def main() -> None:
    """Write the picture."""
    tasks: list[Callable[[Path], np.ndarray]] = [segmentation, poses]
    panels = []
    for task in tasks:
        with tempfile.TemporaryDirectory() as folder:
            panel = task(Path(folder))
            panels.append(cv2.resize(panel, (round(HEIGHT / len(panel) * panel.shape[1]), HEIGHT)))
    gap = np.full((HEIGHT, GAP, 3), 255, np.uint8)
    row = [part for panel in panels for part in (gap, panel)][1:]
    cv2.imwrite(str(FILE), np.concatenate(row, axis=1), PARAMETERS)


if __name__ == "__main__":
    main()
