"""Random metadata of a detector's file: read exactly as it stands or refused, and what it makes of an image bounded.

python -m tests.fuzz.metadata --seconds 60 [--seed N] [--count N]
"""

import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from mmort.contract.metadata import Metadata, read_metadata
from mmort.contract.padding import Padding
from mmort.detections.panoptic import PanopticFormat
from mmort.limits import MAX_ENTRY_CHARACTERS
from mmort.predict import MaskFormat, Predictor, Preprocessing
from tests.fuzz import json_values
from tests.fuzz.children import Fuzzer, main

SIZES = (1, 2, 31, 32, 640, 4096, 5000)
SHAPES = ((1, 1), (20, 30), (30, 20), (1, 3000), (3000, 1))


def preprocessing(rng: random.Random) -> dict[str, Any]:
    """Return valid settings."""
    size = rng.choice((None, [rng.choice(SIZES), rng.choice(SIZES)]))
    padding = Padding(
        rng.choice((None, 0, 114)),
        rng.choice((None, (64, 32))),
        rng.random() < 0.3,
        rng.choice((1, 32)),
        rng.random() < 0.5,
    )
    settings = Preprocessing(
        size=size,
        keep_ratio=rng.random() < 0.7,
        size_divisor=rng.choice((1, 32, 4096)),
        pad_or=rng.choice((0, 0, 127)),
        padding=rng.choice((None, padding)),
    )
    return settings.to_dict()


def masks(rng: random.Random) -> dict[str, Any]:
    """Return a valid format."""
    panoptic = PanopticFormat(rng.choice(("queries", "instances")), 1, 3, min_stuff_area=4)
    return MaskFormat(
        rng.choice(("box", "image")),
        rng.choice((0, 0.5)),
        rng.choice((1, 4, 32, 4096)),
        rng.choice(("crop", "edges", "fit", "scale", "stretch")),
        rng.choice(("output", "masks")),
        rng.choice(("output", "masks")),
        rng.choice(("centres", "corners")),
        rng.choice((None, None, panoptic)),
        rng.random() < 0.3,
    ).to_dict()


def make(rng: random.Random, folder: Path) -> tuple[dict[str, str], Any]:
    """Return a file's metadata, and the shapes of an image and of a mask."""
    entries: dict[str, Any] = {"classes": ["a", "b", "c"], "preprocessing": preprocessing(rng), "masks": masks(rng)}
    entries = json_values.mutated(rng, entries, rng.choice((0, 1, 1, 2, 5)))
    if not isinstance(entries, dict):
        entries = {"preprocessing": entries}
    texts = {str(name): json_values.text(rng, entry) for name, entry in entries.items()}
    if rng.random() < 0.005:
        texts["classes"] = json.dumps(["x"] * 300_000 + [json_values.value(rng)])
    if rng.random() < 0.005:
        texts["classes"] = json.dumps("x" * MAX_ENTRY_CHARACTERS)
    if rng.random() < 0.5:
        texts["mmort_version"] = "0.1"
    return texts, (rng.choice(SHAPES), rng.choice(((0, 0), (1, 1), (1, 1), (28, 28), (160, 160), (0, 5))))


def run(case: tuple[dict[str, str], Any]) -> None:
    """Read metadata, and detect with it."""
    texts, (image_shape, mask_shape) = case
    metadata = read_metadata("model", texts)
    check_exact(texts, metadata)
    if metadata.preprocessing is None:
        return
    network = Network(mask_shape, metadata.mask_format)
    predict = Predictor(network, classes=metadata.classes, preprocessing=metadata.preprocessing, score_threshold=0)  # type: ignore[arg-type]
    image = np.arange(3 * image_shape[0] * image_shape[1], dtype=np.uint8).reshape(*image_shape, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        detections = predict(image)
        json.dumps(detections.to_dict(), allow_nan=False)
        if detections.has_masks:
            assert detections.masks.shape[1:] == image_shape


def check_exact(texts: dict[str, str], metadata: Metadata) -> None:
    """Assert that nothing that the metadata states was replaced by a default."""
    for name, parsed in (("preprocessing", metadata.preprocessing), ("masks", metadata.mask_format)):
        stated = json.loads(texts.get(name, "null"))
        if stated is not None:
            compare(stated, parsed.to_dict() if parsed is not None else None)  # type: ignore[attr-defined]
    assert list(metadata.classes or ()) == (json.loads(texts.get("classes", "null")) or [])


def compare(stated: Any, parsed: Any) -> None:
    """Assert that what is stated is what was found, apart from names that nobody knows."""
    if isinstance(stated, dict):
        assert isinstance(parsed, dict)
        for name in stated.keys() & parsed.keys():
            compare(stated[name], parsed[name])
    else:
        assert (stated, isinstance(stated, bool)) == (parsed, isinstance(parsed, bool)), (stated, parsed)


class Network:
    """A detector that finds two objects."""

    input_shape = None, None, None

    def __init__(self, mask_shape: tuple[int, int], mask_format: MaskFormat | None) -> None:
        self.mask_shape, self.mask_format = mask_shape, mask_format

    def __call__(self, input: Any, img_shape: Any) -> list[Any]:
        dets = np.array([[[0, 0, 9, 9, 0.9], [3, 3, 30, 20, 0.5]]], np.float32)
        values = np.linspace(-3, 3, 2 * int(np.prod(self.mask_shape)), dtype=np.float32).reshape(1, 2, *self.mask_shape)
        return [dets, np.array([[0, 2]]), values, values]


if __name__ == "__main__":
    cv2.setNumThreads(1)
    sys.exit(main(Fuzzer("metadata", make, run, (ValueError,), 100)))
