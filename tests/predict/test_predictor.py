"""Predictor: pictures of all kinds in, detections in their pixels out, with any network."""

import copy
import pickle
import re
import subprocess
import sys
import threading
import time
import tracemalloc
import warnings

import cv2
import numpy as np
import pytest

import mmort.predict
from mmort import Predictor
from mmort.demo import IMAGES, MODEL
from mmort.predict import (
    FixedSizeWarning,
    LeftOutWarning,
    MaskFormat,
    OnnxRuntime,
    PredictOptions,
    Preprocessing,
    list_images,
    paste_masks,
    read_image,
)
from tests import old_export
from tests.predict import tiny_detector

CLASSES = tuple("abc")
PREPROCESSING = Preprocessing(size=(32, 24), size_divisor=8)


class Network:
    """A detector of the brightest pixel of each image; its score is the pixel's share of 255."""

    input_shape = None, None, None
    mask_format = None

    def __init__(self, change=lambda dets, labels: (dets, labels)):
        self.change, self.calls = change, []

    def __call__(self, input, img_shape):
        self.calls.append((input.shape, img_shape.tolist()))
        dets, labels = np.zeros((len(input), 3, 5), np.float32), np.full((len(input), 3), -1)
        for image, (height, width), row, label in zip(input, img_shape, dets, labels, strict=True):
            part = image[0, :height, :width]
            y, x = np.unravel_index(part.argmax(), part.shape)
            row[1], label[1] = (x, y, x + 1, y + 1, part.max() / 255), 2
        return self.change(dets, labels)


def predictor(network=None, **arguments):
    settings = {"classes": CLASSES, "preprocessing": PREPROCESSING, "score_threshold": 0}
    return Predictor(network or Network(), **settings | arguments)


def picture(level, height=24, width=32, position=(5, 7)):
    image = np.zeros((height, width, 3), np.uint8)
    image[position] = level
    return image


LEVELS = [10, 250, 30, 200, 50]


def levels(outcomes):
    return [round(float(result.scores[0]) * 255) for result in outcomes]


def test_results_are_in_the_pixels_of_the_picture():
    image = np.zeros((48, 128, 3), np.uint8)  # resized to 12 x 32, padded to 16 x 32
    image[20:24, 40:44] = 255
    detections = predictor()(image)
    assert detections.boxes.tolist() == [[40, 20, 44, 24]]
    assert (detections.labels.tolist(), detections.names, detections.image_size) == ([2], ("c",), (48, 128))
    assert (detections.boxes.dtype, detections.scores.dtype, detections.labels.dtype) == (
        np.float32,
        np.float32,
        np.int64,
    )


def test_offset_of_a_centred_picture():
    predict = Predictor(Network(), preprocessing=Preprocessing(pad_or=31), score_threshold=0)
    detections = predict(picture(200))
    assert detections.boxes.tolist() == [[7, 5, 8, 6]]
    assert detections.names == ("2",)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5, 8])
def test_batches_keep_the_order(batch_size):
    network = Network()
    detections = list(predictor(network).predict([picture(level) for level in LEVELS], batch_size))
    assert levels(detections) == LEVELS
    assert [shape[0] for shape, _ in network.calls] == [min(batch_size, 5 - start) for start in range(0, 5, batch_size)]


@pytest.mark.parametrize("model", [b"model.onnx", None])
def test_models_of_another_type(model):
    with pytest.raises(TypeError, match=f"network must be a path, a Network or Ray, got {type(model).__name__}$"):
        Predictor(model, preprocessing=PREPROCESSING, score_threshold=0)


@pytest.mark.parametrize("image", [None, [[[0, 0, 0]]], memoryview(b"")])
def test_pictures_of_another_type(image):
    with pytest.raises(TypeError, match=f"image must be a numpy array or a path, got {type(image).__name__}"):
        predictor()(image)


def test_pictures_that_are_easily_made_arrays():
    with pytest.raises(TypeError, match=re.escape("pass bytes(image) if it is a file's content")):
        predictor()(bytearray(b"x"))
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=re.escape("pass image.numpy(), (H, W, 3) of uint8 in blue, green, red")):
        predictor()(torch.zeros(8, 8, 3, dtype=torch.uint8))


