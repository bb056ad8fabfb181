"""Detections: selection, masks that are stored compactly, and the formats of other programs."""

import json
import sys
import types
import warnings

import numpy as np
import pytest
from PIL import Image
from pycocotools import mask as coco

from mmort.detections.panoptic import SegmentIds
from mmort.detections.skeleton import Skeleton
from mmort.predict import (
    BoxMasks,
    Classes,
    Detections,
    ImageMasks,
    SegmentationMap,
    draw,
    paste_masks,
    read_image,
    write_image,
)

HEIGHT, WIDTH = 40, 57
BOXES = np.array([[3.2, 4.1, 20.7, 30.3], [-5, -6, 9, 8.5], [50, 30, 70, 60], [60, 5, 90, 9], [7, 7, 7, 7]], np.float32)
SCORES = np.array([0.9, 0.8, 0.3, 0.2, 0.1], np.float32)
LABELS = np.array([1, 0, 2, 1, 0])
NAMES = "b", "a", "c", "b", "a"
PROBABILITIES = np.random.default_rng(0).random((5, 7, 6), np.float32)
ARRAYS = np.random.default_rng(1).random((5, HEIGHT, WIDTH)) > 0.97
ARRAYS[1], ARRAYS[2] = False, True


def decode(lengths):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pycocotools calls numpy in a way that is deprecated
        return coco.decode(lengths)


def with_masks(masks):
    return Detections(BOXES, SCORES, LABELS, NAMES, (HEIGHT, WIDTH), masks)


BOX_MASKS = with_masks(BoxMasks(PROBABILITIES, BOXES, 0.4)), paste_masks(PROBABILITIES, BOXES, HEIGHT, WIDTH, 0.4)
IMAGE_MASKS = with_masks(ImageMasks.from_arrays(ARRAYS)), ARRAYS
NO_MASKS = with_masks(None)
NONE = NO_MASKS.above(2.0)


@pytest.mark.parametrize(("detections", "expected"), [BOX_MASKS, IMAGE_MASKS], ids=["box", "image"])
def test_masks(detections, expected):
    assert detections.has_masks
    np.testing.assert_array_equal(detections.masks, expected)
    np.testing.assert_array_equal(detections.mask(2), expected[2])
    np.testing.assert_array_equal(detections[[3, 0]].masks, expected[[3, 0]])
    lengths = detections.rle()
    assert {type(entry["counts"]) for entry in lengths} == {str}
    np.testing.assert_array_equal(decode(lengths).transpose(2, 0, 1), expected)
    assert expected.any((1, 2)).tolist()[:3] == [True, detections is BOX_MASKS[0], True]


def test_masks_are_stored_in_little_memory():
    """Two masks of a small object in a picture of 100 megapixels."""
    mask = np.zeros((10_000, 10_000), bool)
    mask[5000:5010, 7000:7020] = True
    stored = ImageMasks.from_arrays([mask, mask])
    assert sum(bits.nbytes for bits in stored.bits) == 2 * 10 * 20 // 8
    region = BoxMasks(np.ones((1, 2, 2), np.float32), np.array([[7000, 5000, 7020, 5010]])).region(0, *mask.shape)
    assert region.mask.size < 300


def test_masks_outside_of_the_picture_and_of_boxes_that_are_not_finite_are_empty():
    boxes = np.array([[np.nan, 0, 9, 9], [0, 0, np.inf, 9], [0, -1e38, 9, -1e37], [1e38, 0, 2e38, 9]], np.float32)
    detections = Detections(boxes, SCORES[:4], LABELS[:4], NAMES[:4], (8, 9), BoxMasks(PROBABILITIES[:4], boxes))
    assert not detections.masks.any()


@pytest.mark.parametrize(
    ("index", "rows"),
    [
        (1, [1]),
        (-1, [4]),
        (slice(1, 3), [1, 2]),
        ([4, 0], [4, 0]),
        (LABELS == 1, [0, 3]),
        ([], []),
        (np.zeros(5, bool), []),
    ],
)
def test_selection(index, rows):
    chosen = BOX_MASKS[0][index]
    assert len(chosen) == len(rows)
    np.testing.assert_array_equal(chosen.boxes, BOXES[rows])
    np.testing.assert_array_equal(chosen.scores, SCORES[rows])
    np.testing.assert_array_equal(chosen.labels, LABELS[rows])
    assert chosen.names == tuple(NAMES[row] for row in rows)
    np.testing.assert_array_equal(chosen.masks, BOX_MASKS[1][rows])


