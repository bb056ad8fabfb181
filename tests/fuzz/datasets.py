"""Random annotations in the formats of COCO (also panoptic), VOC, DOTA and YOLO: refused before detection, or scored.

python -m tests.fuzz.datasets --seconds 60 [--seed N] [--count N]
"""

import math
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from mmort._files.inputs import require_regular
from mmort.detections.masks import ImageMasks
from mmort.detections.panoptic import SegmentIds
from mmort.evaluate import (
    CocoDataset,
    CocoPanopticDataset,
    Dataset,
    DotaDataset,
    Evaluation,
    SubmissionDataset,
    VocDataset,
    YoloDataset,
)
from mmort.images import write_image
from mmort.predict import Detections
from tests.fuzz import json_values
from tests.fuzz.children import Fuzzer, main

HEIGHT, WIDTH = 20, 30
RUN_LENGTHS = "P51`0", "000", "~~~~", "o" * 50, "0" * 30, "i00P1", "\u00e9", "A" * 12 + "0"
NUMBERS = (
    "1",
    "5",
    "0",
    "-3",
    "12.5",
    "1e3",
    "nan",
    "inf",
    "-inf",
    "1e30",
    "1e39",
    "9" * 400,
    "x",
    "",
    "0x1",
    "1_0",
    " 2 ",
)
YAML = (
    "val: .\nnames: {0: a, 1: b, 2: c}",
    "val: .\nnames: [a, b, 2020-01-01]",
    "val: .\nnames: !!set {a, b, c}",
    "val: .\nnames: [a, b, c]\nnc: .nan",
    "? [val]\n: .",
    "!!python/object/apply:os.system [x]",
    "a: &a [x, x]\nb: &b [*a, *a]\nval: [*b, *b]\nnames: [a, b, c]",
)
NAMES = "a", "a", "b", "c", "", "../a", "a b", "\u00e9", "\x1b[2J"


class DetectedError(Exception):
    """An error after detection has begun, which loses hours of work."""


def coco(rng: random.Random, folder: Path) -> Any:
    """Write a data set in COCO's format."""
    document: dict[str, Any] = {
        "images": [{"id": i, "file_name": f"{i}.png", "height": HEIGHT, "width": WIDTH} for i in range(1, 4)],
        "categories": [{"id": i, "name": name} for i, name in enumerate("abc", 1)],
        "annotations": [
            {
                "id": i,
                "image_id": rng.randrange(1, 4),
                "category_id": rng.randrange(1, 4),
                "bbox": [rng.randrange(9), rng.randrange(9), rng.randrange(15), rng.randrange(9)],
                "area": rng.choice((0, 50, 2000)),
                "iscrowd": int(rng.random() < 0.2),
                "segmentation": rng.choice(([[0, 0, 8, 0, 8, 4]], {"size": [HEIGHT, WIDTH], "counts": [100, 50, 450]})),
            }
            for i in range(1, rng.choice((2, 8)))
        ],
    }
    if rng.random() < 0.1:
        entry = rng.choice(document["annotations"])
        entry["segmentation"] = {"size": [HEIGHT, WIDTH], "counts": rng.choice(RUN_LENGTHS)}
    document = json_values.mutated(rng, document, rng.choice((0, 1, 1, 1, 2, 6)))
    write_text(folder / "a.json", json_values.text(rng, document))
    metrics = rng.choice((["bbox"], ["segm"], ["proposal"], ["bbox", "segm"], []))
    return (CocoDataset, (folder / "a.json", folder, rng.choice((None, ("a", "b", "c"), ("a",))))), metrics, {}


