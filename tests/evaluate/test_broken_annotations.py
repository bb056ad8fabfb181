"""Data sets are checked completely before anything is detected: numbers, ids, names, segmentations, files."""

import copy
import json
import os

import cv2
import numpy as np
import pytest
from faster_coco_eval.core import mask as library

from mmort.evaluate import CocoDataset, CocoPanopticDataset, DotaDataset, Evaluation, VocDataset
from mmort.evaluate.coco_format import segmentation_problem

NAN, INF = float("nan"), float("inf")
POLYGON = [[0, 0, 8, 0, 8, 4]]
COCO = {
    "images": [{"id": 1, "file_name": "a.png", "height": 20, "width": 30}],
    "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 2, "bbox": [0, 0, 8, 4], "area": 32, "segmentation": POLYGON}
    ],
}


def check(tmp_path, annotations, metrics=("bbox",)):
    (tmp_path / "a.json").write_text(annotations if isinstance(annotations, str) else json.dumps(annotations))
    Evaluation(CocoDataset(tmp_path / "a.json", tmp_path), metrics)


def test_the_data_set_without_an_error(tmp_path):
    check(tmp_path, COCO, ("bbox", "segm", "proposal"))


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("images", "id", [None, [1], {}, True, NAN, INF]),
        ("images", "file_name", [None, ["a.png"], "", "a\0", 5]),
        ("images", "height", ["x", "2_0", "nan", 0, -5, 10**9, NAN, 20.5, True]),
        ("images", "width", ["", 0, -5, 10**30, INF, "9" * 400]),
        ("categories", "id", [None, [1], NAN]),
        ("categories", "name", [None, 5, ["a"], "\x1b[2J", "\ud800", "b"]),
        ("annotations", "id", [None, [1]]),
        ("annotations", "image_id", [None, [1], {}]),
        ("annotations", "category_id", [None, [1], {}]),
        (
            "annotations",
            "bbox",
            [None, 5, [], [1, 2], [1, 2, 3, "x"], [1, 2, 3, None], [NAN, 0, 3, 3], [0, INF, 1, 1], [0, 0, -1, 3]],
        ),
        ("annotations", "bbox", [[0, 0, 1e300, 1], [0, 0, True, 1], {"x": 1}, [[0, 0, 1, 1]] * 4]),
        ("annotations", "area", ["x", NAN, INF, -1, 10**400]),
        ("annotations", "iscrowd", ["no", 2, [0], 0.5]),
    ],
)
def test_entries_of_cocos_format(tmp_path, kind, name, values):
    for value in values:
        broken = copy.deepcopy(COCO)
        broken[kind][0][name] = value
        with pytest.raises(ValueError, match=rf"^evaluate: .*({kind}\[0\]|several categories of the same name)"):
            check(tmp_path, broken)


@pytest.mark.parametrize("text", ["", "[", "[" * 100_000, "5", "[]", "{}", '{"images": 5, "categories": []}', "\ud800"])
def test_files_that_are_no_annotations(tmp_path, text):
    (tmp_path / "a.json").write_text(text, errors="surrogatepass")
    with pytest.raises(ValueError, match=r"^evaluate: .*a\.json"):
        CocoDataset(tmp_path / "a.json", tmp_path)


def random_mask(rng):
    return (rng.random((20, 30)) < rng.random()).astype(np.uint8, order="F")


def test_objects_of_unknown_categories_and_images_are_counted(tmp_path):
    """MMDetection and pycocotools leave them out in silence, so that a wrong id looks like a bad detector."""
    annotations = copy.deepcopy(COCO)
    annotations["annotations"] += [{**COCO["annotations"][0], "id": 2, "category_id": 7}]
    with pytest.warns(UserWarning, match=r"a\.json: 1 of 2 objects are left out; categories has no id 7$"):
        check(tmp_path, annotations)
    annotations["annotations"][1] |= {"category_id": 1, "image_id": 5}
    with pytest.warns(UserWarning, match=r"a\.json: 1 of 2 objects are left out; images has no id 5$"):
        check(tmp_path, annotations)
    check(tmp_path, annotations, ())  # as nothing is measured


def test_objects_of_other_classes_are_left_out_when_asked_for(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(COCO))
    Evaluation(CocoDataset(tmp_path / "a.json", tmp_path, ["a"]), ["bbox"])


