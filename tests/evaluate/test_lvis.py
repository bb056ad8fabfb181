"""LVIS's figures, on files in which images have some classes annotated, others absent, and others unknown."""

import json
import sys
import types

import numpy as np
import pytest

from mmort.evaluate import CocoDataset, DatasetWarning, Evaluation, ImageResult, LvisDataset, analyze, dataset_of
from tests.evaluate.test_coco import HEIGHT, WIDTH, disc, random_box

NAMES = ["ant", "bee", "cow", "dog", "emu", "fox"]
FREQUENCY = "rcffcr"


@pytest.fixture(scope="module")
def annotations():
    """Objects of two or three classes in an image, one or two that are absent, and one that is not exhaustive."""
    rng = np.random.default_rng(4)
    categories = [
        {"id": 3 * index + 2, "name": name, "frequency": frequency}
        for index, (name, frequency) in enumerate(zip(NAMES, FREQUENCY, strict=True))
    ]
    images, objects = [], []
    for number in rng.permutation(np.arange(5, 200, 5)).tolist():
        ids = rng.permutation([category["id"] for category in categories]).tolist()
        present, absent = ids[: rng.integers(1, 4)], ids[4:]
        image = {"id": number, "file_name": f"{number}.png", "height": HEIGHT, "width": WIDTH}
        images.append(image | {"neg_category_ids": absent, "not_exhaustive_category_ids": present[:1]})
        for category in rng.choice(present, rng.integers(1, 7)).tolist():
            box = [float(np.float32(edge)) for edge in random_box(rng)]
            entry = {"id": len(objects) + 1, "image_id": number, "category_id": category, "bbox": box}
            objects.append(entry | {"segmentation": disc(box), "area": box[2] * box[3] * 0.785})
    return {"images": images, "annotations": objects, "categories": categories}


@pytest.fixture(scope="module")
def results(annotations):
    """Detections near objects and elsewhere, of all classes; more than LVIS counts in some images."""
    rng = np.random.default_rng(5)
    labels_of = {category["id"]: label for label, category in enumerate(annotations["categories"])}
    all_results = []
    for number, image in enumerate(annotations["images"]):
        objects = [entry for entry in annotations["annotations"] if entry["image_id"] == image["id"]]
        boxes, labels = [], []
        for _ in range(320 if number % 10 == 0 else 12):
            near = objects[rng.integers(len(objects))]
            if rng.random() < 0.6:
                box, label = np.array(near["bbox"]) + rng.normal(0, 1.5, 4), labels_of[near["category_id"]]
            else:
                box, label = np.array(random_box(rng)), int(rng.integers(6))
            boxes.append([*box[:2], *(box[:2] + box[2:].clip(2))])
            labels.append(label)
        scores = np.sort(rng.random(len(boxes)).astype(np.float32))[::-1]
        boxes = np.array(boxes, np.float32)
        masks = [disc([*box[:2], *(box[2:] - box[:2])]) for box in boxes.astype(float)]
        all_results.append(ImageResult(boxes, scores, np.array(labels, np.int64), masks))
    return all_results


@pytest.fixture
def file(annotations, tmp_path):
    path = tmp_path / "lvis.json"
    path.write_text(json.dumps(annotations))
    return path


@pytest.mark.filterwarnings("ignore:The 'warn' method is deprecated")
@pytest.mark.parametrize("metric", ["bbox", "segm"])
def test_figures_are_those_of_the_lvis_package(file, results, metric, monkeypatch):
    """It is not in the test extra, as it needs the OpenCV with windows: ``pip install --no-deps lvis``."""
    monkeypatch.setitem(sys.modules, "lvis.vis", types.SimpleNamespace(LVISVis=None))  # which needs matplotlib
    monkeypatch.setattr(np, "float", float, raising=False)  # as of numpy before 1.24
    lvis = pytest.importorskip("lvis")
    dataset = LvisDataset(file, "images")
    rows = json.loads(json.dumps(dataset.rows(results, masks=metric == "segm")))
    judge = lvis.LVISEval(lvis.LVIS(str(file)), rows, metric)
    judge.run()
    figures = dataset.score(results, [metric], {}).figures
    assert list(figures) == [f"{metric}_{name}" for name in judge.results if name.startswith("AP")]
    assert figures == pytest.approx(
        {f"{metric}_{name}": judge.results[name] for name in judge.results if name[1] == "P"}
    )
    assert 0.05 < figures[f"{metric}_APr"] < 0.95