def panoptic(rng: random.Random, folder: Path) -> Any:
    """Write a data set in COCO's panoptic format."""
    document: Any = {
        "images": [{"id": i, "file_name": f"{i}.png"} for i in range(1, 3)],
        "categories": [{"id": i, "name": name, "isthing": i % 2} for i, name in enumerate("abc", 1)],
        "annotations": [
            {
                "image_id": i,
                "file_name": f"{i}.png",
                "segments_info": [{"id": 5, "category_id": 1, "iscrowd": 0}, {"id": 6, "category_id": 2}],
            }
            for i in range(1, 3)
        ],
    }
    document = json_values.mutated(rng, document, rng.choice((0, 1, 1, 2, 5)))
    write_text(folder / "a.json", json_values.text(rng, document))
    (folder / "a").mkdir()
    ids = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    ids[:9, :, 2], ids[9:, :9, 2] = 5, 6
    for name in ("1.png", "2.png"):
        write_image(folder / "a" / name, ids)
    return (CocoPanopticDataset, (folder / "a.json", folder)), ["PQ"], {}


def voc(rng: random.Random, folder: Path) -> Any:
    """Write a data set in VOC's format."""
    (folder / "Annotations").mkdir()
    for name in ("1", "2"):
        objects = ""
        for _ in range(rng.randrange(4)):
            corners = (rng.choice(NUMBERS) if rng.random() < 0.1 else str(rng.randrange(1, 20)) for _ in range(4))
            box = "".join(f"<{c}>{n}</{c}>" for c, n in zip(("xmin", "ymin", "xmax", "ymax"), corners, strict=True))
            difficult = rng.choice(("", "<difficult>1</difficult>", f"<difficult>{rng.choice(NUMBERS)}</difficult>"))
            objects += f"<object><name>{rng.choice('abc')}</name>{difficult}<bndbox>{box}</bndbox></object>"
        encoding = rng.choice(("", "", "<?xml version='1.0' encoding='utf-16'?>", "<?xml version='1.0' encoding='x'?>"))
        data = f"{encoding}<annotation>{objects}</annotation>".encode()
        (folder / "Annotations" / f"{name}.xml").write_bytes(damaged(rng, data))
    (folder / "set").write_bytes(
        damaged(rng, rng.choice((b"1\n2\n", b"1\n\n1\n", b"1\n../2\n", b"1\n\0\n", b"\xff\n")))
    )
    options = {"eval_mode": rng.choice(("11points", "area"))}
    return (
        (VocDataset, (folder / "set", folder, ("a", "b"))),
        rng.choice((["mAP"], ["recall"], ["mAP", "recall"])),
        options,
    )


def dota(rng: random.Random, folder: Path) -> Any:
    """Write a data set in DOTA's format."""
    for name in ("1", "2__1__100___200"):
        write_image(folder / f"{name}.png", np.zeros((HEIGHT, WIDTH, 3), np.uint8))
        lines = []
        for _ in range(rng.randrange(4)):
            numbers = [rng.choice(NUMBERS) if rng.random() < 0.05 else str(rng.randrange(30)) for _ in range(8)]
            lines.append(" ".join([*numbers[: rng.choice((8, 8, 8, 8, 7))], rng.choice(NAMES), "0"]))
        (folder / f"{name}.txt").write_bytes(damaged(rng, "\n".join(["imagesource:x", *lines]).encode()))
    classes = ("a", "b", "c") if rng.random() < 0.9 else ("a", rng.choice(NAMES), "c\0")
    return (DotaDataset, (folder, folder, classes)), ["mAP"], {}