def test_a_picture_that_is_larger_than_the_memory():
    """OpenCV itself crashes."""
    with pytest.raises(MemoryError):
        predictor()(np.broadcast_to(np.uint8(0), (2**24, 2**24, 3)))


def test_sizes_of_batches_are_integers():
    with pytest.raises(TypeError, match=r"predict: batch_size must be an integer, got 1\.5"):
        predictor().predict([picture(10)], 1.5)


def test_batches_take_no_memory_for_pictures_that_there_are_not():
    """An iterator may end long before a batch is full."""
    tracemalloc.start()
    assert levels(predictor().predict((picture(level) for level in LEVELS), batch_size=10**7)) == LEVELS
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize("parallel", [1, 3])
def test_closing_does_not_wait_for_a_blocked_iterator(parallel):
    blocked = threading.Event()

    def pictures():
        yield from map(picture, LEVELS)
        blocked.wait(60)
        yield picture(1)

    predict = Predictor(Network(), classes=CLASSES, preprocessing=PREPROCESSING, score_threshold=0)
    predict._parallel = parallel
    detections = predict.predict(pictures(), batch_size=2)
    next(detections)
    start = time.monotonic()
    detections.close()
    assert time.monotonic() - start < 10
    blocked.set()


def test_a_process_ends_although_an_iterator_is_blocked():
    code = f"""if True:
        import threading
        from mmort.predict import Predictor
        def pictures():
            yield {str(IMAGES[0])!r}
            threading.Event().wait()
        print(len(next(Predictor({str(MODEL)!r}).predict(pictures()))))"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_batches_are_padded_to_a_common_size():
    network = Network()
    images = [picture(100), picture(150, 32, 24), picture(200, 3, 30, (1, 2))]
    result = list(predictor(network).predict(images, 3))
    assert network.calls == [((3, 3, 32, 32), [[24, 32], [32, 24], [3, 32]])]
    assert [detections.image_size for detections in result] == [(24, 32), (32, 24), (3, 30)]
    for image, detections in zip(images, result, strict=True):
        np.testing.assert_allclose(detections.boxes, predictor()(image).boxes)


@pytest.mark.parametrize("shape", [(None, 24, 40), (2, None, None), (4, 32, 40)])
def test_files_of_fixed_size_get_padded_batches(shape):
    network = Network()
    network.input_shape = batch, height, width = shape
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert levels(predictor(network).predict([picture(level) for level in LEVELS], 3)) == LEVELS
    assert [warning.category for warning in caught] == [FixedSizeWarning] * (height is not None)
    for (number, _, rows, columns), img_shape in network.calls:
        assert (batch or number, height or 24, width or 32) == (number, rows, columns)
        assert len(img_shape) == number


def test_the_price_of_a_fixed_size_is_told_once():
    network = Network()
    network.input_shape = 1, 48, 64
    detect = predictor(network)
    with pytest.warns(FixedSizeWarning) as caught:
        assert [len(detect(picture(level))) for level in LEVELS] == [1] * len(LEVELS)
    assert [str(warning.message) for warning in caught] == [
        "images of 24 x 32 are padded to 48 x 64, the only size that the model takes, which changes what is detected "
        "and takes 4.0 times as long; mmort export makes files that take all sizes"
    ]


def test_a_picture_that_does_not_fit_is_refused():
    network = Network()
    network.input_shape = 1, 24, 32
    with pytest.raises(ValueError, match="image is 32 x 24, but the model takes 24 x 32 only; export it without"):
        predictor(network)(picture(9, 32, 24))
    images = [picture(10), picture(20, 32, 24), picture(30)]
    first, second, third = predictor(network).predict(images, 3, return_exceptions=True)
    assert levels([first, third]) == [10, 30]
    assert isinstance(second, ValueError)


# ---- what a network returns ------------------------------------------------------------------------------------


def rows(*scores, labels=None, dtype=np.int64):
    """Return a change of the network's output to one image with these scores."""
    dets = np.array([[[x, 0, x + 5, 5, score] for x, score in enumerate(scores)]], np.float32).reshape(1, -1, 5)
    labels = np.array([labels or [0] * len(scores)], dtype).reshape(1, -1)
    return lambda *_: (dets, labels)


