"""Adopted files whose inputs are sizes, scales, bytes or halves, or whose rows are of all images: judged by numpy."""

import numpy as np
import onnx
import onnx.helper as oh
import pytest

import mmort
import mmort.onnx
from mmort.onnx.adopt import Question
from tests.onnx.foreign import HEIGHT, WIDTH, add_input, assert_detects, corners, detect, ultralytics, write

RNG = np.random.default_rng(11)
STRETCHED = {"size": [WIDTH, HEIGHT], "keep_ratio": False}


def random_boxes(count):
    """Return boxes cx, cy, w, h in pixels, many of which overlap."""
    return np.concatenate([RNG.uniform(20, 44, (count, 2)), RNG.uniform(15, 30, (count, 2))], 1)


@pytest.mark.parametrize("number", ["n", 1])
@pytest.mark.parametrize("preset", ["rtdetr", "dfine", None])
def test_width_and_height_of_the_original_image(tmp_path, number, preset):
    """As RT-DETR's own exporter has it; where the images do not matter, nor does the preprocessing: no question."""
    shares, scores = corners(random_boxes(20)) / 96, np.sort(RNG.uniform(0.1, 0.9, 20))[::-1]
    labels = RNG.integers(0, 3, 20)
    outputs = {"labels": labels, "boxes": shares, "scores": scores}
    path = write(tmp_path / "rtdetr.onnx", outputs, image=(number, 3, HEIGHT, WIDTH))
    add_input(path, "orig_target_sizes", [number, 2], 7, factor=[0, 1, 0, 1], output="boxes")
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx", preset=preset)
    assert "boxes: xyxy in pixels of the original image" in str(adoption)
    assert "orig_target_sizes [" in str(adoption)
    assert "]: width and height of the original image, (N, 2)\n" in str(adoption)
    assert ("guessed, as the file does not say it: rtdetr; " in str(adoption)) == (preset is None)
    images = [np.zeros((*size, 3), np.uint8) for size in ((200, 80), (31, 400))]
    for image, detections in zip(
        images, mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 2), strict=True
    ):
        height, width = image.shape[:2]
        assert_detects(detections, shares * [width, height, width, height], scores, labels)


@pytest.mark.parametrize(
    ("name", "columns", "factor"),
    [("scale_factor", 2, [1, 0, 1, 0]), ("im_info", 3, [2, 2, 2, 2]), ("im_shape", 2, [1, 0, 1, 0])],
)
def test_sizes_and_scales_of_the_resized_image(tmp_path, name, columns, factor):
    """The outputs are multiples of what the input should hold."""
    boxes, scores = corners(random_boxes(20)) / 10, RNG.uniform(0.1, 0.9, (20, 2))
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores}, image=("n", 3, "h", "w"))
    add_input(path, name, ["n", columns], factor=factor, output="b")
    padding = {"size": [WIDTH, HEIGHT]}
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "box_unit": "original"}
    layout |= {"preprocessing": {"size": [WIDTH, HEIGHT], "turn_size": False, "padding": padding}}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    image = np.zeros((128, 96, 3), np.uint8)  # half of it: 64 x 48
    multiple = {"scale_factor": 0.5, "im_info": 0.5, "im_shape": np.array([48, 64, 48, 64])}[name]
    assert_detects(detect(tmp_path / "a.onnx", image), boxes * multiple, scores.max(1), scores.argmax(1))


def test_rows_with_the_index_of_their_image(tmp_path):
    """YOLOv7's end-to-end form."""
    rows = np.zeros((6, 7))
    rows[:, 0], rows[:, 1:5] = [0, 1, 1, 0, 1, 0], corners(random_boxes(6))
    rows[:, 5], rows[:, 6] = RNG.integers(0, 3, 6), RNG.uniform(0.2, 0.9, 6)
    path = write(tmp_path / "yolov7.onnx", {"output": rows}, image=(1, 3, HEIGHT, WIDTH))
    model = onnx.load(path)
    (cast,) = (node for node in model.graph.node if "output" in node.output)
    cast.output[:] = ["batch"]
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0), "zeroth"))
    model.graph.node.append(oh.make_node("Gather", ["batch", "zeroth"], ["output"], axis=0))
    del model.graph.output[0].type.tensor_type.shape.dim[0]
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, path)
    with pytest.raises(Question, match="--preset yolov7  YOLOv7: red, green, blue; fitted into"):
        mmort.onnx.adopt(path, tmp_path / "a.onnx")
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov7")
    images = [np.zeros((HEIGHT, WIDTH, 3), np.uint8)] * 2
    for index, detections in enumerate(mmort.Predictor(tmp_path / "a.onnx", score_threshold=0).predict(images, 2)):
        part = rows[rows[:, 0] == index]
        assert_detects(detections, part[:, 1:5], part[:, 6], part[:, 5])


