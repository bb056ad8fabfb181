"""Large pictures, cut into windows."""

import contextlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import mmort
from mmort import Detections, Predictor
from mmort.predict import MaskFormat, Preprocessing, Windows, draw, predict_windows, write_image
from mmort.predict.windows import merged
from tests.predict import aerial_scene
from tests.predict.aerial_scene import ShipDetector


class BrightPixels:
    """A detector of bright pixels, with a box around each; with `rotated`, the box is turned."""

    input_shape = None, None, None
    mask_format = None

    def __init__(self, rotated):
        self.rotated, self.sizes = rotated, []

    def __call__(self, input, img_shape):
        self.sizes.append(input.shape)
        dets = np.zeros((len(input), 9, 6 if self.rotated else 5), np.float32)
        labels = np.full((len(input), 9), -1)
        for image, row, label in zip(input, dets, labels, strict=True):
            for index, (y, x) in enumerate(np.argwhere(image[0])):
                box = (x, y, 6, 2, 0.5) if self.rotated else (x - 3, y - 3, x + 3, y + 3)
                row[index], label[index] = (*box, image[0, y, x] / 255), 0
        return dets, labels


def picture():
    """Three bright pixels: alone, where two windows overlap, and where four do."""
    image = np.zeros((100, 150, 3), np.uint8)
    image[10, 20], image[12, 55], image[55, 52] = 250, 200, 150
    return image


def detect(rotated, batch_size=1, **arguments):
    network = BrightPixels(rotated)
    predictor = Predictor(network, classes=("star",), preprocessing=Preprocessing(), score_threshold=0)
    return predict_windows(predictor, picture(), Windows(60, 20), batch_size, **arguments), network


def test_positions():
    assert Windows(60, 20).positions(100, 150) == [(y, x) for y in (0, 40) for x in (0, 40, 80, 90)]
    assert Windows(60, 20).positions(60, 30) == [(0, 0)]
    assert Windows(60, 0).positions(61, 120) == [(0, 0), (0, 60), (1, 0), (1, 60)]


@pytest.mark.parametrize(("size", "overlap", "name"), [(0, 0, "size"), (10, 10, "overlap"), (10, -1, "overlap")])
def test_windows_refuse(size, overlap, name):
    with pytest.raises(ValueError, match=f"Windows: {name} must be"):
        Windows(size, overlap)


@pytest.mark.parametrize("rotated", [False, True])
@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_objects_in_several_windows_are_found_once(rotated, batch_size):
    steps = []
    detections, network = detect(rotated, batch_size, progress=lambda done, total: steps.append((done, total)))
    np.testing.assert_allclose(detections.scores, np.array([250, 200, 150]) / 255, rtol=1e-6)
    centres = [(20, 10), (55, 12), (52, 55)]
    if rotated:
        np.testing.assert_allclose(detections.rotated_boxes, [(x, y, 6, 2, 0.5) for x, y in centres], rtol=1e-6)
    else:
        np.testing.assert_allclose(detections.boxes, [(x - 3, y - 3, x + 3, y + 3) for x, y in centres])
    assert detections.image_size == (100, 150)
    assert steps == [(done, 8) for done in range(1, 9)]
    assert max(size[0] for size in network.sizes) == min(batch_size, 8)


class BrightCorner:
    """A detector of one object in the upper left corner of each image, with a mask of its left half."""

    input_shape = None, None, None
    mask_format = MaskFormat()

    def __call__(self, input, img_shape):
        dets = np.tile(np.array([[[0, 0, 8, 4, 0.9]]], np.float32), (len(input), 1, 1))
        masks = np.tile(np.array([[[[1, 0]]]], np.float32), (len(input), 1, 1, 1))
        return dets, np.zeros((len(input), 1), np.int64), masks


def test_masks_lie_in_the_whole_picture():
    predictor = Predictor(BrightCorner(), classes=("star",), preprocessing=Preprocessing(), score_threshold=0)
    detections = predict_windows(predictor, picture(), Windows(100, 0))
    assert detections.boxes.tolist() == [[0, 0, 8, 4], [50, 0, 58, 4]]
    rows, columns = np.nonzero(detections.mask(1))
    assert (rows.min(), rows.max(), columns.min(), columns.max()) == (0, 3, 50, 53)