def test_unused_rows_and_low_scores_are_left_out_and_the_rest_sorted():
    change = rows(0.5, 0.9, 0.0, 0.1, np.nan, 0.9, labels=[1, 2, 0, 1, 1, -1], dtype=np.float32)
    detections = predictor(Network(change), score_threshold=0.5)(picture(1))
    assert detections.boxes[:, 0].tolist() == [1, 0]
    assert detections.labels.tolist() == [2, 1]
    assert len(predictor(Network(change))(picture(1))) == 3


def test_no_detections():
    detections = predictor(Network(rows()))(picture(1))
    assert len(detections) == 0
    assert not detections.has_masks


def test_thousands_of_detections():
    scores = np.random.default_rng(0).random(5000, np.float32)
    detections = predictor(Network(rows(*scores)))(picture(1))
    np.testing.assert_array_equal(detections.scores, -np.sort(-scores))


def test_boxes_that_are_not_finite_are_left_out_with_a_warning():
    dets = np.array([[[0, 0, 9, 9, 0.9], [0, np.nan, 9, 9, 0.8], [0, 0, np.inf, 9, 0.7]]], np.float32)
    predict = predictor(Network(lambda *_: (dets, np.zeros((1, 3), int))))
    with pytest.warns(RuntimeWarning, match="2 of 3 detections are left out"):
        assert predict(picture(1)).scores.tolist() == [np.float32(0.9)]


def test_labels_without_a_name():
    change = rows(0.9, labels=[3])
    with pytest.raises(ValueError, match="label 3, but there are names for 3 classes only"):
        predictor(Network(change))(picture(1))
    assert Predictor(Network(change), preprocessing=PREPROCESSING, score_threshold=0)(picture(1)).names == ("3",)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(1, 4, 5)], r"outputs must be dets \(1, K, 5 or 6\), labels \(1, K\), or with masks \(1, K, h, w\), or"),
        (
            [(4, 5), (4,)],
            r", semantic \(1, S, h, w\), or with keypoints \(1, K, 3 P\), got \[\(4, 5\)",
        ),
        ([(1, 4, 5)] * 4, "outputs must be dets"),
        ([(1, 4, 7), (1, 4)], r"dets must be \(1, K, 5 or 6\), got \(1, 4, 7\)"),
        ([(1, 4, 5), (1, 3)], r"labels must be \(1, 4\), got \(1, 3\)"),
        ([(2, 4, 5), (2, 4)], r"dets must be \(1, K, 5 or 6\), got \(2, 4, 5\)"),
        ([(1, 4, 5), (1, 4), (1, 3, 7, 7)], r"masks must be \(1, 4, h, w\), got \(1, 3, 7, 7\)"),
        ([(1, 4, 5), (1, 4), (1, 4, 7, 7), (2, 1, 5, 5)], r"semantic must be \(1, S, h, w\), got \(2, 1, 5, 5\)"),
    ],
)
def test_outputs_of_other_shapes(shapes, message):
    network = Network(lambda *_: [np.zeros(shape, np.float32) for shape in shapes])
    with pytest.raises(ValueError, match=message):
        predictor(network)(picture(1))


@pytest.mark.parametrize("mask_format", [None, MaskFormat("box", 0.3)])
def test_masks_over_boxes(mask_format, rng):
    masks, boxes = rng.random((1, 2, 7, 6), np.float32), np.array([[2, 3, 20, 21], [-4, 0, 9, 50]], np.float32)
    dets = np.concatenate([boxes, [[0.5], [0.9]]], 1, dtype=np.float32)[None]
    network = Network(lambda *_: (dets, np.zeros((1, 2), int), masks))
    network.mask_format = mask_format
    detections = predictor(network)(picture(1, 48, 64))
    assert detections.boxes.tolist() == (boxes[::-1] * 2).tolist()
    expected = paste_masks(masks[0, ::-1], detections.boxes, 48, 64, mask_format.threshold if mask_format else 0.5)
    np.testing.assert_array_equal(detections.masks, expected)


