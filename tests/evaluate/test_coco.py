"""COCO's figures equal pycocotools' on data that is hard to evaluate; labels become categories as in MMDetection."""

import contextlib
import io
import json
import pathlib
import sys
import warnings

import numpy as np
import pytest
from pycocotools import mask as coco_mask
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval

from mmort.configs import class_names
from mmort.evaluate import Coco90Dataset, CocoDataset, ConcatenatedDataset, Evaluation, ImageResult, collect

NAMES = {3: "cat", 7: "dog", 8: "emu", 90: "fox", 91: "gnu"}  # no object is a gnu
HEIGHT, WIDTH = 96, 128


def disc(box):
    """Return the RLE of an ellipse in a box x, y, width, height."""
    x, y, width, height = box
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    inside = ((columns - x) / width - 0.5) ** 2 + ((rows - y) / height - 0.5) ** 2 <= 0.25
    lengths = coco_mask.encode(np.asfortranarray(inside, np.uint8))
    return {"size": [HEIGHT, WIDTH], "counts": lengths["counts"].decode()}


def random_box(rng):
    width, height = np.exp(rng.uniform(2, 4.5, 2))
    return [rng.uniform(0, WIDTH - width), rng.uniform(0, HEIGHT - height), width, height]


@pytest.fixture(scope="module")
def annotations():
    """Objects with crowds, images without objects, ids with holes, in no order."""
    rng = np.random.default_rng(0)
    images = [
        {"id": int(number), "file_name": f"{number}.png", "width": WIDTH, "height": HEIGHT}
        for number in rng.permutation(np.arange(40, 400, 15))
    ]
    objects = []
    for image in images:
        for _ in range(rng.integers(0, 7)):
            box = [float(np.float32(edge)) for edge in random_box(rng)]
            objects.append(
                {
                    "id": 1000 + 3 * len(objects),
                    "image_id": image["id"],
                    "bbox": box,
                    "segmentation": disc(box),
                    "area": float(coco_mask.area(disc(box))),
                    "category_id": int(rng.choice([3, 7, 8, 90])),
                    "iscrowd": int(rng.random() < 0.15),
                }
            )
    categories = [{"id": number, "name": name} for number, name in NAMES.items()]
    return {"images": images, "annotations": objects, "categories": categories}


@pytest.fixture(scope="module")
def dataset(annotations, tmp_path_factory):
    path = tmp_path_factory.mktemp("coco") / "instances.json"
    path.write_text(json.dumps(annotations))
    return CocoDataset(path, "images")


@pytest.fixture(scope="module")
def results(annotations):
    """Detections near objects, elsewhere, and none; many equal scores; up to 120 in an image."""
    rng = np.random.default_rng(1)
    result = []
    for number, image in enumerate(annotations["images"]):
        boxes, labels = [], []
        objects = [entry for entry in annotations["annotations"] if entry["image_id"] == image["id"]]
        for _ in range([0, 5, 30, 120][number % 4]):
            if objects and rng.random() < 0.6:
                near = objects[rng.integers(len(objects))]
                box, label = np.array(near["bbox"]) + rng.normal(0, 1.5, 4), sorted(NAMES).index(near["category_id"])
            else:
                box, label = random_box(rng), int(rng.integers(5))
            boxes.append([box[0], box[1], box[0] + max(box[2], 2), box[1] + max(box[3], 2)])
            labels.append(label)
        scores = np.sort(np.round(rng.random(len(boxes)), 2).astype(np.float32))[::-1]
        boxes = np.array(boxes, np.float32).reshape(-1, 4)
        masks = [disc([*box[:2], *(box[2:] - box[:2])]) for box in boxes.astype(float)]
        result.append(ImageResult(boxes, scores, np.array(labels, np.int64), masks))
    return result


