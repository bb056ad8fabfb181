"""Data sets in YOLO's format have the figures of pycocotools for the same objects; what is malformed is named."""

import contextlib
import io

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmort.evaluate import DatasetWarning, Evaluation, YoloDataset, dataset_of
from mmort.predict import Detections, write_image

NAMES = ["cat", "dog", "emu"]
SIZES = [(48, 64), (100, 70), (33, 91), (64, 64)]


def write(root, yaml, labels):
    """Write a data set of images with these labels, text by the image's number."""
    (root / "images" / "val").mkdir(parents=True)
    (root / "labels" / "val").mkdir(parents=True)
    for number, (height, width) in enumerate(SIZES):
        write_image(root / "images" / "val" / f"{number}.png", np.zeros((height, width, 3), np.uint8))
    for number, text in labels.items():
        (root / "labels" / "val" / f"{number}.txt").write_text(text)
    (root / "data.yaml").write_text(yaml)
    return root / "data.yaml"


def objects(rng):
    """Return random objects of each image but the last: label, and center, width and height relative to it."""
    for number in range(len(SIZES) - 1):
        for _ in range(rng.integers(2, 6)):
            size = rng.uniform(0.1, 0.6, 2)
            yield number, int(rng.integers(3)), [*rng.uniform(size / 2, 1 - size / 2), *size]


YAML = "path: .\ntrain: images/train\nval: images/val\nnames: [cat, dog, emu]\nnc: 3\n"


