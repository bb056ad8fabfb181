"""Images and arrays as inputs of a file: in the order of the files, and no more inputs than the compared files take."""

import numpy as np
import pytest

import mmort.onnx
from mmort.contract import POSE, SEGMENTATION, Preprocessing, SegmentationFormat
from mmort.predict import PosePredictor, write_image
from tests.predict import tiny_detector, tiny_tasks
from tests.predict.tiny_open_vocabulary import save_detector, save_encoder


@pytest.fixture
def image(tmp_path, rng):
    path = tmp_path / "image.png"
    write_image(path, rng.integers(0, 256, (9, 12, 3), np.uint8))
    return path


def test_images_and_arrays_in_the_order_of_the_files(tmp_path, image):
    model = tiny_detector.write(tmp_path / "model.onnx", img_shape="initializer")
    arrays = np.ones((1, 3, 16, 48), np.float32), np.array([[15, 40]])
    np.savez(tmp_path / "both.npz", img_shape=arrays[1], image=arrays[0])
    np.savez(tmp_path / "needed.npz", image=arrays[0])
    files = [tmp_path / "both.npz", image, tmp_path / "needed.npz"]
    both, of_image, needed = mmort.onnx.read_inputs(model, files)
    prepared = tiny_detector.PREPROCESSING(image)
    assert [array.shape for array in of_image] == [(1, 3, 16, 32), (1, 2)]
    for inputs, expected in (
        (both, arrays),
        (needed, arrays[:1]),
        (of_image, tiny_detector.PREPROCESSING.batch([prepared])),
    ):
        for array, other in zip(inputs, expected, strict=True):
            np.testing.assert_array_equal(array, other)


def test_sizes_of_images_are_left_out_where_a_compared_file_does_not_take_them(tmp_path, image):
    with_sizes = tiny_detector.write(tmp_path / "with.onnx", img_shape="initializer")
    without = tiny_detector.write(tmp_path / "without.onnx")
    for against, count in (([], 2), ([with_sizes], 2), ([with_sizes, without], 1)):
        assert len(next(mmort.onnx.read_inputs(with_sizes, [image], against=against))) == count
    assert len(next(mmort.onnx.read_inputs(without, [image], against=[with_sizes]))) == 1


def test_an_image_is_padded_to_the_only_size_that_a_file_takes(tmp_path, image):
    model = tiny_detector.write(tmp_path / "model.onnx", shape=(1, 3, 32, 64))
    ((input,),) = mmort.onnx.read_inputs(model, [image])
    assert input.shape == (1, 3, 32, 64)


def test_images_need_preprocessing_that_arrays_do_not(tmp_path, image):
    model = tiny_detector.write(tmp_path / "model.onnx", metadata={})
    np.savez(tmp_path / "arrays.npz", image=np.ones((1, 3, 16, 32), np.float32))
    sets = mmort.onnx.read_inputs(model, [tmp_path / "arrays.npz", image])
    assert len(next(sets)) == 1
    with pytest.raises(ValueError, match=r"which images need; mmort adopt .*; or pass arrays in \.npz"):
        next(sets)


def test_images_do_not_fill_inputs_for_words(tmp_path, image):
    """Arrays do, with the text's features among them."""
    model = tmp_path / "detector.onnx"
    save_detector(model)
    save_encoder(tmp_path / "detector.texts.onnx")
    with pytest.raises(ValueError, match=r"has inputs for words, which images do not fill; .* exported with --texts$"):
        next(mmort.onnx.read_inputs(model, [image]))
    words = mmort.Predictor(model, texts="cat").network._words[0].feeds
    np.savez(tmp_path / "arrays.npz", input=np.ones((1, 3, 16, 32), np.float32), **words)
    (inputs,) = mmort.onnx.read_inputs(model, [tmp_path / "arrays.npz"])
    assert len(inputs) == 1 + len(words)


def test_an_image_is_a_box_of_a_pose(tmp_path):
    """Cut out as MMPose does, not stretched."""
    tiny_tasks.write(tmp_path / "x.onnx", POSE)
    image = np.random.default_rng(0).integers(0, 256, (20, 60, 3), dtype=np.uint8)
    write_image(tmp_path / "x.png", image)
    ((input,),) = mmort.onnx.read_inputs(tmp_path / "x.onnx", [tmp_path / "x.png"])
    ((_, expected),) = PosePredictor(tmp_path / "x.onnx").crops(image, [[0, 0, 60, 20]])
    np.testing.assert_array_equal(input, expected.input[None])


def test_the_window_in_the_middle(tmp_path):
    preprocessing = Preprocessing(size=(96, 24), keep_ratio=False)
    segmentation = SegmentationFormat(window=tiny_tasks.SIZE[::-1], stride=(16, 24))
    tiny_tasks.write(tmp_path / "x.onnx", SEGMENTATION, preprocessing=preprocessing, segmentation=segmentation)
    image = np.random.default_rng(0).integers(0, 256, (24, 96, 3), dtype=np.uint8)
    write_image(tmp_path / "x.png", image)
    ((input,),) = mmort.onnx.read_inputs(tmp_path / "x.onnx", [tmp_path / "x.png"])
    np.testing.assert_array_equal(input[0], image[:, 32:64].transpose(2, 0, 1))