def yolo(rng: random.Random, folder: Path) -> Any:
    """Write a data set in YOLO's format."""
    document: Any = {"path": ".", "val": rng.choice((".", "list.txt", ["."])), "names": ["a", "b", "c"], "nc": 3}
    document = json_values.mutated(rng, document, rng.choice((0, 0, 1, 2)))
    text = json_values.text(rng, document).replace('"/"', '"."')  # as searching the disk for images takes long
    write_text(folder / "data.yaml", text if rng.random() < 0.9 else rng.choice(YAML))
    (folder / "list.txt").write_bytes(
        damaged(rng, rng.choice((b"1.png\n2.png\n", b"1.png\r\n\n1.png", b"../1.png\n", b"/dev/zero\n", b"a" * 5000)))
    )
    for name in ("1", "2"):
        lines = []
        for _ in range(rng.randrange(4)):
            values = (rng.choice(NUMBERS) if rng.random() < 0.05 else f"{rng.random():.3f}" for _ in range(10))
            label = rng.choice(NUMBERS) if rng.random() < 0.1 else rng.randrange(3)
            lines.append(" ".join([str(label), *list(values)[: rng.choice((4, 4, 4, 4, 6, 10, 3, 5))]]))
        (folder / f"{name}.txt").write_bytes(damaged(rng, "\n".join(lines).encode()))
    classes = rng.choice((None, ("a", "b", "c"), ("a",)))
    metrics = rng.choice((["bbox"], ["segm"], ["proposal"], []))
    return (YoloDataset, (folder / "data.yaml", classes)), metrics, {}


def make(rng: random.Random, folder: Path) -> Any:
    """Write a data set; return how it is opened, and what is measured."""
    for name in ("1", "2", "3"):
        write_image(folder / f"{name}.png", np.zeros((HEIGHT, WIDTH, 3), np.uint8))
    return rng.choice((coco, coco, panoptic, voc, dota, yolo))(rng, folder), rng.getrandbits(32), folder


def run(case: Any) -> None:
    """Open a data set and check it; then nothing may fail."""
    ((kind, arguments), metrics, options), seed, folder = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset: Dataset = kind(*arguments)
        evaluation = Evaluation(dataset, metrics, masks=True, **options)
        if isinstance(dataset, SubmissionDataset):
            dataset.submission_files(folder / "out")
        if isinstance(dataset, CocoPanopticDataset):
            for image in dataset.images:  # as commands do
                require_regular("image", image.path)
        try:
            for image in dataset.images:
                evaluation.add(image, detections(np.random.default_rng(seed), dataset))
            figures = evaluation.metrics().figures
            if isinstance(dataset, SubmissionDataset):
                dataset.write_submission(evaluation.results, folder / "out")
        except Exception as error:
            raise DetectedError(f"{type(error).__name__}: {error}") from error
        assert not any(math.isnan(value) or math.isinf(value) for value in figures.values()), figures


def detections(rng: np.random.Generator, dataset: Dataset) -> Detections:
    """Return objects in an image."""
    count = len(dataset.classes) and int(rng.integers(3))
    labels = rng.integers(len(dataset.classes), size=count) if count else np.zeros(0, np.int64)
    names = tuple(dataset.classes[label] for label in labels)
    scores = np.sort(rng.random(count).astype(np.float32))[::-1]
    if isinstance(dataset, DotaDataset):
        return Detections.of_rotated(
            rng.random((count, 5)).astype(np.float32) * 20, scores, labels, names, (HEIGHT, WIDTH)
        )
    boxes = np.sort(rng.random((count, 2, 2)) * HEIGHT, axis=1).reshape(-1, 4).astype(np.float32)
    masks = ImageMasks.from_arrays(rng.random((count, HEIGHT, WIDTH)) < 0.3)
    segments = None
    if isinstance(dataset, CocoPanopticDataset):
        segments = SegmentIds(labels + 1000 * np.arange(1, count + 1), len(dataset.classes), len(dataset.classes))
    return Detections(boxes, scores, labels, names, (HEIGHT, WIDTH), masks, segments)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Return a file's content, sometimes damaged."""
    if rng.random() < 0.85:
        return data
    position = rng.randrange(len(data) + 1)
    return data[:position] + rng.choice((b"", b"<", b"\0", b"\xff", b"&a;")) + data[position + rng.randrange(3) :]


def write_text(path: Path, text: str) -> None:
    """Write text that may be no Unicode."""
    path.write_bytes(text.encode("utf-8", "surrogatepass"))


if __name__ == "__main__":
    sys.exit(main(Fuzzer("data sets", make, run, (ValueError, OSError), 50)))