def test_counts_of_used_rows(tmp_path):
    """The names of TensorRT's EfficientNMS: rows after the count are not used."""
    boxes, scores, labels = corners(random_boxes(9)), RNG.uniform(0.2, 0.9, 9), RNG.integers(0, 3, 9)
    outputs = {"num_dets": np.array([4]), "det_boxes": boxes, "det_scores": scores, "det_classes": labels}
    path = write(tmp_path / "yolov7.onnx", outputs)
    mmort.onnx.adopt(path, tmp_path / "a.onnx", preset="yolov7")
    assert_detects(detect(tmp_path / "a.onnx"), boxes[:4], scores[:4], labels[:4])


def convert_input(path, element_type, *, channels_last):
    """Let a file take another element type, or channels last, and its outputs have that type if it is float16."""
    model = onnx.load(path)
    image = model.graph.input[0]
    sizes = [size.dim_value or size.dim_param for size in image.type.tensor_type.shape.dim]
    sizes = [*sizes[:-3], *sizes[-2:], sizes[-3]] if channels_last else sizes
    image.CopyFrom(oh.make_tensor_value_info(image.name, element_type, sizes))
    for node in model.graph.node:
        node.input[:] = ["image/float" if name == image.name else name for name in node.input]
    nodes = [oh.make_node("Cast", [image.name], ["image/float"], to=1), *model.graph.node]
    for output in model.graph.output if element_type == 10 else ():
        for node in nodes:
            node.output[:] = [f"{output.name}/float" if name == output.name else name for name in node.output]
        nodes.append(oh.make_node("Cast", [f"{output.name}/float"], [output.name], to=10))
        output.type.tensor_type.elem_type = 10
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, path)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("element_type", [10, 2, 1])
def test_types_and_channels_of_the_image(tmp_path, element_type, single, channels_last):
    """float16, bytes and float32, channels first and last, with a batch and without."""
    boxes, scores = corners(random_boxes(20)), RNG.uniform(0.1, 0.4, (20, 3))
    image = (3, HEIGHT, WIDTH) if single else (1, 3, HEIGHT, WIDTH)
    path = write(tmp_path / "any.onnx", {"b": boxes, "s": scores}, image=image, gain=0.5 / 255)
    convert_input(path, element_type, channels_last=channels_last)
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "preprocessing": STRETCHED}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    level = 200
    detections = detect(tmp_path / "a.onnx", np.full((HEIGHT, WIDTH, 3), level, np.uint8))
    tolerance = 2e-3 if element_type == 10 else 1e-6
    order = np.argsort(-scores.max(1))
    np.testing.assert_allclose(detections.scores, scores.max(1)[order] + 0.5 * level / 255, atol=tolerance)
    if element_type != 10:
        np.testing.assert_allclose(detections.boxes, boxes[order] + 0.5 * level / 255, atol=1e-4)


def test_half_of_ultralytics(tmp_path):
    """Equal to the file in float32, within the rounding of float16."""
    rows = np.concatenate([random_boxes(60), RNG.uniform(0, 1, (60, 3))], 1).T.astype(np.float16).astype(float)
    path = write(tmp_path / "whole.onnx", {"output0": rows}, metadata=ultralytics())
    mmort.onnx.adopt(path, tmp_path / "a.onnx")
    whole = detect(tmp_path / "a.onnx")
    convert_input(path, 10, channels_last=False)
    mmort.onnx.adopt(path, tmp_path / "b.onnx")
    half = detect(tmp_path / "b.onnx")
    np.testing.assert_allclose(half.boxes, whole.boxes, rtol=1e-3)
    np.testing.assert_array_equal(half.labels, whole.labels)


