"""Texts in an image: what is cut out to read them, their results, and how an image is read."""

import json

import cv2
import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort import Predictor
from mmort.contract import TEXT_DETECTION, Metadata, Preprocessing, TextDetectionFormat, read_metadata, write_entries
from mmort.images import as_channels, read_image
from mmort.predict import AnnotatedImages, RecognizedText, TextRegions
from mmort.predict.text_reading import crop_of

SQUARE = np.array([[10, 10], [30, 10], [30, 20], [10, 20]], float)


def regions(**further):
    texts = tuple(RecognizedText(text, np.array([0.5, 1.0]), (5, 6)) for text in ("ab", "cd"))
    return TextRegions((SQUARE, SQUARE + 5.25), np.array([0.5, 0.75]), (40, 60), texts=texts, **further)


@pytest.mark.parametrize("index", [1, -1, slice(1, 2), [1], np.array([False, True])], ids=str)
def test_selection(index):
    """As of `Detections`: with a mask too, whose True is no index."""
    chosen = regions()[index]
    assert (chosen.names, chosen.scores.tolist(), chosen.image_size) == (("cd",), [0.75], (40, 60))
    np.testing.assert_array_equal(chosen.polygons, [SQUARE + 5.25])


@pytest.mark.parametrize(
    ("box", "part"),
    [
        ((10, 10, 30, 20), (6, 8, 34, 22)),  # 0.4 and 0.2 of the height
        ((10, 10, 20, 30), (8, 6, 22, 34)),  # upright: the other way round
        ((2.5, 3.5, 12.5, 13.5), (0, 0, 14, 17)),  # a square counts as upright
        ((50, 30, 70, 50), (48, 26, 60, 40)),
        ((70, 50, 80, 60), (60, 40, 60, 40)),  # outside: no pixels
    ],
)
def test_what_is_read(box, part):
    image = np.arange(40 * 60 * 3, dtype=np.int64).reshape(40, 60, 3)
    x1, y1, x2, y2 = part
    np.testing.assert_array_equal(crop_of(image, np.array(box, float)), image[y1:y2, x1:x2])


def test_results():
    found = regions()
    assert found.names == ("ab", "cd")
    assert TextRegions((SQUARE,), np.array([1]), (40, 60)).names == ("text",)
    assert found.above(0.6).names == ("cd",)
    assert found.boxes.tolist() == [[10, 10, 30, 20], [15.25, 15.25, 35.25, 25.25]]
    assert json.loads(found.to_json())["texts"][1] == {
        "polygon": [15.25, 15.25, 35.25, 15.25, 35.25, 25.25, 15.25, 25.25],
        "score": 0.75,
        "text": "cd",
        "text_score": 0.75,
    }
    drawn = found.plot(np.zeros((40, 60, 3), np.uint8), scale=2)
    assert drawn.shape == (80, 120, 3)
    assert drawn[40, 20:60].any()
    with pytest.raises(ValueError, match="but the texts are for"):
        found.plot(np.zeros((40, 61, 3), np.uint8))
    with pytest.raises(ValueError, match="each of polygons must be"):
        TextRegions((SQUARE[:2],), np.array([1]), (40, 60))
    with pytest.raises(ValueError, match="scores and texts must be as many as polygons, 1"):
        TextRegions((SQUARE,), np.array([1, 2]), (40, 60))


def write_turned(path):
    """Write an image that its EXIF data turns by a quarter, 40 x 60 pixels as it is stored."""
    _, data = cv2.imencode(".jpg", np.tile(np.arange(60, dtype=np.uint8)[None, :, None] * 4, (40, 1, 3)))
    tiff = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    exif = b"Exif\0\0" + tiff
    segment = b"\xff\xe1" + (len(exif) + 2).to_bytes(2, "big") + exif
    path.write_bytes(data.tobytes()[:2] + segment + data.tobytes()[2:])


def test_images_that_are_not_turned_upright(tmp_path):
    write_turned(tmp_path / "x.jpg")
    assert read_image(tmp_path / "x.jpg").shape == (60, 40, 3)
    assert read_image(tmp_path / "x.jpg", "color_ignore_orientation").shape == (40, 60, 3)
    assert as_channels("x", np.zeros((4, 5), np.uint8), "color_ignore_orientation").shape == (4, 5, 3)
    prepare = Preprocessing(color_type="color_ignore_orientation", to_rgb=True)
    assert prepare(tmp_path / "x.jpg").input.shape == (3, 40, 60)
    annotated = AnnotatedImages(tmp_path / "shown", [tmp_path / "x.jpg"])
    annotated.write(tmp_path / "x.jpg", regions(color_type="color_ignore_orientation"))
    assert read_image(annotated.path(tmp_path / "x.jpg")).shape == (40, 60, 3)


def test_metadata():
    stated = Metadata(task=TEXT_DETECTION.name, text_detection=TextDetectionFormat("quad", 0.4, 0.2, 3, 2.0, 0.1, 9))
    entries = write_entries(stated)
    assert read_metadata("x", entries) == stated
    wrong = json.loads(entries["text_detection"]) | {"shape": "circle"}
    with pytest.raises(ValueError, match=r"text_detection\.shape must be 'poly' or 'quad'"):
        read_metadata("x", entries | {"text_detection": json.dumps(wrong)})


def test_a_map_of_another_size_is_refused(tmp_path):
    graph = oh.make_graph(
        [
            oh.make_node("ReduceMean", ["input"], ["mean"], axes=[1], keepdims=0),
            oh.make_node("Pad", ["mean", "wider"], ["probability"]),
        ],
        "means",
        [oh.make_tensor_value_info("input", 1, ["batch", 3, "height", "width"])],
        [oh.make_tensor_value_info("probability", 1, ["batch", "height", "wide"])],
        [onnx.numpy_helper.from_array(np.array([0, 0, 0, 0, 0, 1]), "wider")],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    oh.set_model_props(model, write_entries(Metadata(task=TEXT_DETECTION.name, preprocessing=Preprocessing())))
    onnx.save(model, tmp_path / "x.onnx")
    with pytest.raises(ValueError, match=r"probability must be \(4, 5\), as the input is, got \(4, 6\)"):
        Predictor(tmp_path / "x.onnx")(np.zeros((4, 5, 3), np.uint8))
