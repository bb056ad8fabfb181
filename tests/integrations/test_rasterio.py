"""TIFF and JPEG 2000 files through rasterio: windows of any kind of file, and what hostile files make of it."""

import re
import socket

import cv2
import numpy as np
import pytest
import rasterio
from PIL import Image
from rasterio.enums import ColorInterp

from mmort.images import read_image, write_image
from mmort.predict.pixels import open_pixels

pytestmark = pytest.mark.filterwarnings("ignore::rasterio.errors.NotGeoreferencedWarning")


def write(path, image, driver="GTiff", **settings):
    height, width, count = image.shape
    with rasterio.open(
        path, "w", driver=driver, width=width, height=height, count=count, dtype="uint8", **settings
    ) as file:
        if driver == "JP2OpenJPEG" and count >= 3:
            file.colorinterp = [ColorInterp[name] for name in ("red", "green", "blue", "alpha")[:count]]
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
    if "driver" not in settings:
        settings = settings | {"photometric": "RGB"}
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


JPEG_2000 = {"driver": "JP2OpenJPEG", "quality": 100, "reversible": True}
KINDS = {
    "gray": (1, np.uint8, {}),
    "gray_and_opacity": (2, np.uint8, {"alpha": "NON-PREMULTIPLIED"}),
    "white_is_0": (1, np.uint8, {"photometric": "MINISWHITE"}),
    "one_bit": (1, np.uint8, {"nbits": 1}),
    "rgb": (3, np.uint8, {"photometric": "RGB"}),
    "rgb_in_planes": (3, np.uint8, {"photometric": "RGB", "interleave": "band", "tiled": True}),
    "jpeg": (3, np.uint8, {"photometric": "RGB", "compress": "JPEG"}),
    "cmyk": (4, np.uint8, {"photometric": "CMYK"}),
    "three_bands": (3, np.uint8, {"photometric": "MINISBLACK"}),
    "four_bands": (4, np.uint8, {"photometric": "RGB"}),
    "opacity": (4, np.uint8, {"photometric": "RGB", "alpha": "NON-PREMULTIPLIED"}),
    "opacity_multiplied": (4, np.uint8, {"photometric": "RGB", "alpha": "PREMULTIPLIED"}),
    "opacity_of_16_bits": (4, np.uint16, {"photometric": "RGB", "alpha": "NON-PREMULTIPLIED"}),
    "16_bits": (3, np.uint16, {"photometric": "RGB"}),
    "gray_of_16_bits": (1, np.uint16, {}),
    "signed": (1, np.int16, {}),
    "floats": (3, np.float32, {"photometric": "MINISBLACK"}),
    "jpeg_2000": (3, np.uint8, JPEG_2000),
    "opacity_in_jpeg_2000": (4, np.uint8, JPEG_2000),
    "gray_jpeg_2000": (1, np.uint8, JPEG_2000),
}
COLOR_TYPES = ["color", "grayscale", "unchanged"]


def require_parts_of(path, color_type):
    """Compare a part with that of the whole image, or both refusals."""
    try:
        whole = read_image(path, color_type)
    except ValueError:
        if color_type != "unchanged":  # in which rasterio reads more than OpenCV
            with pytest.raises(ValueError, match=re.escape(path.name)), open_pixels(path, color_type):
                pass
        return
    with open_pixels(path, color_type) as pixels:
        assert (pixels.height, pixels.width) == whole.shape[:2]
        part = pixels.read(5, 7, 11, 13)
    if part.shape != (11, 13, whole.shape[2]):  # one of several bands in the whole image
        assert (color_type, whole.shape[2]) == ("unchanged", 1)
        return
    assert part.dtype == whole.dtype
    np.testing.assert_array_equal(part, whole[5:16, 7:20])


@pytest.mark.parametrize("color_type", COLOR_TYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_those_of_the_whole_image(tmp_path, rng, kind, color_type):
    count, dtype, settings = KINDS[kind]
    levels = rng.integers(0, 2 if kind == "one_bit" else 250, (count, 30, 40)).astype(dtype)
    path = tmp_path / ("a.jp2" if "driver" in settings else "a.tif")
    profile = {"driver": "GTiff", "count": count, "height": 30, "width": 40, "dtype": dtype, **settings}
    with rasterio.open(path, "w", **profile) as file:
        file.write(levels)
    require_parts_of(path, color_type)


@pytest.mark.parametrize("color_type", COLOR_TYPES)
@pytest.mark.parametrize("count", [1, 3, 4])
def test_jpeg_2000_in_colours(tmp_path, rng, count, color_type):
    image = rng.integers(0, 256, (30, 40, count), np.uint8)
    require_parts_of(write(tmp_path / "a.jp2", image, **JPEG_2000), color_type)


def test_jpeg_in_ycbcr_differs_little(tmp_path):
    rng = np.random.default_rng(3)
    image = cv2.resize(rng.integers(0, 256, (8, 10, 3), np.uint8), (160, 128), interpolation=cv2.INTER_CUBIC)
    path = write(tmp_path / "a.tif", image, photometric="YCBCR", compress="JPEG", jpeg_quality=90)
    with open_pixels(path) as pixels:
        difference = pixels.read(0, 0, 128, 160).astype(int) - read_image(path)
    assert 0 < abs(difference).mean() < 1


@pytest.mark.parametrize("color_type", COLOR_TYPES)
@pytest.mark.parametrize("bits", [4, 8])
def test_a_palette(tmp_path, rng, bits, color_type):
    settings = {"driver": "GTiff", "count": 1, "height": 30, "width": 40, "dtype": "uint8", "photometric": "palette"}
    with rasterio.open(tmp_path / "a.tif", "w", **settings, nbits=bits) as file:
        file.write(rng.integers(0, 2**bits, (1, 30, 40), np.uint8))
        colours = rng.integers(0, 256, (2**bits, 3)).tolist()
        file.write_colormap(1, {index: tuple(colour) for index, colour in enumerate(colours)})
    require_parts_of(tmp_path / "a.tif", color_type)


@pytest.mark.parametrize("color_type", COLOR_TYPES)
@pytest.mark.parametrize("orientation", range(1, 9))
def test_orientations(tmp_path, rng, orientation, color_type):
    image = Image.fromarray(rng.integers(0, 256, (30, 40, 3), np.uint8))
    image.save(tmp_path / "a.tif", tiffinfo={274: orientation})
    require_parts_of(tmp_path / "a.tif", color_type)


def test_large_files_in_colours_are_read_in_parts(tmp_path, monkeypatch):
    """With an opacity, too; a file that OpenCV converts is refused if decoding would take too much memory."""
    monkeypatch.setattr("mmort.predict.pixels.read_image", None)
    image = np.full((30, 40, 4), 100, np.uint8)
    path = write(tmp_path / "a.tif", image, photometric="RGB", alpha="NON-PREMULTIPLIED")
    with open_pixels(path) as pixels:
        assert (pixels.read(0, 0, 30, 40) == 39).all()
    monkeypatch.undo()
    bomb = empty(tmp_path / "b.tif", 2**15, count=1, photometric="MINISWHITE")
    with pytest.raises(ValueError, match=r"b\.tif: states 32768 x 32768 pixels in \d+ bytes"), open_pixels(bomb):
        pass
