"""Data sets of maps of labels, read as MMSegmentation reads them, and of classified images."""

import json

import numpy as np
import pytest
from PIL import Image

from mmort.evaluate import ClassificationDataset, Evaluation, testing
from mmort.evaluate import TestOptions as Options
from mmort.evaluate.segmentation import SegmentationDataset, SegmentationSettings
from mmort.images import read_label_map
from mmort.predict import SegmentationMap

LABELS = np.zeros((9, 11), np.uint8)
LABELS[2:5, 3:7] = 1


def with_palette(labels):
    image = Image.fromarray(labels)
    image.putpalette([200, 10, 30, 255, 255, 255])
    return image


@pytest.mark.parametrize("suffix", [".png", ".tif"])
@pytest.mark.parametrize(
    "image",
    [Image.fromarray(LABELS), Image.fromarray(LABELS.astype(bool)), with_palette(LABELS)],
    ids=["grey", "one_bit", "palette"],
)
def test_labels_of_two_classes(tmp_path, image, suffix):
    image.save(path := tmp_path / f"map{suffix}")
    labels = read_label_map(path)
    assert labels.dtype == np.uint8
    np.testing.assert_array_equal(labels, LABELS)


@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (1, 1)])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_maps_of_a_line(tmp_path, shape, dtype):
    expected = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    Image.fromarray(expected).save(path := tmp_path / "map.png")
    np.testing.assert_array_equal(read_label_map(path), expected)


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_sixteen_bits(tmp_path, suffix):
    expected = np.arange(300, dtype=np.uint16).reshape(15, 20)
    Image.fromarray(expected).save(path := tmp_path / f"map{suffix}")
    np.testing.assert_array_equal(read_label_map(path), expected)


def test_maps_that_are_none(tmp_path):
    """Fractions, colours, and files that end early."""
    Image.fromarray(np.zeros((4, 5), np.float32)).save(tmp_path / "map.tif")
    with pytest.raises(ValueError, match=r"map.tif: a map of labels must have levels of up to 16 bits, got float32"):
        read_label_map(tmp_path / "map.tif")
    Image.fromarray(np.zeros((4, 5, 3), np.uint8)).save(tmp_path / "map.png")
    with pytest.raises(ValueError, match=r"map.png: a map of labels must have one channel, got \[4, 5, 3\]"):
        read_label_map(tmp_path / "map.png")
    content = (tmp_path / "map.tif").read_bytes()
    for length in (0, 9, 25, len(content) // 2):
        (tmp_path / "map.tif").write_bytes(content[:length])
        with pytest.raises(ValueError, match=r"map.tif: (not an image that Pillow reads|the header states no size)"):
            read_label_map(tmp_path / "map.tif")


def dataset(folder, labels, names, **settings):
    (folder / "images").mkdir(parents=True)
    (folder / "maps").mkdir()
    Image.fromarray(np.zeros((*labels.shape, 3), np.uint8)).save(folder / "images" / "a.jpg")
    Image.fromarray(labels).save(folder / "maps" / "a.png")
    settings = SegmentationSettings(**settings)
    return SegmentationDataset(folder / "images", folder / "maps", names, settings=settings)


def figures(data, labels):
    evaluation = Evaluation(data, ["mIoU"])
    evaluation.add(data.images[0], SegmentationMap(labels, data.classes))
    return evaluation.metrics().figures


def test_a_foreground_that_is_not_found(tmp_path):
    data = dataset(tmp_path, LABELS.astype(bool), ("background", "vessel"))
    assert figures(data, np.zeros_like(LABELS))["mIoU"] == pytest.approx(50 * (99 - 12) / 99)
    assert figures(data, LABELS)["mIoU"] == 100


def test_figures_that_are_not_defined(tmp_path):
    """Where all pixels are ignored; JSON has no NaN."""
    data = dataset(tmp_path, np.full((4, 5), 255, np.uint8), ("a", "b"))
    options = Options(metrics=("mIoU",), metrics_json=tmp_path / "metrics.json")
    found = data.result_of(data.images[0], SegmentationMap(np.zeros((4, 5), np.uint8), ("a", "b")))
    result = testing._scored(data, [found], options, {}, None, "a")
    assert np.isnan(result.metrics.figures["mIoU"])
    figures = json.loads((tmp_path / "metrics.json").read_text(), parse_constant=pytest.fail)
    assert figures == {"aAcc": 0, "mIoU": None, "mAcc": None}


def test_names_of_classes(tmp_path):
    with pytest.raises(TypeError, match=r"evaluate: classes must be a sequence of names, such as .* got 'ab'"):
        dataset(tmp_path, LABELS, "ab")
    assert dataset(tmp_path / "array", LABELS, np.array(["a", "b"])).classes == ("a", "b")


def test_more_than_256_classes(tmp_path):
    """A map that `SegmentationMap.to_png` writes is the truth of itself."""
    names, labels = tuple(map(str, range(301))), np.arange(300, dtype=np.uint16).reshape(15, 20)
    data = dataset(tmp_path, labels, names)
    SegmentationMap(labels, names).to_png(tmp_path / "maps" / "a.png")
    assert figures(data, labels)["aAcc"] == 100
    np.testing.assert_array_equal(data.truth(0), labels)
    reduced = dataset(tmp_path / "reduced", labels, names, reduce_zero_label=True).truth(0)
    np.testing.assert_array_equal(reduced.ravel(), [255, *range(254), 255, *range(255, 299)])
    chosen = dataset(tmp_path / "chosen", labels, ("b", "a"), classes=("a", "b", "c")).truth(0)
    np.testing.assert_array_equal(chosen.ravel(), [1, 0, 255, *range(3, 300)])


def test_hidden_folders_are_no_classes(tmp_path):
    for name in (".git", "cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(LABELS).save(tmp_path / name / "a.png")
    for names in (None, ["cat", "dog"], np.array(["cat", "dog"])):
        dataset = ClassificationDataset(tmp_path, classes=names)
        assert (dataset.classes, dataset.labels) == (("cat", "dog"), (0, 1))