@pytest.mark.parametrize(("detections", "arrays"), [BOX_MASKS, IMAGE_MASKS], ids=["box", "image"])
def test_what_is_taken_apart_can_be_merged(detections, arrays):
    """By descending score; the earlier part comes first among equal ones."""
    merged = detections[[4, 1]] + detections[[0, 2, 3]]
    assert type(merged.stored_masks) is type(detections.stored_masks)
    for name in ("boxes", "scores", "labels", "names"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(detections, name))
    np.testing.assert_array_equal(merged.masks, arrays)
    nothing = Detections.empty(detections.image_size)
    np.testing.assert_array_equal((nothing + detections + nothing).masks, arrays)
    assert len(nothing + nothing) == 0
    tied = Detections.merge([NO_MASKS[:1], NO_MASKS[:1][[0]], NO_MASKS[1:2]])
    assert tied.names == ("b", "b", "a")


def test_a_comparison_of_all_names_is_no_index():
    with pytest.raises(TypeError, match=r"^Detections: index must not be False; np\.array\(detections\.names\) can be"):
        NO_MASKS[NO_MASKS.names == "x"]
    assert len(NO_MASKS[np.array(NO_MASKS.names) == NO_MASKS.names[0]]) > 0


def test_rotated_boxes_have_five_columns():
    with pytest.raises(ValueError, match=r"^Detections\.of_rotated: rotated_boxes must be \[N, 5\], got \[1, 4\]$"):
        Detections.of_rotated([[50, 40, 20, 10]], [0.9], [0], ("ship",), (80, 100))
    assert len(Detections.of_rotated([], [], [], (), (80, 100))) == 0


def test_what_is_no_detections_is_not_merged():
    with pytest.raises(TypeError, match=r"^Detections\.merge: parts must be Detections, got NoneType$"):
        Detections.merge([NO_MASKS, None])


def test_masks_of_two_kinds_are_merged():
    merged = Detections.merge([BOX_MASKS[0], IMAGE_MASKS[0]])
    np.testing.assert_array_equal(merged.masks[::2], BOX_MASKS[1])
    np.testing.assert_array_equal(merged.masks[1::2], IMAGE_MASKS[1])
    other = with_masks(BoxMasks(PROBABILITIES, BOXES, 0.6))
    np.testing.assert_array_equal((BOX_MASKS[0] + other).masks[1::2], other.masks)


def test_rotated_boxes_are_merged():
    ships = [
        Detections.of_rotated([[50, 40, 20, 10, angle]], [score], [0], ("ship",), (80, 100))
        for angle, score in ((0.5, 0.1), (1.5, 0.2))
    ]
    assert (ships[0] + ships[1]).rotated_boxes[:, 4].tolist() == [1.5, 0.5]
    with pytest.raises(ValueError, match="all parts must have rotated boxes, or none"):
        Detections.merge([ships[0], Detections([[0, 0, 1, 1]], [0.5], [0], ("ship",), (80, 100))])


def test_what_cannot_be_merged():
    with pytest.raises(ValueError, match="parts must have at least one, got none"):
        Detections.merge([])
    with pytest.raises(ValueError, match=r"of one image, got image sizes \[\(1, 2\), \(40, 57\)\]"):
        NO_MASKS + Detections.empty((1, 2))
    with pytest.raises(ValueError, match="all parts must have masks, or none"):
        NO_MASKS + BOX_MASKS[0]
    segments = Detections(BOXES, SCORES, LABELS, NAMES, (40, 57), BOX_MASKS[0].stored_masks, SegmentIds(LABELS, 3, 3))
    with pytest.raises(ValueError, match="must not overlap"):
        segments + segments
    with pytest.raises(TypeError, match="unsupported operand"):
        NO_MASKS + 1


def test_a_repr_is_one_short_line():
    """However many there are, and whatever their masks hold."""
    count, size = 100, (80, 90)
    boxes, scores = np.zeros((count, 4)), np.linspace(0.99, 0.5, count)
    masks = BoxMasks(np.zeros((count, 28, 28), np.float32), boxes.astype(np.float32), 0.5)
    detections = Detections(boxes, scores, np.zeros(count), tuple(map(str, range(count))), size, masks)
    start = "<Detections: 100 objects with masks in 80 x 90 pixels: "
    assert repr(detections) == f"{start}0 0.99, 1 0.99, 2 0.98, 3 0.98, 4 0.97, ...>"
    assert repr(detections[5:7]) == "<Detections: 2 objects with masks in 80 x 90 pixels: 5 0.97, 6 0.96>"
    assert repr(detections[:0]) == "<Detections: 0 objects with masks in 80 x 90 pixels>"
    assert repr(detections[5:6]) == "<Detections: 1 object with masks in 80 x 90 pixels: 5 0.97>"


