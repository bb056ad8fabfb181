"""Panoptic quality, computed by hand, of files in COCO's panoptic format."""

import json
import pickle

import numpy as np
import pytest

from mmort.detections.panoptic import SegmentIds
from mmort.evaluate import CocoDataset, CocoPanopticDataset, Evaluation, dataset_of, metric_options, write_results
from mmort.evaluate.panoptic_quality import ClassCounts, TrueSegment, add_image
from mmort.predict import Detections, ImageMasks, read_image, write_image

CATEGORIES = [
    {"id": 1, "name": "cat", "isthing": 1},
    {"id": 5, "name": "dog", "isthing": 1},
    {"id": 90, "name": "sky", "isthing": 0},
]
TRUTH = np.array([[70000] * 8 + [12] * 4 + [300] * 4 + [0] * 2 + [14] * 2 + [0] * 2])
INFOS = [(70000, 1, 0), (12, 1, 0), (300, 90, 0), (14, 5, 1)]  # the last is a crowd of dogs
FOUND = [
    (0, [0, 1, 2, 3, 4, 5]),  # 6 of a cat's 8 pixels
    (0, [8, 9, 16, 20]),  # half of a cat, half nothing: IoU 2 / 4, neither a match nor ignored
    (2, [10, 11, 12, 13, 14, 15]),  # the sky and 2 more pixels
    (1, [17, 18, 19]),  # nothing and a crowd, ignored
    (1, [6, 7]),  # no dog
]
FIGURES = {
    "PQ": (0.375 + 0 + 2 / 3) / 3,
    "SQ": (0.75 + 0 + 2 / 3) / 3,
    "RQ": (0.5 + 0 + 1) / 3,
    "PQ_th": 0.375 / 2,
    "SQ_th": 0.75 / 2,
    "RQ_th": 0.5 / 2,
    "PQ_st": 2 / 3,
    "SQ_st": 2 / 3,
    "RQ_st": 1,
}


def segments(predicted=FOUND, classes=3):
    """Return the segments of an image of one row of 22 pixels."""
    masks = np.zeros((len(predicted), 1, 22), bool)
    for mask, (_, pixels) in zip(masks, predicted, strict=True):
        mask[0, pixels] = True
    labels = np.array([label for label, _ in predicted], np.int64)
    ids = SegmentIds(labels + 1000 * np.arange(1, len(predicted) + 1), 2, classes)
    stored, scores = ImageMasks.from_arrays(masks), np.linspace(1, 0.5, len(predicted))
    return Detections(stored.boxes, scores, labels, tuple(map(str, labels)), (1, 22), stored, ids)


@pytest.fixture
def files(tmp_path):
    """Write the annotation file of an image, its map and the image; return the file's path."""
    annotation = {
        "image_id": 7,
        "file_name": "a.png",
        "segments_info": [dict(zip(("id", "category_id", "iscrowd"), info, strict=True)) for info in INFOS],
    }
    annotations = {"images": [{"id": 7, "file_name": "a.jpg"}], "categories": CATEGORIES, "annotations": [annotation]}
    path = tmp_path / "panoptic_val.json"
    path.write_text(json.dumps(annotations))
    (tmp_path / "panoptic_val").mkdir()
    colors = np.stack([TRUTH >> 16, TRUTH >> 8 & 255, TRUTH & 255], 2)
    write_image(tmp_path / "panoptic_val" / "a.png", colors.astype(np.uint8))
    write_image(tmp_path / "a.jpg", np.zeros((1, 22, 3), np.uint8))
    return path


def evaluation(path, predicted, **options):
    dataset = CocoPanopticDataset(path, path.parent)
    evaluated = Evaluation(dataset, ["PQ"], **options)
    evaluated.add(dataset.images[0], predicted)
    return evaluated


def test_figures(files):
    metrics = evaluation(files, segments(), classwise=True).metrics()
    assert metrics.figures == pytest.approx({name: 100 * value for name, value in FIGURES.items()})
    assert metrics.classwise["PQ"]["cat"] == pytest.approx({"PQ": 37.5, "SQ": 75, "RQ": 50})
    assert "Things  18.750" in metrics.tables[0]
    assert "sky       66.667" in metrics.tables[1]


def test_nothing_found_and_nothing_to_find(files):
    assert evaluation(files, segments([])).metrics().figures["PQ"] == 0
    annotations = json.loads(files.read_text())
    annotations["annotations"][0]["segments_info"] = []
    files.write_text(json.dumps(annotations))
    write_image(files.with_suffix("") / "a.png", np.zeros((1, 22, 3), np.uint8))
    assert set(evaluation(files, segments([])).metrics().figures.values()) == {-1}