def test_run_lengths_of_the_library_are_accepted(rng):
    for _ in range(100):
        encoded = library.encode(np.asfortranarray(random_mask(rng)))
        text = encoded["counts"].decode() if isinstance(encoded["counts"], bytes) else encoded["counts"]
        assert segmentation_problem({"size": [20, 30], "counts": text}, 20, 30) is None
        if len(text) > 1:
            assert segmentation_problem({"size": [20, 30], "counts": text[:-1]}, 20, 30) is not None


@pytest.mark.parametrize(
    "segmentation",
    [
        None,
        5,
        "x",
        [],
        [[]],
        [5],
        [[0, 0, 8, 0]],
        [[0, 0, 8, 0, 8]],
        [[0, 0, 8, 0, 8, NAN]],
        [[0, 0, 8, 0, 8, "4"]],
        [[0, 0, 1e7, 0, 1e7, 4]],
        {"size": [20, 30]},
        {"size": [5, 5], "counts": [25]},
        {"size": [20, 30], "counts": [25]},
        {"size": [20, 30], "counts": [-1, 601]},
        {"size": [20, 30], "counts": [True, 599]},
        {"size": [20, 30], "counts": "~~~~"},
        {"size": [20, 30], "counts": ""},
        {"size": [20, 30], "counts": "ooooooooooo0"},
        {"size": [20, 30], "counts": "\u00e9"},
        {"size": [20, 30], "counts": None},
        {"size": "20, 30", "counts": [600]},
    ],
)
def test_segmentations(tmp_path, segmentation):
    broken = copy.deepcopy(COCO)
    broken["annotations"][0]["segmentation"] = segmentation
    check(tmp_path, broken)
    with pytest.raises(ValueError, match=r"^evaluate: (annotations\[0\]\.segmentation must be |segm needs )"):
        check(tmp_path, broken, ("segm",))


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)])
def test_pipes_and_devices_are_no_annotations(tmp_path, make):
    message = "must be a regular file, got a pipe or a device"
    make(tmp_path / "a.json")
    with pytest.raises(ValueError, match=message):
        CocoDataset(tmp_path / "a.json", tmp_path)
    with pytest.raises(ValueError, match=message):
        VocDataset(tmp_path / "a.json", tmp_path, ["a"])
    make(tmp_path / "a.txt")
    (tmp_path / "a.png").touch()
    with pytest.raises(ValueError, match=message):
        DotaDataset(tmp_path, tmp_path, ["a"]).check(["mAP"], {})
    (tmp_path / "Annotations").mkdir()
    make(tmp_path / "Annotations/a.xml")
    (tmp_path / "set").write_text("a\n")
    with pytest.raises(ValueError, match=message):
        VocDataset(tmp_path / "set", tmp_path, ["a"]).check(["recall"], {})


# ---- VOC and DOTA ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        f"<annotation><object><name>a</name><bndbox><xmin>{number}</xmin><ymin>1</ymin><xmax>2</xmax><ymax>3</ymax></bndbox>"
        "</object></annotation>"
        for number in ("inf", "nan", "1e30", "x", "", "9" * 5000)
    ]
    + [
        "<?xml version='1.0' encoding='nonsense'?><annotation/>",
        "<?xml version='1.0' encoding='shift_jis'?><a/>",
        "<a>",
        "",
    ],
)
def test_voc_annotations(tmp_path, annotation):
    (tmp_path / "Annotations").mkdir()
    (tmp_path / "Annotations/x.xml").write_text(annotation)
    (tmp_path / "set").write_text("x\n")
    with pytest.raises(ValueError, match=r"x\.xml is not an annotation in VOC's format: "):
        VocDataset(tmp_path / "set", tmp_path, ["a"]).check(["recall"], {})


def test_texts_that_are_not_utf8(tmp_path):
    (tmp_path / "set").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"image set must be UTF-8 text: .*set: "):
        VocDataset(tmp_path / "set", tmp_path, ["a"])


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e30", "1e39"])
def test_corners_of_dotas_objects_are_finite(tmp_path, number):
    """Objects with such corners were left out, which changed AP."""
    (tmp_path / "x.png").touch()
    (tmp_path / "x.txt").write_text(f"0 0 {number} 0 9 9 0 9 a 0\n")
    with pytest.raises(ValueError, match=r"x\.txt, line 1: corners must be finite and at most 1\.67772e\+07, got 0 0 "):
        DotaDataset(tmp_path, tmp_path, ["a"]).check(["mAP"], {})