def test_only_boxes_of_one_class_are_merged():
    boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [1, 1, 11, 11]]
    detections = Detections(boxes, [0.5, 0.9, 0.7], [0, 0, 1], ("a", "a", "b"), (20, 20))
    together = merged([detections[:2], detections[2:]])
    assert (together.names, together.scores.tolist()) == (("a", "b"), [pytest.approx(0.9), pytest.approx(0.7)])


def test_a_small_picture_is_one_window():
    network = BrightPixels(False)
    predictor = Predictor(network, classes=("star",), preprocessing=Preprocessing(), score_threshold=0)
    detections = predict_windows(predictor, picture(), Windows(400, 100))
    assert len(detections) == 3
    assert network.sizes == [(1, 3, 100, 150)]


@pytest.mark.parametrize(
    ("dtypes", "count", "bands"), [(["uint8"] * 4, 4, (3, 2, 1)), (["uint8"], 1, (1, 1, 1)), (["float32"] * 3, 3, None)]
)
def test_files_are_read_window_by_window(tmp_path, monkeypatch, dtypes, count, bands):
    """See tests/integrations/test_rasterio.py for real files."""
    monkeypatch.chdir(tmp_path)
    write_image("huge.tif", picture())
    reads = []

    class File:
        height, width, driver = 100, 150, "GTiff"

        def __enter__(self):
            return self

        def __exit__(self, *_):
            reads.append("closed")

        def tags(self, *_, ns):
            return {}

        def read(self, indexes, window):
            (top, bottom), (left, right) = window
            reads.append(indexes)
            return np.moveaxis(picture()[top:bottom, left:right], 2, 0)

    File.dtypes, File.count = dtypes, count
    kinds = ("gray",) if count == 1 else ("red", "green", "blue", "alpha")[:count]
    File.colorinterp = [SimpleNamespace(name=kind) for kind in kinds]

    class Env(contextlib.nullcontext):
        def __init__(self, **settings):
            super().__init__()

    warning = SimpleNamespace(NotGeoreferencedWarning=UserWarning)
    monkeypatch.setitem(
        sys.modules, "rasterio", SimpleNamespace(open=lambda path, driver: File(), errors=warning, Env=Env)
    )
    predictor = Predictor(BrightPixels(False), classes=("star",), preprocessing=Preprocessing(), score_threshold=0)
    if bands is None:
        with pytest.raises(ValueError, match=r"huge.tif: must have 1, 3 or 4 bands of uint8 .* got 3 of float32"):
            predict_windows(predictor, "huge.tif", Windows(60, 20))
        return
    assert len(predict_windows(predictor, "huge.tif", Windows(60, 20))) == 3
    assert reads == [bands] * 8 + ["closed"]


def test_rasterio_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "rasterio", None)
    predictor = Predictor(BrightPixels(False), classes=("star",), preprocessing=Preprocessing(), score_threshold=0)
    with pytest.raises(ImportError, match=r"needs rasterio: pip install 'mmort\[geo\]'"):
        predict_windows(predictor, "huge.tif", Windows(60, 20))


def test_ships_of_an_aerial_scene():
    """Ships that a window cuts are found in its neighbour, and those in both are found once."""
    image, boxes = aerial_scene.scene()
    predictor = Predictor(ShipDetector(), classes=("ship",), preprocessing=Preprocessing(), score_threshold=0)
    detections = predict_windows(predictor, image, Windows(300, 100), 4)
    assert len(detections) == len(boxes)
    overlaps = mmort.box_iou_rotated(detections.rotated_boxes, boxes)
    assert overlaps.max(1).min() > 0.7
    assert len(set(overlaps.argmax(1).tolist())) == len(boxes)
    hulls = (image[:, :, 0] > 160).sum()
    outlines = (draw(image, detections) != image).any(2)
    assert outlines.sum() > 0.3 * hulls