def test_classes_that_are_left_out_are_nothing(files):
    dataset = CocoPanopticDataset(files, files.parent, classes=["cat", "sky"])
    evaluated = Evaluation(dataset, ["PQ"])
    evaluated.add(dataset.images[0], segments([(0, range(8)), (0, range(8, 12)), (1, range(12, 20))]))
    figures = evaluated.metrics().figures
    assert (figures["PQ_th"], figures["PQ_st"]) == (100, 100)


def test_written_results_are_the_truth_of_themselves(files, tmp_path):
    evaluated = evaluation(files, segments())
    (path,) = evaluated.dataset.write_submission(evaluated.results, str(tmp_path / "found"))
    written = json.loads(path.read_text())
    (entry,) = written["annotations"]
    assert entry["file_name"] == "a.png"
    assert entry["segments_info"][2] == {"id": 3, "category_id": 90, "area": 6}
    assert read_image(tmp_path / "found.panoptic" / "a.png")[0, :, 2].tolist() == [1] * 6 + [5] * 2 + [2] * 2 + [
        *[3] * 6,
        *[2, 4, 4, 4, 2, 0],
    ]
    files.write_text(json.dumps({**json.loads(files.read_text()), **written}))
    dataset = CocoPanopticDataset(files, files.parent, tmp_path / "found.panoptic")
    again = Evaluation(dataset, ["PQ"])
    again.add(dataset.images[0], segments())
    assert again.metrics().figures["PQ"] == 100


def test_configs(files):
    data = {"type": "CocoPanopticDataset", "ann_file": files.name, "data_root": str(files.parent)}
    config = {
        "test_dataloader": {"dataset": {**data, "data_prefix": {"img": "", "seg": "panoptic_val"}}},
        "test_evaluator": {"type": "CocoPanopticMetric", "classwise": True, "format_only": False},
    }
    old = {"data": {"test": {**data, "img_prefix": "", "seg_prefix": "panoptic_val"}}}
    for entries in (config, old, {"data": {"test": data}}):
        dataset = dataset_of(entries)
        assert isinstance(dataset, CocoPanopticDataset)
        assert (dataset.segment_dir, dataset.classes) == (files.with_suffix(""), ("cat", "dog", "sky"))
    assert metric_options(config, dataset) == {"classwise": True}
    assert dataset_of(config, annotation_file=files).segment_dir == files.with_suffix("")


def test_refused(files):
    with pytest.raises(ValueError, match="has no category gnu"):
        CocoPanopticDataset(files, files.parent, classes=["gnu"])
    predicted = segments()
    instances = Detections(
        predicted.boxes, predicted.scores, predicted.labels, predicted.names, (1, 22), predicted.stored_masks
    )
    with pytest.raises(ValueError, match="PQ needs the segments of a panoptic detector"):
        evaluation(files, instances)
    with pytest.raises(ValueError, match="unknown option classwide; options: classwise"):
        evaluation(files, predicted, classwide=True)
    annotations = json.loads(files.read_text())
    files.write_text(json.dumps({**annotations, "annotations": []}))
    with pytest.raises(ValueError, match="1 images have no annotation"):
        evaluation(files, predicted)
    files.write_text(json.dumps({**annotations, "annotations": [{"image_id": 7}]}))
    with pytest.raises(ValueError, match=r"annotations\[0\] in .* has no file_name, segments_info"):
        CocoPanopticDataset(files, files.parent)
    with pytest.raises(ValueError, match=r"has no id, category_id, bbox$"):
        CocoDataset(files, files.parent)


def test_maps_with_unknown_segments():
    with pytest.raises(ValueError, match="segment 9 of the map is not among those of the annotation"):
        add_image({0: ClassCounts()}, np.array([[3, 9]]), [TrueSegment(3, 0, False)], np.zeros((1, 2), int), [])


def test_results_file(files, tmp_path):
    """MMDetection's maps: ids of segments, and the number of classes where there is none."""
    predicted = segments()
    write_results(tmp_path / "results.pkl", evaluation(files, predicted, masks=True).results, 3)
    ((name, map),) = pickle.loads((tmp_path / "results.pkl").read_bytes())[0].items()
    assert (name, map.dtype) == ("pan_results", np.int32)
    assert map[0, [0, 6, 8, 10, 17, 21]].tolist() == [1000, 5001, 2000, 3002, 4001, 3]
    np.testing.assert_array_equal(map, predicted.panoptic_map)
    write_results(tmp_path / "results.pkl", evaluation(files, segments([]), masks=True).results, 3)
    (result,) = pickle.loads((tmp_path / "results.pkl").read_bytes())
    assert result["pan_results"].tolist() == [[3] * 22]
    dataset = CocoPanopticDataset(files, files.parent)
    without_masks = Evaluation(dataset)
    without_masks.add(dataset.images[0], predicted)
    with pytest.raises(ValueError, match="segments need their masks"):
        write_results(tmp_path / "results.pkl", without_masks.results, 3)