def reference(annotations, dataset, results, metric, numbers=(100, 300, 1000), thresholds=None):
    """Return pycocotools' evaluator after its summary, as MMDetection sets it up, and what it prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        truth = COCO()
        truth.dataset = json.loads(json.dumps(annotations))
        truth.createIndex()
        rows = dataset.rows(results, masks=metric == "segm")
        evaluator = COCOeval(truth, truth.loadRes(json.loads(json.dumps(rows))), metric.replace("proposal", "bbox"))
        evaluator.params.imgIds = truth.getImgIds()
        evaluator.params.catIds = dataset.category_ids
        evaluator.params.maxDets = list(numbers)
        evaluator.params.useCats = int(metric != "proposal")
        if thresholds:
            evaluator.params.iouThrs = np.array(thresholds)
        evaluator.evaluate()
        evaluator.accumulate()
        evaluator.summarize()
    return evaluator, [line for line in printed.getvalue().splitlines() if line.startswith(" Average")]


AP = ["mAP", "mAP_50", "mAP_75", "mAP_s", "mAP_m", "mAP_l"]
AR = ["AR@100", "AR@300", "AR@1000", "AR_s@1000", "AR_m@1000", "AR_l@1000"]


@pytest.mark.parametrize("metric", ["bbox", "segm", "proposal"])
def test_figures_are_those_of_pycocotools(annotations, dataset, results, metric):
    evaluator, lines = reference(annotations, dataset, results, metric)
    metrics = dataset.score(results, [metric], {})
    expected = dict(zip([f"{metric}_{name}" for name in AP] + AR, evaluator.stats.tolist(), strict=True))
    names = AR if metric == "proposal" else [f"{metric}_{name}" for name in AP]
    assert list(metrics.figures) == names
    assert metrics.figures == pytest.approx({name: expected[name] for name in names}, abs=1e-12)
    assert metrics.tables[0].splitlines() == [f"Evaluating {metric}...", *lines]
    assert 0.05 < evaluator.stats[0] < 0.95


def test_options(annotations, dataset, results):
    options = {"proposal_nums": [1, 10, 100], "iou_thrs": [0.3, 0.5], "metric_items": ["mAP_50", "mAP_75", "AR@10"]}
    evaluator, _ = reference(annotations, dataset, results, "bbox", (1, 10, 100), (0.3, 0.5))
    figures = dataset.score(results, ["bbox"], options).figures
    expected = {"bbox_mAP_50": evaluator.stats[1], "bbox_mAP_75": -1, "bbox_AR@10": evaluator.stats[7]}
    assert figures == pytest.approx(expected, abs=1e-12)
    assert dataset.score(results, ["bbox"], {"iou_thrs": 0.5, "metric_items": "mAP"}).figures.keys() == {"bbox_mAP"}


@pytest.mark.parametrize("metric", ["bbox", "proposal"])
def test_labels_without_a_category(annotations, results, tmp_path, metric):
    """As in MMDetection's Coco90Dataset they count as the category whose id they are, if there is one."""
    categories = [{"id": i + 1, "name": name} for i, name in enumerate(class_names.COCO_90) if name != str(i)]
    renamed = dict(zip(NAMES, (11, 13, 28, 44, 29), strict=True))  # 29 is no category, and no object is one
    objects = [entry | {"category_id": renamed[entry["category_id"]]} for entry in annotations["annotations"]]
    coco = annotations | {"annotations": objects, "categories": categories}
    (tmp_path / "instances.json").write_text(json.dumps(coco))
    dataset = Coco90Dataset(tmp_path / "instances.json", "images")
    assert (len(categories), len(dataset.classes)) == (80, 90)
    assert dataset.category_ids[9:13] == [10, 11, 11, 13]
    assert dataset.category_ids[26:31] == [27, 28, 28, 29, 31]
    labels = np.array([11, 12, 28, 44, 29])
    results = [ImageResult(result.boxes, result.scores, labels[result.labels], None) for result in results]
    evaluator, lines = reference(coco, dataset, results, metric)
    metrics = dataset.score(results, [metric], {"classwise": True})
    assert metrics.tables[0].splitlines() == [f"Evaluating {metric}...", *lines]
    assert evaluator.stats[0] > 0.05
    if metric == "bbox":
        of_classes = metrics.classwise["bbox"]
        assert [*of_classes] == [category["name"] for category in categories]
        measured = {name: figures["mAP"] for name, figures in of_classes.items() if figures["mAP"] >= 0}
        assert measured.keys() == {"fire hydrant", "stop sign", "umbrella", "bottle"}
        assert np.mean([*measured.values()]) == pytest.approx(evaluator.stats[0], abs=1e-12)


def test_classwise_table(annotations, dataset, results):
    evaluator, _ = reference(annotations, dataset, results, "bbox")
    metrics = dataset.score(results, ["bbox"], {"classwise": True})
    header, *rows = metrics.tables[1].splitlines()
    assert header.split() == ["category", *AP]
    for number, (row, name) in enumerate(zip(rows, NAMES.values(), strict=True)):
        precision = evaluator.eval["precision"][:, :, number, 0, -1]
        expected = precision.mean() if name != "gnu" else -1
        assert row.split()[:2] == [name, f"{expected:.3f}"]
        assert metrics.classwise["bbox"][name]["mAP"] == pytest.approx(expected)


