"""Texts that grow from kernels: maps drawn by hand, whose labels and outlines follow from the definitions."""

import json

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort import Predictor
from mmort.contract import TEXT_DETECTION, Metadata, Preprocessing, TextKernelsFormat, read_metadata, write_entries
from mmort.detections.text_growth import expanded, grouped
from mmort.predict.text_kernels import TextKernelsPostprocessing


def drawn(*rows):
    """Return the digits of rows of text as an array; a dot is 0."""
    return np.array([[0 if sign == "." else int(sign) for sign in row] for row in rows])


def test_labels_spread_a_pixel_at_a_time():
    seeds = drawn("1......", ".......", "......2")
    mask = drawn("1111111", "1.1...1", "1.1...1") != 0
    expected = drawn("1111122", "1.1...2", "1.1...2")  # both reach the pixel in the middle at once
    np.testing.assert_array_equal(expanded(mask, seeds, 0), expected)
    np.testing.assert_array_equal(expanded(mask, seeds, 2), np.zeros((3, 7)))
    np.testing.assert_array_equal(expanded(mask & False, seeds, 0), seeds)


def test_labels_spread_to_pixels_that_are_like_their_kernel():
    seeds, mask = drawn("1....2"), np.ones((1, 6), bool)
    vectors = np.array([0, 0.5, 0.9, 3.5, 4.9, 5], np.float32).reshape(1, 6, 1)
    for limit, expected in ((1.0, "111.22"), (2.0, "111222"), (0.6, "11..22")):
        labels = grouped(mask, vectors, seeds, seeds != 0, 3, limit)
        np.testing.assert_array_equal(labels, drawn(expected))
    np.testing.assert_array_equal(grouped(mask, vectors, seeds, np.zeros((1, 6), bool), 3, 9.0), seeds)


def regions(maps, format, image=(40, 80)):
    """Return the texts of maps of logits, of an image of twice the maps' size, shown at half of its own."""
    image = Preprocessing(size=(image[1], image[0]), keep_ratio=False)(
        np.zeros((2 * image[0], 2 * image[1], 3), np.uint8)
    )
    return TextKernelsPostprocessing((), 0.0, format, "color")(image, (40, 80), [maps], None)


def maps_of(*masks):
    """Return logits of masks: -4 outside, 4 inside."""
    return np.stack([np.where(mask, 4.0, -4.0) for mask in masks]).astype(np.float32)


@pytest.fixture
def masks():
    """Return two texts that touch, and a kernel in each."""
    text, kernels = np.zeros((2, 20, 40), bool)
    text[4:14, 3:30] = kernels[6:12, 5:14] = kernels[6:12, 20:28] = True
    return text, kernels


def test_pse(masks):
    text, kernels = masks
    found = regions(maps_of(text, kernels | text, kernels), TextKernelsFormat("pse", scale=0.5))
    # Kernels end at columns 13 and 20, so that each gets three of the six columns between them.
    np.testing.assert_array_equal(found.boxes, [[12, 16, 64, 52], [68, 16, 116, 52]])
    np.testing.assert_allclose(found.scores, [1 / (1 + np.exp(-4))] * 2, atol=1e-6)
    alone = regions(maps_of(kernels), TextKernelsFormat("pse", scale=0.5))
    np.testing.assert_array_equal(alone.boxes, [[20, 24, 52, 44], [80, 24, 108, 44]])
    quad = regions(maps_of(text, kernels), TextKernelsFormat("pse", shape="quad", scale=0.5))
    assert [polygon.shape for polygon in quad.polygons] == [(4, 2)] * 2
    none = regions(maps_of(text, kernels), TextKernelsFormat("pse", min_kernel_area=60, scale=0.5))
    assert len(none) == 0
    small = TextKernelsFormat("pse", min_text_area=10_000, scale=0.5)
    assert len(regions(maps_of(text, kernels), small)) == 2  # as they are probable
    small = TextKernelsFormat("pse", min_text_area=10_000, min_score=0.99, scale=0.5)
    assert len(regions(maps_of(text, kernels), small)) == 0


def test_pan(masks):
    text, kernels = masks
    vectors = np.zeros((2, 20, 40), np.float32)
    vectors[0, :, 16:] = 5  # the first text ends at column 15
    maps = np.concatenate([maps_of(text, kernels), vectors])
    found = regions(maps, TextKernelsFormat("pan", scale=0.5))
    np.testing.assert_array_equal(found.boxes, [[12, 16, 60, 52], [64, 16, 116, 52]])
    assert len(regions(maps, TextKernelsFormat("pan", min_text_area=10_000, scale=0.5))) == 0
    assert len(regions(maps, TextKernelsFormat("pan", min_score=0.99, scale=0.5))) == 0
    assert len(regions(maps, TextKernelsFormat("pan", min_text=0.99, scale=0.5))) == 0
    with pytest.raises(ValueError, match="kernels must have at least 3 maps, got 2"):
        regions(maps[:2], TextKernelsFormat("pan"))


def test_a_file(tmp_path):
    """White pixels are texts, whose kernels are smaller."""
    graph = oh.make_graph(
        [
            oh.make_node("AveragePool", ["input"], ["small"], kernel_shape=[4, 4], strides=[4, 4]),
            oh.make_node("ReduceMean", ["small"], ["text"], axes=[1], keepdims=1),
            oh.make_node("Neg", ["text"], ["dark"]),
            oh.make_node("MaxPool", ["dark"], ["wide"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
            oh.make_node("Neg", ["wide"], ["kernel"]),
            oh.make_node("Concat", ["text", "kernel"], ["kernels"], axis=1),
        ],
        "texts",
        [oh.make_tensor_value_info("input", 1, ["batch", 3, "height", "width"])],
        [oh.make_tensor_value_info("kernels", 1, ["batch", 2, "h", "w"])],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    stated = Metadata(
        task=TEXT_DETECTION.name,
        preprocessing=Preprocessing(mean=(128, 128, 128)),
        text_kernels=TextKernelsFormat("pse"),
    )
    entries = write_entries(stated)
    assert read_metadata("x", entries) == stated
    oh.set_model_props(model, entries)
    onnx.save(model, tmp_path / "x.onnx")
    image = np.zeros((60, 80, 3), np.uint8)
    image[8:28, 8:72] = 255
    found = Predictor(tmp_path / "x.onnx")(image)
    np.testing.assert_array_equal(found.boxes, [[8, 8, 68, 24]])
    for change, problem in (
        ({"growth": "dbnet"}, r"text_kernels\.growth must be 'pse' or 'pan'"),
        ({"min_text_area": 1.5}, r"text_kernels\.min_text_area must be"),
    ):
        wrong = json.dumps(json.loads(entries["text_kernels"]) | change)
        with pytest.raises(ValueError, match=problem):
            read_metadata("x", entries | {"text_kernels": wrong})
    oh.set_model_props(model, {name: text for name, text in entries.items() if name != "text_kernels"})
    onnx.save(model, tmp_path / "y.onnx")
    with pytest.raises(ValueError, match="has no text_kernels in its metadata"):
        Predictor(tmp_path / "y.onnx")