@pytest.mark.parametrize("name", ["../a", "/a", "a/b", "a\0"])
def test_names_of_submission_files(tmp_path, name):
    (tmp_path / "x.png").touch()
    with pytest.raises(ValueError, match=r"cannot be the name of a file|must be inside"):
        DotaDataset(tmp_path, tmp_path, ["b", name]).submission_files(tmp_path / "out")
    assert not (tmp_path / "out").exists()


# ---- panoptic segmentations ------------------------------------------------------------------------------------

PANOPTIC = {
    "images": [{"id": 1, "file_name": "a.png"}, {"id": 2, "file_name": "b/a.png"}],
    "categories": [{"id": 1, "name": "a", "isthing": 1}],
    "annotations": [
        {"image_id": 1, "file_name": "a.png", "segments_info": [{"id": 5, "category_id": 1}]},
        {"image_id": 2, "file_name": "a.png", "segments_info": []},
    ],
}


def panoptic(tmp_path, annotations):
    (tmp_path / "a.json").write_text(json.dumps(annotations))
    (tmp_path / "a").mkdir(exist_ok=True)
    cv2.imwrite(str(tmp_path / "a/a.png"), np.zeros((4, 5, 3), np.uint8))
    return CocoPanopticDataset(tmp_path / "a.json", tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        ("images", "id", [None, [1], {}, 2]),
        ("images", "file_name", [None, 5, ""]),
        ("categories", "isthing", ["no", 2]),
        ("annotations", "image_id", [None, [1], 2]),
        ("annotations", "file_name", [None, 5]),
        ("annotations", "segments_info", [None, 5, {}, [5], [{}], [{"id": 0, "category_id": 1}], [{"id": 1}]]),
        ("annotations", "segments_info", [[{"id": 2**24, "category_id": 1}], [{"id": 1, "category_id": [1]}]]),
        (
            "annotations",
            "segments_info",
            [[{"id": 1, "category_id": 1}] * 2, [{"id": 1, "category_id": 1, "iscrowd": "x"}]],
        ),
    ],
)
def test_entries_of_cocos_panoptic_format(tmp_path, kind, name, values):
    panoptic(tmp_path, PANOPTIC).check(["PQ"], {})
    for value in values:
        broken = copy.deepcopy(PANOPTIC)
        broken[kind][0][name] = value
        with pytest.raises(ValueError, match=r"^evaluate: "):
            panoptic(tmp_path, broken)


def test_segments_of_unknown_categories_are_counted(tmp_path):
    annotations = copy.deepcopy(PANOPTIC)
    annotations["annotations"][0]["segments_info"][0]["category_id"] = 3
    with pytest.warns(UserWarning, match=r"a\.json: 1 of 1 objects are left out; categories has no id 3$"):
        panoptic(tmp_path, annotations)


def test_segment_maps_must_exist(tmp_path):
    dataset = panoptic(tmp_path, PANOPTIC)
    os.unlink(tmp_path / "a/a.png")
    with pytest.raises(FileNotFoundError):
        dataset.check(["PQ"], {})


def test_files_of_panoptic_results_stay_in_their_folder(tmp_path):
    for names, message in (
        (["../a.png", "b.png"], "must be inside"),
        (["a.png", "a.jpg"], r"a\.png and a\.jpg would both be"),
    ):
        broken = copy.deepcopy(PANOPTIC)
        for image, name in zip(broken["images"], names, strict=True):
            image["file_name"] = name
        with pytest.raises(ValueError, match=message):
            panoptic(tmp_path, broken).submission_files(tmp_path / "out")


def test_names_of_voc_images_fit_into_a_message(tmp_path):
    (tmp_path / "set.txt").write_text("a\n" + 5000 * "\0")
    with pytest.raises(ValueError, match=r"names of images must have at most 4096 characters: .*set\.txt$"):
        VocDataset(tmp_path / "set.txt", tmp_path, ["a"])