def test_concatenated(dataset, results):
    """Each data set is measured by itself, with the classes of its own detections."""
    nothing = [ImageResult(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))] * len(dataset)
    together = ConcatenatedDataset([dataset, dataset])
    assert len(together) == 2 * len(dataset)
    together.check(["bbox"], {})
    result = together.score([*results, *nothing], ["bbox"], {"classwise": True})
    for number, detections in enumerate((results, nothing)):
        alone = dataset.score(detections, ["bbox"], {"classwise": True})
        assert {name: result.figures[f"{number}_{name}"] for name in alone.figures} == alone.figures
        assert result.classwise[f"{number}_bbox"] == alone.classwise["bbox"]
        assert result.tables[2 * number].endswith(alone.tables[0])
    with pytest.raises(ValueError, match="unknown option thr"):
        together.check(["bbox"], {"thr": 1})


def renamed(image=lambda id: id, category=lambda id: id, object=lambda id: id, reference=lambda id: id):
    """Return a change of all ids; `reference` changes those that objects refer to once more."""

    def change(annotations):
        for entry in annotations["images"]:
            entry["id"] = image(entry["id"])
        for entry in annotations["categories"]:
            entry["id"] = category(entry["id"])
        for entry in annotations["annotations"]:
            ids = {"image_id": image(entry["image_id"]), "category_id": category(entry["category_id"])}
            entry |= {"id": object(entry["id"])} | {name: reference(id) for name, id in ids.items()}

    return change


def rewritten(kind, **values):
    """Return a change of the entries of all objects of a kind."""

    def change(annotations):
        for entry in annotations[kind]:
            entry |= {name: value(entry[name]) for name, value in values.items()}

    return change


def without_area(annotations):
    for entry in annotations["annotations"]:
        del entry["area"]


def texts(box):
    return list(map(str, box))


VARIANTS = {
    "objects from 0": renamed(object=lambda id: (id - 1000) // 3),
    "images from 0 and below": renamed(image=lambda id: id - 100),
    "categories from 0 and below": renamed(category=lambda id: id - 7),
    "large numbers": renamed(*[lambda id: 2**63 + id] * 3),
    "text": renamed(lambda id: f"img_{id:03}", lambda id: f"class_{id:03}", lambda id: f"object_{id}"),
    "text that is a number": renamed(str, str, str),
    "references of pandas": renamed(reference=float),
    "references as text": renamed(reference=str),
    "references as text of a float": renamed(reference=lambda id: f"{id}.0"),
    "fractions": renamed(image=lambda id: id + 0.5),
    "no area": without_area,
    "null": rewritten("annotations", area=lambda area: None, iscrowd=lambda crowd: crowd or None),
    "sizes as text": rewritten("images", width=str, height=lambda side: f"{side}.0"),
    "sizes as floats": rewritten("images", width=float, height=float),
    "boxes as text": rewritten("annotations", bbox=texts, area=str, iscrowd=lambda crowd: str(float(crowd))),
}


@pytest.mark.parametrize("metric", ["bbox", "segm", "proposal"])
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.filterwarnings("ignore:.*have no area")
def test_files_that_tools_write_have_the_figures_of_the_plain_form(
    annotations, dataset, results, tmp_path, variant, metric
):
    """Ids are text, floats, negative or 0; numbers are text; areas are missing."""
    changed = json.loads(json.dumps(annotations))
    VARIANTS[variant](changed)
    assert json.dumps(changed) != json.dumps(annotations)
    (tmp_path / "a.json").write_text(json.dumps(changed))
    evaluation = Evaluation(CocoDataset(tmp_path / "a.json", "images"), [metric])
    actual = evaluation.dataset.score(results, [metric], {"classwise": metric != "proposal"})
    evaluator, lines = reference(annotations, dataset, results, metric)
    assert actual.tables[0].splitlines() == [f"Evaluating {metric}...", *lines]
    expected = evaluator.stats[6:] if metric == "proposal" else evaluator.stats[:6]
    assert list(actual.figures.values()) == pytest.approx(expected.tolist(), abs=1e-12)
    rows = evaluation.dataset.rows(results, masks=False)
    assert {row["image_id"] for row in rows} <= {image["id"] for image in changed["images"]}
    assert {row["category_id"] for row in rows} <= {category["id"] for category in changed["categories"]}


def test_areas_that_a_file_does_not_have(tmp_path):
    """They are those of the masks, in runs, compressed or polygons, or else of the boxes; a note counts them."""
    triangle = [[0, 0, 8, 0, 8, 8]]
    runs = {"size": [20, 30], "counts": [0, 7, 593]}
    mask = coco_mask.merge(coco_mask.frPyObjects(triangle, 20, 30))
    compressed = mask | {"counts": mask["counts"].decode()}
    segmentations = [triangle, runs, compressed, None, [], "?"]
    objects = [{"image_id": 1, "category_id": 1, "bbox": [0, 0, 9, 9], "segmentation": mask} for mask in segmentations]
    objects = [entry | {"id": number} for number, entry in enumerate([*objects, {**objects[0], "area": 5}])]
    content = {"images": [{"id": 1, "file_name": "a.png", "height": 20, "width": 30}], "annotations": objects}
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "a"}]}))
    dataset = CocoDataset(tmp_path / "a.json", ".")
    assert dataset.truth.areas.tolist() == [coco_mask.area(mask), 7, coco_mask.area(mask), 81, 81, 81, 5]
    Evaluation(dataset)
    with pytest.warns(UserWarning, match=r"a\.json: 6 of 7 objects have no area; that of the mask, or else of the box"):
        Evaluation(dataset, ["bbox"])
    del content["images"][0]["height"]
    (tmp_path / "a.json").write_text(json.dumps(content | {"categories": [{"id": 1, "name": "a"}]}))
    assert CocoDataset(tmp_path / "a.json", ".").truth.areas.tolist() == [81] * 6 + [5]


