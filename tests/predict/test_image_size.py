"""Heights and widths that are read from headers are those of the decoded image."""

import struct

import cv2
import numpy as np
import pytest

from mmort import images
from mmort.images import image_size, read_image, write_image


def with_orientation(data, orientation):
    """Return a JPEG file's content with EXIF data that turns the image."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    exif = b"Exif\0\0" + b"MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + data[2:]


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".bmp", ".webp", ".tif"])
@pytest.mark.parametrize("size", [(33, 91), (1, 1), (120, 16)])
def test_sizes_of_formats(tmp_path, suffix, size):
    path = tmp_path / f"image{suffix}"
    write_image(path, np.zeros((*size, 3), np.uint8))
    assert image_size(path) == size == read_image(path).shape[:2]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(33, 91), (64, 57), (64, 63), (40, 40)])
def test_sizes_of_turned_images(tmp_path, orientation, size, monkeypatch):
    """Only where an eighth of the size does not tell height from width, the image is decoded."""
    data = cv2.imencode(".jpg", np.zeros((*size, 3), np.uint8))[1].tobytes()
    path = tmp_path / "image.jpg"
    path.write_bytes(with_orientation(data, orientation))
    expected = read_image(path).shape[:2]
    assert expected == (size[::-1] if orientation > 4 else size)
    assert image_size(path) == expected
    monkeypatch.setattr(images, "read_image", None)
    if size == (33, 91):
        assert image_size(path) == expected


def test_files_that_are_no_images(tmp_path):
    path = tmp_path / "image.jpg"
    for content in (b"", b"\xff\xd8\xff", b"text"):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="not an image"):
            image_size(path)