@pytest.mark.parametrize("dtype", [np.float32, bool])
def test_masks_of_the_input_are_masks_of_the_picture(dtype):
    masks = np.zeros((1, 1, 24, 32), dtype)
    masks[0, 0, 4:8, 2:5] = 1
    dets = np.array([[[40, 0, 50, 9, 0.9]]], np.float32)  # in the padding
    detections = predictor(Network(lambda *_: (dets, np.zeros((1, 1), int), masks)))(picture(1, 48, 64))
    assert detections.masks.nonzero()[1].tolist() == [row for row in range(8, 16) for _ in range(6)]
    assert detections.to_coco(1)[0]["bbox"] == [80, 0, 20, 18]


# ---- pictures --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "image"),
    [
        ("one_pixel.png", np.full((1, 1, 3), 200, np.uint8)),
        ("long.png", np.full((1, 500, 3), 200, np.uint8)),
        ("gray.png", picture(200)[:, :, 0]),
        ("alpha.png", np.dstack([picture(200), np.zeros((24, 32), np.uint8)])),
        ("deep.png", picture(200).astype(np.uint16) * 256),
        ("deep_gray.tif", picture(200)[:, :, 0].astype(np.uint16) * 256),
        ("ä b.JPG", np.full((24, 32, 3), 200, np.uint8)),
    ],
)
def test_files(name, image, tmp_path):
    path = tmp_path / name
    path.write_bytes(cv2.imencode(path.suffix.lower(), image)[1])
    predict = predictor()
    detections = predict(path)
    assert detections.image_size == image.shape[:2]
    assert len(detections) == 1
    for same in (str(path), read_image(path), path.read_bytes()):
        np.testing.assert_array_equal(predict(same).boxes, detections.boxes)
    assert len(list(predict.predict(tmp_path))) == 1


def test_folders_and_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b.png", "a.JPG", "note.txt", "sub/c.tiff", "[x].png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.warns(
        LeftOutWarning, match=r"^\.: left out sub; folders below it are searched with recursive=True \(-r\)$"
    ):
        assert [str(path) for path in list_images(".")] == ["[x].png", "a.JPG", "b.png"]
    assert [str(path) for path in list_images(".", recursive=True)] == ["[x].png", "a.JPG", "b.png", "sub/c.tiff"]
    assert [str(path) for path in list_images("**/*.*")] == ["[x].png", "a.JPG", "b.png", "sub/c.tiff"]
    assert [str(path) for path in list_images("b.png", "*.png", "[x].png", "none.jpg")] == [
        "b.png",
        "[x].png",
        "none.jpg",
    ]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"no image in the folder empty; images .* end in \.avif, \.bmp.*webp$"):
        list_images("empty")
    (tmp_path / "empty" / "sub").mkdir()
    with pytest.raises(ValueError, match=r"webp, and the folders below it are searched with recursive=True \(-r\)$"):
        list_images("empty")
    with pytest.raises(FileNotFoundError, match="no such file, folder or pattern: ''"):
        list_images("b.png", "")
    with pytest.raises(ValueError, match=r"no image matches \*\.gif"):
        predictor().predict("*.gif")


