"""Detectors of handwritten digits, in the forms that they have on their way from MMDetection to ONNX Runtime.

``mmort demo`` goes that way (`mmort.demo.walkthrough`).  README.md says where the files come from.
"""

from pathlib import Path

_FOLDER = Path(__file__).with_name("digits")
_WORDS = Path(__file__).with_name("words")

CONFIG = _FOLDER / "config.py"
"""The config of a small Mask R-CNN, as MMDetection wrote it."""
CHECKPOINT = _FOLDER / "checkpoint.pth"
"""The weights that MMDetection trained with it."""
MODEL = _FOLDER / "mask_rcnn.onnx"
"""The file that ``mmort export`` made of both."""
IMAGES = tuple(sorted((_FOLDER / "images").glob("*.png")))
"""Images of digits that it was not trained on."""
ANNOTATIONS = _FOLDER / "annotations.json"
"""Their digits, in COCO's format."""

WORDS_CONFIG = _WORDS / "config.py"
"""The config of a small Grounding DINO, which finds the digits that words name."""
WORDS_CHECKPOINT = _WORDS / "checkpoint.pth"
"""The weights that MMDetection trained with it."""
LANGUAGE_MODEL = _WORDS / "language_model"
"""The sizes of its BERT, and its vocabulary."""