def test_threshold_is_inclusive():
    assert len(NO_MASKS.above(float(SCORES[2]))) == 3
    with pytest.raises(IndexError):
        NO_MASKS[5]


def test_without_masks():
    assert not NO_MASKS.has_masks
    assert NO_MASKS.masks is None
    with pytest.raises(ValueError, match="the detector makes no masks"):
        NO_MASKS.mask(0)
    assert "segmentation" not in NO_MASKS.to_coco(1)[0]


def test_coco():
    entries = BOX_MASKS[0].to_coco("x", {0: 5, 1: 7, 2: 90})
    assert [entry["category_id"] for entry in entries] == [7, 5, 90, 7, 5]
    assert {entry["image_id"] for entry in entries} == {"x"}
    (x1, y1, x2, y2), score = BOXES[0].tolist(), SCORES[0].item()
    assert entries[0]["bbox"] == [x1, y1, x2 - x1, y2 - y1]
    assert entries[0]["score"] == score
    assert entries[0]["segmentation"] == BOX_MASKS[0].rle()[0]
    assert [entry["category_id"] for entry in NO_MASKS.to_coco(3)] == LABELS.tolist()
    json.dumps(entries)


def test_json():
    text = BOX_MASKS[0].to_json()
    assert "\n" not in text
    values = json.loads(text)
    assert values["image_size"] == [HEIGHT, WIDTH]
    entries = values["detections"]
    np.testing.assert_array_equal(np.array([entry["box"] for entry in entries], np.float32), BOXES)
    np.testing.assert_array_equal(np.array([entry["score"] for entry in entries], np.float32), SCORES)
    assert [(entry["label"], entry["name"]) for entry in entries] == list(zip(LABELS, NAMES, strict=True))
    np.testing.assert_array_equal(decode(entries[0]["segmentation"]), BOX_MASKS[1][0])
    assert "0.9," in text  # not 0.8999999761581421


def test_supervision(monkeypatch):
    """The arguments of supervision.Detections; tests/integrations has the library itself."""
    monkeypatch.setitem(sys.modules, "supervision", types.SimpleNamespace(Detections=dict))
    result = BOX_MASKS[0].to_supervision()
    assert result.keys() == {"xyxy", "mask", "confidence", "class_id", "data"}
    np.testing.assert_array_equal(result["xyxy"], BOXES)
    np.testing.assert_array_equal(result["mask"], BOX_MASKS[1])
    np.testing.assert_array_equal(result["confidence"], SCORES)
    np.testing.assert_array_equal(result["class_id"], LABELS)
    assert result["data"]["class_name"].tolist() == list(NAMES)
    assert NO_MASKS.to_supervision()["mask"] is None


@pytest.mark.parametrize("names", [("eye", "ear"), ("eye", "eye"), None])
def test_keypoints_are_columns_of_tables(monkeypatch, names):
    """The columns that pandas gets; tests/integrations has the library itself."""
    monkeypatch.setitem(sys.modules, "pandas", types.SimpleNamespace(DataFrame=dict))
    points = np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    skeleton = None if names is None else Skeleton(names)
    pose = Detections(
        BOXES[:2], SCORES[:2], LABELS[:2], NAMES[:2], (HEIGHT, WIDTH), keypoints=points, skeleton=skeleton
    )
    table = pose.to_pandas()
    first, second = names if names == ("eye", "ear") else ("keypoint_0", "keypoint_1")
    assert [*table][-6:] == [f"{name}_{part}" for name in (first, second) for part in ("x", "y", "score")]
    assert table[f"{second}_y"].tolist() == [4, 10]


def test_no_detections():
    assert len(NONE) == 0
    assert NONE.to_coco(1) == []
    assert json.loads(NONE.to_json()) == {"image_size": [HEIGHT, WIDTH], "detections": []}
    empty = BOX_MASKS[0].above(2)
    assert empty.masks.shape == (0, HEIGHT, WIDTH)
    assert empty.rle() == []


def test_empty_lists_are_no_detections():
    for boxes in ([], np.zeros((0, 4))):
        assert Detections(boxes, [], [], (), (10, 12)).boxes.shape == (0, 4)
    with pytest.raises(ValueError, match="boxes, scores and labels must be"):
        Detections(np.zeros((0, 5)), [], [], (), (10, 12))


