"""The parts of the demo's detector: reading with Pillow, preprocessing, postprocessing."""

import numpy as np
import pytest
from PIL import Image

pytest.importorskip("onnxruntime")

from mmort.demo import detector


def gradient():
    """Return an RGB image in which no two pixels of a row, and no two rows, are the same."""
    row, column = np.mgrid[0:48, 0:64]
    return Image.fromarray(np.stack([row * 5, column * 4, row + column], axis=-1).astype(np.uint8))


def read_back(tmp_path, image, **options):
    path = tmp_path / "image.png"
    image.save(path, **options)
    read = detector.read_image(path)
    assert read.mode == "RGB"
    return np.asarray(read).astype(int)


def test_read_image_modes(tmp_path):
    image = gradient()
    colours, grey = np.asarray(image).astype(int), np.asarray(image.convert("L")).astype(int)
    assert (read_back(tmp_path, image) == colours).all()
    assert (read_back(tmp_path, image.convert("L")) == grey[..., None]).all()
    deep = Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)
    assert (read_back(tmp_path, deep) == grey[..., None]).all()


def test_read_image_puts_transparency_on_white(tmp_path):
    image = gradient()
    colours = np.asarray(image).astype(int)
    for alpha in (0, 128, 255):
        read = read_back(tmp_path, Image.merge("RGBA", (*image.split(), Image.new("L", image.size, alpha))))
        np.testing.assert_allclose(read, 255 + (colours - 255) * alpha / 255, rtol=0, atol=1)
    palette = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert("P")
    palette.putpalette([0, 0, 0] * 256)
    read = read_back(tmp_path, palette, transparency=7)
    assert (read == 255).all(axis=2).sum() == 1
    assert (read[0, 7] == 255).all()


def test_read_image_rotates_by_exif(tmp_path):
    image, exif = gradient(), Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees clockwise to show
    read = read_back(tmp_path, image.transpose(Image.Transpose.ROTATE_90), exif=exif)
    assert (read == np.asarray(image)).all()


def test_preprocess_is_the_test_pipeline():
    for size, network_size, padded in (
        ((192, 112), (208, 121), (224, 128)),
        ((192, 128), (208, 139), (224, 160)),
        ((128, 160), (160, 200), (160, 224)),
        ((208, 160), (208, 160), (224, 160)),
        ((4160, 20), (208, 1), (224, 32)),
    ):
        tensor, inner = detector.preprocess(Image.new("RGB", size, (10, 100, 200)))
        assert inner == network_size
        assert tensor.shape == (1, 3, padded[1], padded[0])
        assert tensor.dtype == np.float32
        colour = [(10 - 123.675) / 58.395, (100 - 116.28) / 57.12, (200 - 103.53) / 57.375]
        inside = tensor[0, :, : inner[1], : inner[0]]
        np.testing.assert_allclose(inside, np.broadcast_to(np.reshape(colour, (3, 1, 1)), inside.shape), rtol=1e-5)
        assert not tensor[0, :, inner[1] :].any()
        assert not tensor[0, :, :, inner[0] :].any()


def test_postprocess_maps_to_the_original_image():
    # the image has half the size of the network's input, which is 200 x 100 pixels, padded to 224 x 128
    dets = np.array(
        [[20, 10, 60, 50, 0.8], [10, 10, 50, 50, 0.3], [202, 0, 222, 50, 0.7], [190, 90, 220, 120, 0.9]], np.float32
    )
    masks = np.zeros((4, 128, 224), np.float32)
    masks[0, 20:40, 30:60] = 1
    masks[3, 90:, 190:] = 1
    found = detector.postprocess(dets, np.array([7, 1, 2, 5]), masks, (200, 100), (100, 50), 0.3)
    assert [(detection.label, round(detection.score, 4), detection.box) for detection in found] == [
        ("5", 0.9, (95, 45, 100, 50)),
        ("7", 0.8, (10, 5, 30, 25)),
    ]
    assert found[0].mask.all()
    assert found[0].mask.shape == (5, 5)
    expected = np.zeros((20, 20), bool)
    expected[5:15, 5:20] = True  # rows 20:40 are rows 10:20 of the image, and the box starts at row 5
    assert (found[1].mask == expected).all()


def test_postprocess_mask_covers_every_pixel_the_box_touches():
    masks = np.ones((1, 32, 32), np.float32)
    dets = np.array([[1.5, 2.25, 3.25, 2.75, 1]], np.float32)
    (detection,) = detector.postprocess(dets, np.array([0]), masks, (32, 32), (32, 32), 0.5)
    assert detection.mask.shape == (1, 3)  # columns 1 to 3, row 2


def test_postprocess_nothing_found():
    empty = np.zeros((0, 5), np.float32), np.zeros(0, np.int64), np.zeros((0, 32, 32), np.float32)
    assert detector.postprocess(*empty, (32, 32), (32, 32), 0.5) == []
