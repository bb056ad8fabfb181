"""Image files that ask for much memory: what their headers state is what OpenCV decodes, and is refused before."""

import contextlib
import io
import os
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import PIL.Image
import pytest

from mmort import images
from mmort.images import sizes
from mmort.predict import read_image

SHAPES = (1, 1), (3, 7), (40, 16), (16, 300)
OPENCV_SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".hdr", ".jpg", ".pam", ".pbm"),
    *(".pfm", ".pgm", ".png", ".ppm", ".sr", ".tiff", ".webp"),
)


def encoded(suffix, shape, *parameters):
    pixels = np.random.default_rng(0).integers(0, 256, (*shape, 3), np.uint8)
    if suffix in (".hdr", ".pfm"):
        pixels = np.float32(pixels)
    if suffix in (".pbm", ".pgm"):
        pixels = pixels[:, :, 0].copy()
    return cv2.imencode(suffix, pixels, parameters)[1].tobytes()


def saved(mode, shape, format, **settings):
    file = io.BytesIO()
    PIL.Image.new(mode, shape[::-1]).save(file, format, **settings)
    return file.getvalue()


def bmp(width, height):
    """Return a file of one run of black; its rows begin at the top if the height is negative."""
    header = struct.pack("<IIIIiiHHIIIIII", 1080, 0, 1078, 40, width, height, 1, 8, 1, 0, 0, 0, 0, 0)
    return b"BM" + header + bytes(1024) + b"\0\1"