def test_labels_are_integers():
    assert Detections([[1, 2, 5, 8]], [0.9], [1.0], ("a",), (10, 12)).labels.tolist() == [1]
    for label in (1.7, np.nan, np.inf):
        with pytest.raises(ValueError, match="Detections: labels must be integers, got"):
            Detections([[1, 2, 5, 8]], [0.9], [label], ("a",), (10, 12))


def test_the_id_of_an_image_may_be_numpys():
    entries = NO_MASKS.to_coco(np.int64(3))
    assert json.loads(json.dumps(entries)) == NO_MASKS.to_coco(3)


def test_classes_and_maps_have_the_labels_of_their_names():
    classes = Classes.of_scores(np.array([0.2, 0.8]), ("a", "b"), (4, 5))
    assert (classes.top(1).names, len(classes.top(0)), len(classes.top(9))) == (("b",), 0, 2)
    with pytest.raises(ValueError, match="Classes: count must not be negative, got -1"):
        classes.top(-1)
    map = SegmentationMap(np.array([[0, 1, 1]], np.uint8), ("a", "b", "c"))
    assert [map.mask(label).sum() for label in (0, np.int64(1), "b", 2)] == [1, 2, 2, 0]
    for label in (3, 7, -1):
        with pytest.raises(ValueError, match=f"labels of classes are from 0 to 2, got {label}"):
            map.mask(label)


def test_missing_libraries_are_named(monkeypatch):
    for name in ("faster_coco_eval.core", "pandas", "supervision"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'mmort\[predict\]'"):
        BOX_MASKS[0].rle()
    with pytest.raises(ImportError, match="pip install supervision"):
        NO_MASKS.to_supervision()
    with pytest.raises(ImportError, match="pip install pandas"):
        NO_MASKS.to_pandas()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((BOXES[:4], SCORES, LABELS, NAMES), r"must be \(N, 4\), \(N,\) and \(N,\), got"),
        ((BOXES[:, :3], SCORES, LABELS, NAMES), "must be"),
        ((BOXES, SCORES, LABELS, NAMES[:4]), "as many as boxes, 5"),
        ((BOXES, SCORES, LABELS, NAMES, (1, 1), ImageMasks([], [])), "as many as boxes, 5"),
    ],
)
def test_shapes_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        Detections(*arguments[:4], *(arguments[4:] or [(1, 1)]))
    with pytest.raises(ValueError, match="BoxMasks: probabilities and boxes"):
        BoxMasks(PROBABILITIES, BOXES[:4])


def test_boxes_by_width_and_height_and_missing_categories():
    detections = Detections([[1, 2, 5, 8], [0, 0, 4, 4]], [0.9, 0.4], [1, 0], ("b", "a"), (10, 12))
    assert detections.xywh.tolist() == [[1, 2, 4, 6], [0, 0, 4, 4]]
    assert detections[:0].xywh.shape == (0, 4)
    assert [len(detection) for detection in detections] == [1, 1]
    for categories in ([17], {0: 17}):
        with pytest.raises(ValueError, match="category_ids must have an id for each label, got none for 1"):
            detections.to_coco(1, categories)


def test_plot_and_save(tmp_path):
    image = np.full((HEIGHT, WIDTH, 3), 90, np.uint8)
    write_image(tmp_path / "image.png", image)
    drawn = draw(image, NO_MASKS, scale=2)
    assert not np.array_equal(drawn, draw(image, NONE, scale=2))
    np.testing.assert_array_equal(NO_MASKS.plot(tmp_path / "image.png", scale=2), drawn)
    for other in (image[..., 0], image[..., :1], np.dstack([image, image[..., 0]]), image[..., ::-1]):
        np.testing.assert_array_equal(NO_MASKS.plot(other, scale=2), drawn)
    photo = Image.open(tmp_path / "image.png")
    with pytest.raises(TypeError, match=r"^draw: image must be .*, got PngImageFile; pass np\.asarray\("):
        NO_MASKS.plot(photo)
    np.testing.assert_array_equal(NO_MASKS.plot(np.asarray(photo.convert("RGB"))[..., ::-1], scale=2), drawn)
    NO_MASKS.save(tmp_path / "annotated.png", image, scale=2)
    np.testing.assert_array_equal(read_image(tmp_path / "annotated.png"), drawn)
    with pytest.raises(ValueError, match="OpenCV writes no format with the suffix"):
        NO_MASKS.save(tmp_path / "annotated.what", image)
    photo = tmp_path / "annotated.png"
    with pytest.raises(ValueError, match=r"^save: the annotated image would replace .*annotated\.png"):
        NO_MASKS.save(tmp_path / "." / "annotated.png", photo)
