"""TIFF and JPEG 2000 files through rasterio: windows of any kind of file, and what hostile files make of it."""

import re
import socket

import cv2
import numpy as np
import pytest
import rasterio

from mmort.images import write_image
from mmort.predict.pixels import open_pixels

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def write(path, image, driver="GTiff", **settings):
    height, width, count = image.shape
    with rasterio.open(
        path, "w", driver=driver, width=width, height=height, count=count, dtype="uint8", **settings
    ) as file:
        file.write(np.moveaxis(image, 2, 0))
    return path


def empty(path, side, **settings):
    """Write a file that states its pixels, and holds none."""
    settings = {"count": 3, "dtype": "uint8", "SPARSE_OK": True, "BIGTIFF": "YES", **settings}
    with rasterio.open(path, "w", driver="GTiff", width=side, height=side, **settings):
        pass
    return path


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("a.tif", {}),
        ("a.TIFF", {"tiled": True, "blockxsize": 16, "blockysize": 16, "compress": "deflate"}),
        ("a.jp2", {"driver": "JP2OpenJPEG", "quality": 100, "reversible": True}),
    ],
)
def test_parts_of_files(tmp_path, rng, name, settings):
    image = rng.integers(0, 256, (60, 90, 3), np.uint8)
    with open_pixels(write(tmp_path / name, image, **settings)) as pixels:
        assert (pixels.height, pixels.width) == (60, 90)
        np.testing.assert_array_equal(pixels.read(7, 30, 40, 50), image[7:47, 30:80, ::-1])


def vrt(source):
    bands = "".join(
        f'<VRTRasterBand dataType="Byte" band="{band}"><SimpleSource><SourceFilename>{source}</SourceFilename>'
        f"<SourceBand>{band}</SourceBand></SimpleSource></VRTRasterBand>"
        for band in (1, 2, 3)
    )
    return f'<VRTDataset rasterXSize="30" rasterYSize="20">{bands}</VRTDataset>'


def test_a_picture_reads_no_other_file_and_asks_no_server(tmp_path):
    """GDAL tells many formats by their content, some of which are lists of files or addresses."""
    write_image(tmp_path / "secret.png", np.full((20, 30, 3), 90, np.uint8))
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        service = (
            f"<GDAL_WMS><Service name='TMS'><ServerUrl>{address}/${{z}}/${{x}}/${{y}}.png</ServerUrl></Service>"
            "<DataWindow><UpperLeftX>0</UpperLeftX><UpperLeftY>0</UpperLeftY><LowerRightX>1</LowerRightX>"
            "<LowerRightY>1</LowerRightY><TileLevel>1</TileLevel></DataWindow><BandsCount>3</BandsCount></GDAL_WMS>"
        )
        for name in ("a.tif", "a.tiff", "a.jp2"):
            for content in (vrt(tmp_path / "secret.png"), vrt(f"/vsicurl/{address}/a.tif"), service):
                (tmp_path / name).write_text(content)
                with (
                    pytest.raises(OSError, match="not recognized as being in a supported file format"),
                    open_pixels(tmp_path / name),
                ):
                    pass
        with pytest.raises(FileNotFoundError), open_pixels(f"/vsicurl/{address}/a.tif"):
            pass
        for name in (f"{address}/a.tif", f"zip+{address}/a.zip!a.tif"):
            with pytest.raises(ValueError, match="must be a file, download it first"), open_pixels(name):
                pass
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.mark.parametrize("settings", [{}, {"tiled": True}, {"tiled": True, "blockxsize": 2**15, "blockysize": 2**15}])
def test_files_that_state_more_pixels_than_they_hold(tmp_path, monkeypatch, settings):
    bomb = empty(tmp_path / "a.tif", 2**15, **settings)
    message = r"a\.tif: states 32768 x 32768 pixels in \d+ bytes, .* take 3221 MB"
    with pytest.raises(ValueError, match=message), open_pixels(bomb):
        pass
    monkeypatch.setenv("OPENCV_IO_MAX_IMAGE_PIXELS", str(2**30))
    with open_pixels(bomb) as pixels:
        assert not pixels.read(2**15 - 8, 2**15 - 8, 8, 8).any()


@pytest.mark.parametrize(("name", "driver"), [("a.tif", "GTiff"), ("a.jp2", "JP2OpenJPEG")])
def test_damaged_files_are_named(tmp_path, rng, name, driver):
    content = write(tmp_path / name, rng.integers(0, 256, (60, 90, 3), np.uint8), driver).read_bytes()
    for broken in (b"", content[:100], content[: len(content) // 2]):
        (tmp_path / name).write_bytes(broken)
        with pytest.raises(OSError, match=re.escape(name)) as caught, open_pixels(tmp_path / name) as pixels:
            pixels.read(0, 0, 60, 90)
        assert "previous exception" not in str(caught.value)


def test_bands_of_files_are_read_in_opencvs_order(tmp_path):
    rng = np.random.default_rng(0)
    for count, order, kind in (
        (1, [0], "MINISBLACK"),
        (3, [2, 1, 0], "RGB"),
        (4, [2, 1, 0, 3], "RGB"),
        (4, range(4), "MINISBLACK"),
        (6, range(6), "MINISBLACK"),
    ):
        bands = rng.integers(0, 2**16, (count, 30, 40), np.uint16)
        path = tmp_path / f"{count}_{kind}.tif"
        profile = {"driver": "GTiff", "count": count, "height": 30, "width": 40, "dtype": "uint16"}
        with rasterio.open(path, "w", **profile, photometric=kind) as file:
            file.write(bands)
        with open_pixels(path, "unchanged") as pixels:
            part = pixels.read(5, 7, 11, 13)
        assert (part == np.moveaxis(bands[list(order)], 0, 2)[5:16, 7:20]).all()
        if kind == "RGB" or count == 1:
            read = cv2.imread(str(path), cv2.IMREAD_UNCHANGED).reshape(30, 40, count)
            assert (part == read[5:16, 7:20]).all()
        with pytest.raises(ValueError, match="must have 1 band of uint8"), open_pixels(path, "grayscale"):
            pass