def test_images_that_are_left_out_are_named(tmp_path):
    for name in ("a.png", "b.HEIC", "c.txt", "d.mp4", "e.cr2", "f.NEF", ".hidden/g.png", "labels/a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "link").symlink_to(".hidden")
    (tmp_path / "g.arw").write_bytes(b"")
    with pytest.warns(LeftOutWarning) as caught:
        assert [path.name for path in list_images(tmp_path)] == ["a.png"]
    assert [str(warning.message) for warning in caught] == [
        f"{tmp_path}: left out b.HEIC, e.cr2, f.NEF and 1 more; OpenCV reads no images of this kind",
        f"{tmp_path}: left out d.mp4; a video must be the only source",
    ]
    assert {warning.filename for warning in caught} == {__file__}
    for name in ("d.mp4", "e.cr2", "f.NEF", "g.arw"):
        (tmp_path / name).unlink()
    with pytest.warns(LeftOutWarning, match=r": left out b\.HEIC; OpenCV reads no images of this kind$"):
        list_images(tmp_path / "*")
    (tmp_path / "a.png").unlink()
    with pytest.raises(ValueError, match=r"; b\.HEIC \(OpenCV reads no images of this kind\); images are"):
        list_images(tmp_path)


@pytest.mark.parametrize("shape", [(8, 9), (8, 9, 3)])
def test_an_array_is_not_several_images(shape):
    """Its rows would be."""
    with pytest.raises(ValueError, match=rf"images must be several, got an array {re.escape(str([*shape]))}; call the"):
        predictor().predict(np.zeros(shape, np.uint8))


def test_a_folder_or_a_video_is_no_image(tmp_path):
    with pytest.raises(IsADirectoryError, match=r" is a folder; \.predict\(FOLDER\) takes its images$"):
        predictor()(tmp_path)
    for call in (predictor(), predictor().predict):
        with pytest.raises(ValueError, match=r"^Predictor: clip\.mp4 is a video; mmort\.predict\.predict\("):
            call("clip.mp4")


def broken(tmp_path):
    """Return three pictures, of which the second is broken, and a fourth that does not exist."""
    (tmp_path / "broken.png").write_bytes(cv2.imencode(".png", picture(200))[1][:40])
    return [picture(10), tmp_path / "broken.png", picture(30), tmp_path / "none.png"]


@pytest.mark.parametrize("batch_size", [1, 2, 4, 7])
def test_a_broken_picture_has_its_own_exception(batch_size, tmp_path):
    outcomes = list(predictor().predict(broken(tmp_path), batch_size, return_exceptions=True))
    assert levels([outcomes[0], outcomes[2]]) == [10, 30]
    assert "broken.png: not an image" in str(outcomes[1])
    assert isinstance(outcomes[3], FileNotFoundError)
    raising = predictor().predict(broken(tmp_path), batch_size)
    assert levels([next(raising)]) == [10]
    with pytest.raises(ValueError, match=r"broken\.png"):
        next(raising)


def test_a_picture_on_which_the_network_fails():
    def change(dets, labels):
        if any(round(float(score) * 255) == 13 for score in dets[:, 1, 4]):
            raise RuntimeError("13")
        return dets, labels

    outcomes = list(
        predictor(Network(change)).predict(map(picture, (10, 13, 30)), batch_size=3, return_exceptions=True)
    )
    assert levels(outcomes[::2]) == [10, 30]
    assert isinstance(outcomes[1], RuntimeError)


def test_an_iterator_that_fails_loses_nothing():
    def images():
        yield from map(picture, (10, 20, 30))
        raise KeyError("camera")

    detections = predictor().predict(images(), 2, return_exceptions=True)
    assert levels([next(detections) for _ in range(3)]) == [10, 20, 30]
    with pytest.raises(KeyError, match="camera"):
        next(detections)


def test_missing_opencv_is_not_the_pictures_fault(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(ImportError, match=r"needs OpenCV for images: pip install 'mmort\[predict\]'"):
        next(predictor().predict([IMAGES[0]], return_exceptions=True))


# ---- overlap ---------------------------------------------------------------------------------------------------


def threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("mmort")]


def test_the_next_pictures_are_prepared_while_the_network_runs():
    running, prepared = threading.Event(), threading.Event()

    def images():
        yield picture(10)
        assert running.wait(10)
        prepared.set()
        yield picture(20)

    def change(dets, labels):
        running.set()
        assert prepared.wait(10)
        return dets, labels

    assert levels(predictor(Network(change)).predict(images())) == [10, 20]


@pytest.mark.parametrize("batch_size", [1, 3])
def test_iterators_are_read_two_batches_ahead(batch_size):
    taken = []
    detections = predictor().predict((taken.append(level) or picture(level) for level in range(1, 200)), batch_size)
    next(detections)
    time.sleep(0.05)
    assert len(taken) == 3 * batch_size
    detections.close()
    assert threads() == []
    assert len(taken) == 3 * batch_size


def test_the_network_runs_while_the_detections_are_used():
    calls = threading.Semaphore(0)
    detections = predictor(Network(lambda dets, labels: calls.release() or (dets, labels))).predict([picture(10)] * 2)
    next(detections)
    assert all(calls.acquire(timeout=10) for _ in range(2))
    detections.close()


class Paired(OnnxRuntime):
    """The shipped detector, of which a call waits for a second one at the same time."""

    def __init__(self):
        super().__init__(MODEL, threads=1, parallel=2)
        self.barrier = threading.Barrier(2)

    def __call__(self, *arguments):
        self.barrier.wait(10)
        return super().__call__(*arguments)


def test_parallel_batches_run_at_the_same_time_and_give_the_same():
    expected = list(Predictor(OnnxRuntime(MODEL, threads=1), score_threshold=0).predict(IMAGES))
    for detections, one in zip(Predictor(Paired(), score_threshold=0).predict(IMAGES), expected, strict=True):
        assert detections.to_json() == one.to_json()
    assert threads() == []


def test_the_threads_end_with_the_pictures():
    assert len(list(predictor().predict([picture(1)] * 3))) == 3
    assert threads() == []
    assert list(predictor().predict([])) == []


# ---- arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"preprocessing": None},
            "network has no preprocessing in its metadata; adopt the file: mmort adopt MODEL.onnx --config",
        ),
        ({"score_threshold": -0.1}, "score_threshold must be a number from 0 to 1, got -0.1"),
        ({"score_threshold": 30}, "score_threshold must be a number from 0 to 1, got 30"),
        ({"score_threshold": float("nan")}, "score_threshold must be a number from 0 to 1, got nan"),
    ],
)
def test_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Predictor(Network(), **{"preprocessing": PREPROCESSING, **arguments})