def test_ids_that_are_the_same(annotations, tmp_path):
    changed = json.loads(json.dumps(annotations))
    changed["images"][1]["id"] = f"{changed['images'][0]['id']}.0"
    (tmp_path / "a.json").write_text(json.dumps(changed))
    with pytest.raises(ValueError, match=r"ids of images in .* are not unique"):
        CocoDataset(tmp_path / "a.json", ".")


def test_several_metrics_and_no_detection(dataset, results):
    nothing = [ImageResult(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64), [])] * len(
        dataset
    )
    both = dataset.score(results, ["proposal", "bbox"], {}).figures
    assert both == dataset.score(results, ["proposal"], {}).figures | dataset.score(results, ["bbox"], {}).figures
    for metric in dataset.metric_names:
        assert set(dataset.score(nothing, [metric], {}).figures.values()) <= {0.0, -1.0}


def subset(annotations, path, classes, order=1):
    changed = annotations | {"categories": annotations["categories"][::order]}
    path.write_text(json.dumps(changed))
    return CocoDataset(path, "images", classes)


def test_labels_count_the_categories_of_the_file_that_are_classes(annotations, tmp_path):
    dataset = subset(annotations, tmp_path / "a.json", ["dog", "fox"])
    assert dataset.category_ids == [7, 90]
    with pytest.warns(UserWarning, match="another order"):
        dataset = subset(annotations, tmp_path / "a.json", ["dog", "fox"], order=-1)
    assert dataset.category_ids == [90, 7]
    assert [image.id for image in dataset.images] == [image["id"] for image in annotations["images"]]
    assert dataset.images[0].path == pathlib.Path("images", annotations["images"][0]["file_name"])