def old_bmp(width, height):
    rows = bytes((width * 3 + 3) // 4 * 4 * height)
    return b"BM" + struct.pack("<IIIIHHHH", 26 + len(rows), 0, 26, 12, width, height, 1, 24) + rows


def tiff(order, *, big=False, width=9, height=7, tile=None, kind=4):
    """Return a grey file, in one strip or one tile."""
    data = zlib.compress(bytes(width * height if tile is None else tile[0] * tile[1]))
    tags = {256: width, 257: height, 258: 8, 259: 8, 262: 1, 277: 1}
    tags |= (
        {273: 0, 278: height, 279: len(data)} if tile is None else {322: tile[0], 323: tile[1], 324: 0, 325: len(data)}
    )
    start = 16 if big else 8
    end = start + (8 + len(tags) * 20 + 8 if big else 2 + len(tags) * 12 + 4)
    tags[273 if tile is None else 324] = end
    entries = b""
    for tag, value in sorted(tags.items()):
        type = 3 if tag in (258, 259, 262, 277) else kind
        field = struct.pack(order + {1: "B", 3: "H", 4: "I", 16: "Q"}[type], value).ljust(8 if big else 4, b"\0")
        entries += struct.pack(order + ("HHQ" if big else "HHI"), tag, type, 1) + field
    head = struct.pack(order + "HHHQ", 43, 8, 0, start) if big else struct.pack(order + "HI", 42, start)
    count = struct.pack(order + ("Q" if big else "H"), len(tags))
    return {"<": b"II", ">": b"MM"}[order] + head + count + entries + bytes(8 if big else 4) + data


VARIANTS = {
    "bmp_from_the_top": lambda shape: bmp(shape[1], -shape[0]),
    "bmp_of_os2": lambda shape: old_bmp(*shape[::-1]),
    "jpeg_progressive": lambda shape: encoded(".jpg", shape, cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "jpeg_cmyk": lambda shape: saved("CMYK", shape, "jpeg", comment=b"\xff\xc0\0\x11\x08\0\1\0\1"),
    "jpeg_filled": lambda shape: saved("L", shape, "jpeg").replace(b"\xff\xc0", b"\xff\xff\xff\xc0", 1),
    "png_of_bits": lambda shape: saved("1", shape, "png"),
    "png_animated": lambda shape: saved(
        "RGBA", shape, "png", save_all=True, append_images=[PIL.Image.new("RGBA", shape[::-1], (9, 9, 9, 9))]
    ),
    "webp_lossy": lambda shape: encoded(".webp", shape, cv2.IMWRITE_WEBP_QUALITY, 50),
    "webp_lossless": lambda shape: saved("RGB", shape, "webp", lossless=True),
    "webp_alpha": lambda shape: saved("RGBA", shape, "webp"),
    "tiff_deflate": lambda shape: saved("RGB", shape, "tiff", compression="tiff_deflate"),
    "tiff_big_endian": lambda shape: tiff(">", width=shape[1], height=shape[0]),
    "tiff_short": lambda shape: tiff("<", width=shape[1], height=shape[0], kind=3),
    "tiff_big": lambda shape: tiff("<", big=True, width=shape[1], height=shape[0], kind=16),
    "tiff_big_of_big_endian": lambda shape: tiff(">", big=True, width=shape[1], height=shape[0]),
    "jp2": lambda shape: saved("RGB", shape, "jpeg2000", num_resolutions=1),
    "j2k": lambda shape: saved("RGB", shape, "jpeg2000", num_resolutions=1, no_jp2=True),
    "pnm_with_comments": lambda shape: b"P5 # 1 2\n#3\n%d\n#4\n%d 255\n" % shape[::-1] + bytes(shape[0] * shape[1]),
    "pnm_as_text": lambda shape: b"P2\t%d\r%d\n9 " % shape[::-1] + b"8 " * (shape[0] * shape[1]),
    "pfm_grey": lambda shape: cv2.imencode(".pfm", np.ones(shape, np.float32))[1].tobytes(),
    **{suffix: lambda shape, suffix=suffix: encoded(suffix, shape) for suffix in OPENCV_SUFFIXES},
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_size_that_opencv_decodes(name, shape):
    data = VARIANTS[name](shape)
    asked = sizes.demand(data)
    assert (asked.height, asked.width) == shape
    assert images.decode_image(data).shape == (*shape, 3)


def test_every_format_that_opencv_reads_is_known():
    """A format that a newer OpenCV writes here needs a row."""
    for suffix in [*OPENCV_SUFFIXES, ".jp2", ".exr", ".jxl", ".ras", ".dib", ".jpe", ".pnm"]:
        try:
            written, data = cv2.imencode(suffix, np.zeros((64, 64, 3), np.uint8))
        except cv2.error:
            continue
        assert not written or sizes.demand(data.tobytes()) is not None, suffix


def patched(data, old, new):
    assert data.count(old) == 1
    return data.replace(old, new)


N = 30_000
LITTLE, BIG = struct.pack("<HH", 300, 16), struct.pack(">II", 300, 16)
LOSSY_WEBP = encoded(".webp", (16, 300), cv2.IMWRITE_WEBP_QUALITY, 50)
BOMBS = {
    "bmp": bmp(N, N),
    "bmp_from_the_top": bmp(N, -N),
    "gif": encoded(".gif", (16, 300)).replace(LITTLE, struct.pack("<HH", N, N)),
    "png": patched(encoded(".png", (16, 300)), BIG, struct.pack(">II", N, N)),
    "jpeg": patched(encoded(".jpg", (16, 300)), struct.pack(">HH", 16, 300), struct.pack(">HH", N, N)),
    "webp": patched(
        encoded(".webp", (16, 300), cv2.IMWRITE_WEBP_QUALITY, 50), LITTLE, struct.pack("<HH", 16383, 16383)
    ),
    "webp_lossless": b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 16382 | 16382 << 14),
    "webp_canvas": b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + 2 * (N - 1).to_bytes(3, "little"),
    "tiff": tiff("<", width=300, height=16)
    .replace(struct.pack("<I", 300), struct.pack("<I", N))
    .replace(struct.pack("<II", 1, 16), struct.pack("<II", 1, N)),
    "tiff_tile": tiff(">", tile=(16, 16)).replace(struct.pack(">II", 1, 16), struct.pack(">II", 1, N)),
    "ppm": b"P6 30000 30000 255\n",
    "pam": b"P7\nWIDTH 30000\nHEIGHT 30000\nDEPTH 3\nMAXVAL 255\nENDHDR\n",
    "pfm": b"PF\n30000 30000\n-1\n",
    "hdr": patched(encoded(".hdr", (16, 300)), b"-Y 16 +X 300", b"-Y 30000 +X 30000"),
    "sr": patched(encoded(".sr", (16, 300)), BIG, struct.pack(">II", N, N)),
    "jp2": saved("RGB", (16, 300), "jpeg2000", num_resolutions=1).replace(BIG, struct.pack(">II", N, N)),
    "avif": patched(encoded(".avif", (16, 300)), BIG, struct.pack(">II", N, N)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_images_that_a_small_file_states(name, tmp_path):
    (tmp_path / "bomb").write_bytes(BOMBS[name])
    side = 16383 if name in ("webp", "webp_lossless") else N
    with pytest.raises(
        ValueError, match=rf"bomb: states {side} x {side} pixels in \d+ bytes, for which decoding may take"
    ):
        read_image(tmp_path / "bomb")


def test_a_limit_of_the_user_replaces_that_of_memory(monkeypatch):
    monkeypatch.setattr(images, "MAX_DECODING_BYTES", 1000)
    data = saved("1", (100, 300), "png")
    with pytest.raises(ValueError, match=r"300 x 100 pixels .* OPENCV_IO_MAX_IMAGE_PIXELS to 30000"):
        images.decode_image(data)
    monkeypatch.setenv("OPENCV_IO_MAX_IMAGE_PIXELS", "30000")
    assert images.decode_image(data).shape == (100, 300, 3)


def test_a_limit_of_opencv_is_named(tmp_path):
    """OpenCV reads the variable when it is imported."""
    (tmp_path / "x.png").write_bytes(saved("1", (100, 300), "png"))
    code = "import sys; from mmort.images import read_image; read_image(sys.argv[1])"
    environment = os.environ | {"OPENCV_IO_MAX_IMAGE_PIXELS": "20000"}
    command = [sys.executable, "-c", code, str(tmp_path / "x.png")]
    error = subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr
    assert error.endswith("x.png: states 300 x 100 pixels, and OPENCV_IO_MAX_IMAGE_PIXELS allows 20000\n")


def test_a_large_file_may_take_more(monkeypatch):
    monkeypatch.setattr(images, "MAX_DECODING_BYTES", 1000)
    assert images.decode_image(encoded(".jpg", (100, 300))).shape == (100, 300, 3)


@pytest.mark.parametrize("name", VARIANTS)
def test_headers_that_end_early(name):
    data = VARIANTS[name]((3, 7))
    for length in range(60):
        with contextlib.suppress(ValueError):  # and no other error
            sizes.demand(data[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"P5 " + b"9" * 10_000 + b" 1 255\n",
        b"P7\nWIDTH 3\nENDHDR\n",
        b"II+\0\x08\0\0\0" + b"\xff" * 40,
        b"II*\0" + b"\xff" * 40,
        b"\xff\xd8\xff\xd9",
        b"#?RADIANCE\n\n",
        b"\0\0\0\x0cjP  \r\n\x87\n" + struct.pack(">I4sQ", 1, b"jp2c", 0),
        struct.pack(">I4s4s", 12, b"ftyp", b"avif"),
    ],
)
def test_headers_without_a_size(data):
    with pytest.raises(ValueError, match=r"not an image|pixels"):
        images.decode_image(data)