def test_batch_size_is_checked_at_once():
    with pytest.raises(ValueError, match="predict: batch_size must be positive, got 0"):
        predictor().predict([], 0)
    with pytest.raises(ValueError, match=r"image must be \[H, W, 3\] of uint8, or .*, got \[4, 4, 2\]"):
        predictor()(np.zeros((4, 4, 2), np.uint8))


# ---- Ray Data --------------------------------------------------------------------------------------------------


def test_a_batch_of_ray_data(tmp_path):
    images = [picture(level) for level in LEVELS[:3]]
    paths = [tmp_path / f"{index}.png" for index in range(3)]
    for path, image in zip(paths, images, strict=True):
        path.write_bytes(cv2.imencode(".png", image)[1])
    paths[1].write_bytes(b"?")
    predict = predictor()
    batch = {"bytes": np.array([path.read_bytes() for path in paths], object), "path": np.array(list(map(str, paths)))}
    for columns in (batch, {"path": batch["path"]}):
        detections = predict(columns)
        assert list(detections) == ["path", "detections", "error"]
        assert detections["path"] is batch["path"]
        assert detections["detections"].tolist() == [predict(images[0]).to_json(), "", predict(images[2]).to_json()]
        assert [bool(error) for error in detections["error"]] == [False, True, False]
        assert "not an image" in detections["error"][1]
    assert {len(column) for column in predict({"path": np.array([], object)}).values()} == {0}
    with pytest.raises(ValueError, match="a batch needs a column bytes or path, got image"):
        predict({"image": images})


# ---- files -----------------------------------------------------------------------------------------------------


def test_files_of_mmdetections_own_export():
    settings = {"classes": old_export.CLASSES, "preprocessing": old_export.PREPROCESSING}
    predict = Predictor(OnnxRuntime(old_export.MODEL, threads=1), **settings)
    result = [detections.above(0.5) for detections in predict.predict(IMAGES, 4)]
    names = ["".join(sorted(detections.names)) for detections in result]
    assert names == ["012234", "123579", "5678", "044569"]
    alone = predict(IMAGES[1]).above(0.5)
    np.testing.assert_allclose(alone.boxes, result[1].boxes, atol=0.3)  # its padding differs
    assert all(mask.any() for mask in alone.masks)


def test_pickled(tmp_path):
    predict = Predictor(OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), threads=1), score_threshold=0.25)
    again = pickle.loads(pickle.dumps(predict))
    assert (again.classes, again.score_threshold) == (("a", "b"), 0.25)
    assert again(picture(1)).to_json() == predict(picture(1)).to_json()


def test_a_relative_path_after_another_directory(tmp_path, monkeypatch):
    tiny_detector.write(tmp_path / "x.onnx")
    monkeypatch.chdir(tmp_path)
    predict = Predictor("x.onnx")
    monkeypatch.chdir("/")
    for again in (pickle.loads(pickle.dumps(predict)), copy.deepcopy(predict)):
        assert again(picture(1)).to_json() == predict(picture(1)).to_json()
    assert mmort.predict.predict(predict, [IMAGES[0]], PredictOptions(output=tmp_path / "out")).processed == 1