def test_figures_of_some_classes_in_another_order(annotations, results, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = subset(annotations, tmp_path / "a.json", ["dog", "fox", "cat"], order=-1)
    some = [ImageResult(detections.boxes, detections.scores, detections.labels % 3) for detections in results]
    evaluator, _ = reference(annotations, dataset, some, "bbox")
    metrics = dataset.score(some, ["bbox"], {"classwise": True})
    assert list(metrics.figures.values()) == pytest.approx(evaluator.stats[:6].tolist(), abs=1e-12)
    of_fox = evaluator.eval["precision"][:, :, 2, 0, -1].mean()  # pycocotools sorts the categories
    assert metrics.tables[1].splitlines()[1].split()[:2] == ["fox", f"{of_fox:.3f}"]


def test_refusals(annotations, dataset, results, tmp_path):
    with pytest.raises(ValueError, match=r"no category owl; classes: dog, owl; categories of the file: cat, dog, emu"):
        subset(annotations, tmp_path / "a.json", ["dog", "owl"])
    with pytest.raises(ValueError, match=r"no category 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 70 more; classes: 0"):
        subset(annotations, tmp_path / "a.json", list(map(str, range(80))))
    boxes = [ImageResult(detections.boxes, detections.scores, detections.labels) for detections in results]
    with pytest.raises(ValueError, match="segm needs masks"):
        dataset.score(boxes, ["segm"], {})
    for options, message in [
        ({"classwis": True}, "unknown option classwis; options: classwise, iou_thrs"),
        ({"iou_thrs": []}, "iou_thrs must be above 0"),
        ({"iou_thrs": "half"}, r"iou_thrs must be above 0 and at most 1, got \['half'\]"),
        ({"proposal_nums": [0]}, "proposal_nums must be positive integers"),
        ({"proposal_nums": 1.5}, r"proposal_nums must be positive integers, got \[1.5\]"),
        ({"proposal_nums": [10]}, "proposal_nums must contain 100"),
        ({"metric_items": ["mAP_9"]}, "unknown metric_items 'mAP_9'; known: mAP, mAP_50"),
    ]:
        with pytest.raises(ValueError, match=message):
            Evaluation(dataset, ["bbox"], **options)
    with pytest.raises(ValueError, match="metric 'mAP' is not one of this data set; CocoDataset has bbox, segm"):
        Evaluation(dataset, ["mAP"])
    assert Evaluation(dataset, ["proposal"], proposal_nums=[10]).masks is False
    for content, message in [
        ("{", "not a JSON file"),
        ("[]", "not in COCO's format"),
        (json.dumps(annotations | {"annotations": None}), "annotations in .* must be a list of objects"),
        (
            json.dumps(annotations | {"annotations": [{"id": 1}]}),
            r"annotations\[0\] in .* has no image_id, category_id",
        ),
        (json.dumps(annotations | {"images": [{"id": 1}]}), r"images\[0\] in .* has no file_name"),
        (json.dumps(annotations | {"categories": [{"id": 1}]}), r"categories\[0\] in .* has no name"),
        (json.dumps(annotations | {"annotations": annotations["annotations"][:1] * 2}), "ids of annotations .* unique"),
        (json.dumps(annotations | {"images": annotations["images"][:1] * 2}), "ids of images .* are not unique"),
    ]:
        (tmp_path / "b.json").write_text(content)
        with pytest.raises(ValueError, match=message):
            CocoDataset(tmp_path / "b.json", ".")
    for nothing in ({}, {"annotations": []}):
        (tmp_path / "b.json").write_text(json.dumps({"images": annotations["images"], "categories": []} | nothing))
        with pytest.raises(ValueError, match="has no annotations"):
            Evaluation(CocoDataset(tmp_path / "b.json", "."), ["bbox"])
    (tmp_path / "b.json").write_text(json.dumps({"images": [], "categories": [], "annotations": []}))
    with pytest.raises(ValueError, match="the data set has no images"):
        Evaluation(CocoDataset(tmp_path / "b.json", "."), ["bbox"])
    assert Evaluation(CocoDataset(tmp_path / "b.json", ".")).results == []


@pytest.mark.parametrize(("kind", "name"), [("images", "height"), ("annotations", "segmentation")])
def test_segm_needs_sizes_and_masks_before_anything_is_predicted(annotations, tmp_path, kind, name):
    first, *rest = annotations[kind]
    without = {key: value for key, value in first.items() if key != name}
    (tmp_path / "a.json").write_text(json.dumps(annotations | {kind: [without, *rest]}))
    dataset = CocoDataset(tmp_path / "a.json", ".")
    with pytest.raises(ValueError, match=rf"segm needs .*{name}.* of .*, which {kind}\[0\] lacks"):
        Evaluation(dataset, ["bbox", "segm"])
    Evaluation(dataset, ["bbox"])


def test_missing_libraries_are_named_before_anything_is_predicted(dataset, monkeypatch):
    monkeypatch.setitem(sys.modules, "faster_coco_eval", None)
    with pytest.raises(ImportError, match=r"needs faster-coco-eval: pip install 'mmort\[evaluate\]'"):
        Evaluation(dataset, ["bbox"])
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"needs tqdm: pip install 'mmort\[evaluate\]'"):
        collect(Evaluation(dataset), lambda paths: pytest.fail("predicted"))