@pytest.mark.parametrize(
    "yaml",
    [
        YAML,
        "val: images/val\nnames:\n  0: cat\n  1: dog\n  2: emu\n",
        "val: [images/val]\nnames: [cat, dog, emu]\n",
        "val: val.txt\nnames: [cat, dog, emu]\n",
    ],
)
def test_figures_are_those_of_pycocotools(tmp_path, yaml):
    rng = np.random.default_rng(3)
    labels, rows = {}, []
    for number, label, box in objects(rng):
        height, width = SIZES[number]
        labels[number] = labels.get(number, "") + f"{label} {' '.join(map(repr, map(float, box)))}\n"
        x, y, w, h = np.array(box) * (width, height, width, height)
        rows.append(
            {"id": len(rows) + 1, "image_id": number, "category_id": label, "iscrowd": 0, "area": w * h}
            | {"bbox": [x - w / 2, y - h / 2, w, h]}
        )
    path = write(tmp_path, yaml, labels)
    (tmp_path / "val.txt").write_text("".join(f"./images/val/{number}.png\n" for number in range(len(SIZES))))
    order = ["emu", "cat", "dog"]  # of the detector
    dataset = dataset_of(annotation_file=path, classes=order)
    assert [image.path.resolve().name for image in dataset.images] == ["0.png", "1.png", "2.png", "3.png"]
    evaluation = Evaluation(dataset, ["bbox"])
    actual = []
    for number, (image, (height, width)) in enumerate(zip(dataset.images, SIZES, strict=True)):
        true = [row for row in rows if row["image_id"] == number] or rows[:1]
        boxes = np.array([row["bbox"] for row in true for _ in range(3)])
        boxes = (boxes + rng.normal(0, 2, boxes.shape)).clip(1).astype(np.float32)
        boxes[:, 2:] += boxes[:, :2]
        names = [NAMES[row["category_id"]] if rng.random() < 0.8 else "dog" for row in true for _ in range(3)]
        scores = np.sort(rng.uniform(0, 1, len(boxes)).astype(np.float32))[::-1]
        indices = np.array([order.index(name) for name in names])
        evaluation.add(image, Detections(boxes, scores, indices, tuple(names), (height, width)))
        actual += [
            {"image_id": number, "category_id": NAMES.index(name), "score": float(score)}
            | {"bbox": [*map(float, box[:2]), *(box[2:].astype(float) - box[:2].astype(float)).tolist()]}
            for name, score, box in zip(names, scores, boxes, strict=True)
        ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth = COCO()
        images = [{"id": number, "height": h, "width": w} for number, (h, w) in enumerate(SIZES)]
        categories = [{"id": label, "name": name} for label, name in enumerate(NAMES)]
        truth.dataset = {"images": images, "annotations": rows, "categories": categories}
        truth.createIndex()
        judge = COCOeval(truth, truth.loadRes(actual), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    figures = evaluation.metrics().figures
    assert 0.1 < judge.stats[0] < 0.9
    expected = dict(zip(("mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l"), judge.stats, strict=False))
    assert figures == pytest.approx({f"bbox_{name}": value for name, value in expected.items()}, abs=1e-9)


def test_polygons(tmp_path):
    triangle = "1 0.25 0.25 0.75 0.25 0.5 0.5\n"
    dataset = YoloDataset(write(tmp_path, YAML, {0: triangle + triangle, 1: " \n"}))
    assert dataset.truth.boxes.tolist() == [[16, 12, 32, 12]]  # a repeated line counts once, as in ultralytics
    assert dataset.truth.segmentations == ([[16, 12, 48, 12, 32, 24]],)
    dataset.check(["segm"], {})


def test_wrong_lines_can_be_left_out(tmp_path):
    good = "1 0.5 0.5 0.25 0.25\n"
    path = write(tmp_path, YAML, {0: good + "2 0.5 0.5 1.2 0.25\n", 1: "3 0.5 0.5 0.1 0.1\n" + good})
    message = r"0\.txt, line 2 must be a label below 3 and .*, from 0 to 1, got '2 0\.5 0\.5 1\.2 0\.25'"
    with pytest.raises(ValueError, match=f"^evaluate: .*{message}; --skip-wrong-labels leaves such lines out$"):
        dataset_of(annotation_file=path)
    with pytest.warns(DatasetWarning, match=rf"data\.yaml: 2 lines of labels left out, the first: .*{message}$"):
        dataset = dataset_of(annotation_file=path, skip_wrong_labels=True)
    assert dataset.truth.images.tolist() == [1, 2]
    with pytest.raises(ValueError, match=r"skip_wrong_labels is for data\.yaml"):
        dataset_of(annotation_file=tmp_path / "a.json", image_dir=tmp_path, skip_wrong_labels=True)


def test_the_root_can_be_replaced(tmp_path):
    path = write(tmp_path / "data", YAML.replace("path: .", "path: ../elsewhere"), {})
    with pytest.raises(
        FileNotFoundError, match=r"val in .*data.yaml must be a folder or a text file, but .* not exist"
    ):
        YoloDataset(path)
    assert len(YoloDataset(path, root=tmp_path / "data")) == len(SIZES)


@pytest.mark.parametrize(
    ("yaml", "label", "message"),
    [
        ("[1]", "", "data.yaml must be a mapping, got list"),
        ("val: images/val", "", r"names in .*data.yaml must be a name for each of the labels 0, 1, \.\.\."),
        ("val: images/val\nnames: {0: a, 2: b}", "", "names in .* must be a name for each"),
        ("val: images/val\nnames: [a, [b]]", "", "names in .* must be a name for each"),
        ("val: images/val\nnames: [a]\nnc: 2", "", "nc in .* must be the number of names, 1, got 2"),
        ("val:\nnames: [a]", "", r"val in .* must be a folder, a text file, or a list of these, got \[None\]"),
        ("path: 3\nval: images/val\nnames: [a]", "", "path in .* must be a path, got 3"),
        ("val: !!python/object:os.system images\nnames: [a]", "", r"data\.yaml: could not determine a constructor"),
        (f"val: images/val\nnames: [{'a, ' * 100_000}]", "", r"data\.yaml: this takes more steps or memory"),
        (f"val: {'a' * 5000}\nnames: [a]", "", r"val in .* must be a folder, .* got \['a{58}$"),
        (YAML, "3 0.5 0.5 0.1 0.1", r"0\.txt, line 1 must be a label below 3 and .*, got '3 0.5 0.5 0.1 0.1'"),
        (YAML, "\n0.5 0.5 0.5 0.1 0.1", r"0\.txt, line 2 must be"),
        (YAML, "nan 0.5 0.5 0.1 0.1", r"0\.txt, line 1 must be"),
        (YAML, "0 0.5 0.5 0.1", r"0\.txt, line 1 must be"),
        (YAML, "0 0.5 0.5 0.1 nan", r"0\.txt, line 1 must be"),
        (YAML, "0 32 24 10 10", r"0\.txt, line 1 must be"),
        (YAML, "0 0.5 0.5 -0.005 0.1", r"0\.txt, line 1 must be"),
        (YAML, "0 0.5 0.5 0.1 0.1 0.9", r"0\.txt, line 1 must be"),
        (YAML, "cat 0.5 0.5 0.1 0.1", r"0\.txt, line 1 must be"),
    ],
)
def test_what_is_malformed_is_named(tmp_path, yaml, label, message):
    with pytest.raises(ValueError, match=message):
        YoloDataset(write(tmp_path, yaml, {0: label}))


@pytest.mark.parametrize("target", ["0.txt", "missing.txt"])
def test_links_that_lead_to_no_labels(tmp_path, target):
    path = write(tmp_path, YAML, {})
    (tmp_path / "labels" / "val" / "0.txt").symlink_to(target)
    with pytest.raises(OSError, match=r"0\.txt"):
        YoloDataset(path)


def test_refusals_of_arguments(tmp_path):
    path = write(tmp_path, YAML, {})
    with pytest.raises(
        ValueError, match="has no category owl; classes: cat, owl; categories of the file: cat, dog, emu"
    ):
        dataset_of(annotation_file=path, classes=["cat", "owl"])
    with pytest.raises(ValueError, match=r"data\.yaml has the directory of the images"):
        dataset_of(annotation_file=path, image_dir=tmp_path)


def test_another_split(tmp_path):
    data = write(tmp_path, f"{YAML}test: images/test\n", {0: "1 0.5 0.5 0.5 0.5"})
    (tmp_path / "images" / "test").mkdir()
    write_image(tmp_path / "images" / "test" / "a.png", np.zeros((20, 30, 3), np.uint8))
    assert [image.path.name for image in dataset_of(annotation_file=data, split="test").images] == ["a.png"]
    with pytest.raises(FileNotFoundError, match=r"train in .* must be a folder or a text file"):
        dataset_of(annotation_file=data, split="train")
    with pytest.raises(ValueError, match="split must be 'train', 'val' or 'test', got 'all'"):
        YoloDataset(data, split="all")
    with pytest.raises(ValueError, match=r"split is for data\.yaml of a data set for YOLOs, got 'test'"):
        dataset_of(annotation_file=tmp_path / "a.json", image_dir=tmp_path, split="test")


def test_an_entry_that_the_file_lacks(tmp_path):
    with pytest.raises(ValueError, match=r"must have the entry test, .*; it has path, train, val, names, nc$"):
        YoloDataset(write(tmp_path, YAML, {}), split="test")


def test_images_without_labels_measure_nothing(tmp_path):
    """Their folder may be elsewhere, so the message says where it was looked for; without metrics they will do."""
    dataset = YoloDataset(write(tmp_path, YAML, {}))
    dataset.check([], {})
    with pytest.raises(
        ValueError, match=r"no image of val in .*data\.yaml has labels, .*0\.png are looked for in .*labels/val/0\.txt$"
    ):
        dataset.check(["bbox"], {})


def test_boxes_are_no_masks(tmp_path):
    dataset = YoloDataset(write(tmp_path / "boxes", YAML, {0: "1 0.5 0.5 0.5 0.5"}))
    dataset.check(["bbox"], {})
    with pytest.raises(ValueError, match=r"segm needs polygons in the labels of val in .*, which has boxes only$"):
        dataset.check(["bbox", "segm"], {})
    some = {0: "1 0.5 0.5 0.5 0.5\n2 0.1 0.1 0.5 0.1 0.5 0.5"}
    YoloDataset(write(tmp_path / "polygons", YAML, some)).check(["bbox", "segm"], {})


def test_images_are_not_decoded_to_know_their_sizes(tmp_path, monkeypatch):
    data = write(tmp_path, YAML, {0: "1 0.5 0.5 0.5 0.5"})
    monkeypatch.setattr("mmort.images.decode_image", None)
    assert len(YoloDataset(data).images) == len(SIZES)