@pytest.mark.parametrize("names", [("a", "b"), np.array(["a", "b"]), iter(["a", "b"])])
def test_names_of_classes_are_any_sequence(names):
    assert Predictor(Network(), classes=names, preprocessing=Preprocessing()).classes == ("a", "b")


@pytest.mark.parametrize("names", ["ab", [1, 2], [b"a"]])
def test_one_text_is_no_sequence_of_names(names):
    with pytest.raises(TypeError, match="Predictor: classes must be a sequence of names, such as"):
        Predictor(Network(), classes=names, preprocessing=Preprocessing())


@pytest.mark.parametrize("number", [True, False, np.True_])
def test_a_truth_value_is_no_camera(number):
    with pytest.raises(TypeError, match=f"predict: the number of a camera must be an integer, got {number!r}"):
        mmort.predict.predict(predictor(), number)


def test_the_number_of_a_camera_may_be_numpys():
    for number in (-1, np.int64(-1)):
        with pytest.raises(ValueError, match="the number of a camera must be from 0"):
            mmort.predict.predict(predictor(), number)


def test_files_without_metadata_need_the_preprocessing(tmp_path):
    with pytest.raises(ValueError, match=r"x\.onnx has no preprocessing in its metadata; adopt the file: "):
        Predictor(tiny_detector.write(tmp_path / "x.onnx", metadata={}), score_threshold=0)


# ---- what people pass ------------------------------------------------------------------------------------------


def test_grey_arrays_and_alpha_are_taken_as_files_are(tmp_path):
    predict = Predictor(OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), threads=1), score_threshold=0)
    grey = np.arange(20 * 30, dtype=np.uint8).reshape(20, 30)
    expected = predict.preprocessing(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR)).input
    for image in (grey, grey[..., None]):
        np.testing.assert_array_equal(predict.preprocessing(image).input, expected)
    with_alpha = np.random.default_rng(0).integers(0, 256, (20, 30, 4), np.uint8)
    cv2.imwrite(str(tmp_path / "alpha.png"), with_alpha)
    from_file = predict.preprocessing(tmp_path / "alpha.png").input
    np.testing.assert_array_equal(predict.preprocessing(with_alpha).input, from_file)
    for image in (grey[None, ..., None, None], grey.astype(float), np.zeros((4, 4, 2), np.uint8)):
        with pytest.raises(ValueError, match=r"image must be \[H, W, 3\] of uint8, or \[H, W\] or \[H, W, 4\], got"):
            predict.preprocessing(image)


def test_what_is_not_one_image(tmp_path):
    predict = Predictor(OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), threads=1), score_threshold=0)
    with pytest.raises(ValueError, match=r"^Predictor: photos/\*\.png is a pattern; \.predict\(PATTERN\) takes what"):
        predict("photos/*.png")
    cv2.imwrite(str(tmp_path / "[1].png"), picture(3))
    assert repr(predict(tmp_path / "[1].png")) == repr(predict(picture(3)))


@pytest.mark.parametrize("threshold", ["0.5", None, 5, float("nan")])
def test_score_thresholds_are_numbers_from_0_to_1(tmp_path, threshold):
    with pytest.raises(ValueError, match=f"score_threshold must be a number from 0 to 1, got {threshold!r}$"):
        Predictor(tiny_detector.write(tmp_path / "x.onnx"), score_threshold=threshold)


def test_a_list_of_pictures_and_a_repr(tmp_path):
    predict = Predictor(OnnxRuntime(tiny_detector.write(tmp_path / "x.onnx"), threads=1), score_threshold=0)
    images = [picture(1), picture(2)]
    assert [detections.to_json() for detections in predict(images)] == [predict(image).to_json() for image in images]
    assert predict([]) == predict(()) == []
    assert repr(predict) == f"<Predictor: {tmp_path / 'x.onnx'}, 2 classes, score threshold 0>"


def test_addresses_are_not_downloaded():
    with pytest.raises(ValueError, match="image must be a file, download it first: https://x/a"):
        Predictor(MODEL)("https://x/a.jpg")
    with pytest.raises(ValueError, match="model must be a file, download it first: https://x/a"):
        Predictor("https://x/a.onnx")