def test_figures(file, results):
    """By hand: classes that an image does not mention count neither for nor against a detector."""
    dataset = LvisDataset(file, "images")
    assert dataset.classes == tuple(NAMES)
    figures = dataset.score(results, ["bbox"], {}).figures
    coco = CocoDataset(file, "images").score(results, ["bbox"], {}).figures
    assert figures["bbox_AP"] > coco["bbox_mAP"] + 0.01
    means = [figures[f"bbox_AP{group}"] for group in "rcf"]
    assert figures["bbox_AP"] == pytest.approx(np.mean(means))  # two classes each


def test_the_order_of_detections_does_not_matter(file, results):
    """The 300 that count have the highest scores."""
    turned = [
        ImageResult(result.boxes[::-1], result.scores[::-1], result.labels[::-1], result.masks[::-1])
        for result in results
    ]
    dataset = LvisDataset(file, "images")
    metrics = ["bbox", "segm"]
    assert dataset.score(turned, metrics, {}).figures == dataset.score(results, metrics, {}).figures


def test_classes_that_are_unknown_in_an_image(tmp_path):
    """A detection of such a class, and one too many of a class that is not exhaustive, are no errors."""
    image = {"id": 1, "file_name": "a.png", "height": 50, "width": 50}
    categories = [{"id": index, "name": name, "frequency": "r"} for index, name in enumerate("abc")]
    entry = {"id": 0, "image_id": 1, "category_id": 0, "bbox": [0, 0, 20, 20], "area": 400}
    boxes = np.array([[30, 30, 40, 40], [0, 0, 20, 20]], np.float32)

    def ap(label, absent, not_exhaustive):
        federated = {"neg_category_ids": absent, "not_exhaustive_category_ids": not_exhaustive}
        content = {"images": [image | federated], "annotations": [entry], "categories": categories}
        (tmp_path / "a.json").write_text(json.dumps(content))
        detected = ImageResult(boxes, np.array([0.9, 0.8], np.float32), np.array([label, 0]))
        return LvisDataset(tmp_path / "a.json", ".").score([detected], ["bbox"], {"classwise": True})

    assert ap(0, [], []).figures["bbox_AP"] == pytest.approx(0.5)
    assert ap(0, [], [0]).figures["bbox_AP"] == pytest.approx(1)
    result = ap(1, [], [])
    assert result.figures["bbox_APr"] == pytest.approx(1)
    assert result.figures["bbox_APf"] == -1
    assert result.classwise["bbox"] == {"a": {"AP": pytest.approx(1)}, "b": {"AP": -1}, "c": {"AP": -1}}
    assert "AP75" in result.tables[0]


def test_of_configs(file, annotations):
    """A file of LVIS has LVIS's metric; one that does not state what is annotated has COCO's, with a warning."""
    config = {"test_dataloader": {"dataset": {"type": "LVISV1Dataset", "ann_file": str(file)}}}
    dataset = dataset_of(config)
    assert isinstance(dataset, LvisDataset)
    Evaluation(dataset, ["bbox", "segm"], classwise=True)
    with pytest.raises(ValueError, match="unknown option iou_thr; options: classwise"):
        Evaluation(dataset, ["bbox"], iou_thr=0.5)
    with pytest.raises(ValueError, match="metric 'proposal' is not one of this data set; LvisDataset has bbox, segm"):
        Evaluation(dataset, ["proposal"])
    for kind, name in (("images", "neg_category_ids"), ("categories", "frequency")):
        changed = json.loads(json.dumps(annotations))
        changed[kind][1][name] = "x"
        file.write_text(json.dumps(changed))
        with pytest.warns(DatasetWarning, match="a LVISV1Dataset is measured by COCO's metrics"):
            assert type(dataset_of(config)) is CocoDataset
        with pytest.raises(ValueError, match=rf"{kind}\[1\]\.{name} in .* must be .*, as in LVIS"):
            LvisDataset(file, ".")


def test_errors_are_those_of_classes_by_which_an_image_is_judged(file, results):
    """So that AP at an IoU of 0.5 is LVIS's."""
    dataset = LvisDataset(file, "images")
    best = [ImageResult(result.boxes[:300], result.scores[:300], result.labels[:300]) for result in results]
    analysis = analyze(dataset, best, score_threshold=0)
    figures = dataset.score(best, ["bbox"], {}).figures
    mean = np.mean([curve.average_precision for curve in analysis.curves])
    assert mean == pytest.approx(figures["bbox_AP50"], abs=1e-12)
    as_coco = analyze(CocoDataset(file, "images"), best, score_threshold=0)
    assert mean > np.mean([curve.average_precision for curve in as_coco.curves]) + 0.01