def test_outputs_of_tensorflow(tmp_path):
    """Its Object Detection API: bytes with channels last, y first, classes from 1, and a number of detections."""
    shares, scores, labels = corners(random_boxes(9)) / 96, RNG.uniform(0.2, 0.9, 9), RNG.integers(1, 4, 9)
    outputs = {"num_detections": np.array([5]), "detection_boxes": shares[:, [1, 0, 3, 2]]}
    outputs |= {"detection_scores": scores, "detection_classes": labels}
    path = write(tmp_path / "ssd.onnx", outputs, image=(1, 3, "h", "w"))
    convert_input(path, 2, channels_last=True)
    adoption = mmort.onnx.adopt(path, tmp_path / "a.onnx")
    assert adoption.exporter == "TensorFlow"
    assert "images [1, 3, ?, ?] of uint8, channels last: red, green, blue\n" in str(adoption)
    image = np.zeros((200, 80, 3), np.uint8)
    assert_detects(detect(tmp_path / "a.onnx", image), (shares * [80, 200, 80, 200])[:5], scores[:5], labels[:5] - 1)


@pytest.mark.parametrize(
    ("image", "further", "layout", "message"),
    [
        ((1, 4, HEIGHT, WIDTH), None, {}, r"one image as input, .* got images float32 \[1, 4, 64, 96\]"),
        ((1, 1, HEIGHT, WIDTH), None, {}, r"one image as input, .* got images float32 \[1, 1, 64, 96\]"),
        ((1, 6, HEIGHT, WIDTH), None, {}, r"one image as input, .* got images float32 \[1, 6, 64, 96\]"),
        ((1, 3, HEIGHT, WIDTH), "threshold", {}, "--set inputs.NAME=MEANING states it, .*; unknown: threshold, of"),
        (
            (1, 3, HEIGHT, WIDTH),
            "orig",
            {"inputs": {"orig": "size"}},
            "inputs must have one of pixel_mask, original_wh",
        ),
        ((1, 3, HEIGHT, WIDTH), "im_info", {}, r"im_info must be .*, got im_info float32 \[1, 2\]"),
        ((1, 3, HEIGHT, WIDTH), None, {"channels_last": "yes"}, "channels_last must be true or false, got 'yes'"),
        (
            (1, 3, HEIGHT, WIDTH),
            None,
            {"channels_last": True},
            r"channels_last must be false for images float32 \[1, 3, 64, 96\], got True",
        ),
        (
            (1, HEIGHT, WIDTH, 3),
            None,
            {"channels_last": False},
            r"channels_last must be true for images float32 \[1, 64, 96, 3\], got False",
        ),
    ],
)
def test_inputs_that_are_refused(tmp_path, image, further, layout, message):
    path = write(tmp_path / "any.onnx", {"output0": np.zeros((7, 20))}, image=image, metadata=ultralytics())
    if further is not None:
        add_input(path, further, [1, 2])
    with pytest.raises(ValueError, match=message):
        mmort.onnx.adopt(path, tmp_path / "a.onnx", layout)
    assert not (tmp_path / "a.onnx").exists()


def test_the_meaning_of_an_input_can_be_stated(tmp_path):
    shares, scores = corners(random_boxes(20)) / 96, RNG.uniform(0.1, 0.9, (20, 2))
    path = write(tmp_path / "any.onnx", {"b": shares, "s": scores})
    add_input(path, "size", ["n", 2], 7, factor=[1, 0, 1, 0], output="b")
    layout = {"boxes": "b", "box_format": "xyxy", "scores": "s", "box_unit": "original", "preprocessing": STRETCHED}
    mmort.onnx.adopt(path, tmp_path / "a.onnx", layout | {"inputs": {"size": "original_hw"}})
    detections = detect(tmp_path / "a.onnx", np.zeros((200, 80, 3), np.uint8))
    assert_detects(detections, shares * [80, 200, 80, 200], scores.max(1), scores.argmax(1))
