"""Random picture files, damaged and hostile: predict reads and resizes each, or refuses it, within limits.

python -m tests.fuzz.images --seconds 60 [--seed N] [--count N]

Many state other sizes than they have.
"""

import os
import random
import struct
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np

from mmort.images import read_image, resize
from tests.fuzz.children import Fuzzer, main

SUFFIXES = (".png", ".jpg", ".jpg", ".bmp", ".webp", ".tiff", ".ppm", ".pbm", ".hdr", ".jp2", ".exr", ".gif", ".sr")


def picture(rng: random.Random) -> bytes:
    """Return a valid file, if OpenCV can write one of its kind."""
    shape = rng.choice((1, 2, 17, 64)), rng.choice((1, 3, 33)), rng.choice((1, 3, 4))
    dtype = rng.choice((np.uint8, np.uint8, np.uint16, np.float32))
    pixels = (np.random.default_rng(rng.getrandbits(64)).random(shape) * 255).astype(dtype)
    try:
        written, data = cv2.imencode(rng.choice(SUFFIXES), pixels)
    except cv2.error:
        written = False
    return data.tobytes() if written else cv2.imencode(".png", pixels.astype(np.uint8))[1].tobytes()


def large_png(rng: random.Random) -> bytes:
    """Return a PNG file that states a size of its own."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    width, height = (rng.choice((0, 1, 5, 4096, 4097, 2**16, 2**31 - 1, 2**32 - 1)) for _ in range(2))
    kind = rng.choice((0, 2, 3, 4, 6, 9))
    header = struct.pack(">IIBBBBB", width, height, rng.choice((1, 8, 16)), kind, 0, 0, rng.randrange(2))
    data = zlib.compress(bytes(rng.choice((0, 10, 100_000))))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def enlarged(rng: random.Random) -> bytes:
    """Return a file whose header states another size than it has."""
    shape = 291, 529  # whose bytes are rare
    pixels = np.full((*shape, rng.choice((1, 3, 4))), rng.randrange(256), rng.choice((np.uint8, np.uint16, np.float32)))
    suffix = rng.choice((*SUFFIXES, ".avif", ".pam", ".pfm", ".pgm"))
    try:
        written, array = cv2.imencode(suffix, pixels, [cv2.IMWRITE_JPEG_PROGRESSIVE, rng.randrange(2)])
    except cv2.error:
        written, array = cv2.imencode(".bmp", pixels.astype(np.uint8))
    data = array.tobytes() if written else b""
    for side in shape:
        new = min(rng.choice((1, 4000, 6400, 30_000, 2**16 - 1, 2**20, 2**31 - 1)), rng.choice((2**16 - 1, 2**31 - 1)))
        data = data.replace(b"%d" % side, b"%d" % new)
        for layout in ("<I", ">I", *(("<H", ">H") if new < 2**16 else ())):
            data = data.replace(struct.pack(layout, side), struct.pack(layout, new), 2)
    return data


def with_exif(rng: random.Random, data: bytes) -> bytes:
    """Return a JPEG file that asks for a rotation, or something like it."""
    entry = struct.pack("<HHIHH", 0x0112, rng.randrange(6), rng.choice((1, 0, 2**31)), rng.randrange(12), 0)
    body = b"Exif\0\0II*\0" + struct.pack("<IH", rng.choice((8, 8, 0, 2**31)), rng.choice((1, 1, 9))) + entry
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(body) + 2) + body + data[2:]


def write(rng: random.Random, folder: Path) -> Path:
    """Write a file."""
    kind = rng.random()
    data = large_png(rng) if kind < 0.1 else enlarged(rng) if kind < 0.4 else picture(rng)
    if data[:2] == b"\xff\xd8" and rng.random() < 0.5:
        data = with_exif(rng, data)
    damaged = bytearray(data)
    for _ in range(rng.choice((0, 0, 1, 2, 10))):
        position = rng.randrange(len(damaged) + 1)
        damaged[position : position + rng.randrange(5)] = rng.randbytes(rng.randrange(5))
    path = folder / f"picture{rng.choice(('.png', '.jpg', ''))}"
    path.write_bytes(damaged[: rng.choice((len(damaged), len(damaged), rng.randrange(len(damaged) + 1)))])
    return path


def read(path: Path) -> None:
    """Read a file as predict does, and resize it."""
    image = read_image(path)
    assert image.dtype == np.uint8
    assert image.ndim == 3
    assert image.shape[2] == 3
    assert min(image.shape) > 0
    assert resize(image, 32, 24).shape == (24, 32, 3)


if __name__ == "__main__":
    cv2.setNumThreads(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # a line from libpng or libjpeg for each damaged file
    cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
    sys.exit(main(Fuzzer("pictures", write, read, (ValueError, OSError), 100)))
