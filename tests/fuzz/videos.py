"""Videos with changed bytes: their frames, or an error; FFmpeg itself has no limits.

python -m tests.fuzz.videos --seconds 60 [--seed N] [--count N]
"""

import itertools
import random
import struct
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import numpy as np

from mmort.predict.video import Video
from tests.fuzz.children import Fuzzer, main

CODECS = (".avi", "MJPG"), (".avi", "MPNG"), (".mkv", "MJPG"), (".mp4", "mp4v"), (".mov", "mp4v"), (".webm", "VP80")
FRAMES, HEIGHT, WIDTH = 5, 48, 64
NUMBERS = 0, 1, 2, 255, 4096, 8192, 16000, 30000, 65535, 2**31 - 1, 2**31, 2**32 - 1


@cache
def video(suffix: str, codec: str) -> bytes:
    """Return a video."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/a{suffix}"
        writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*codec), 5, (WIDTH, HEIGHT))
        for number in range(FRAMES):
            writer.write(np.full((HEIGHT, WIDTH, 3), 40 * number, np.uint8))
        writer.release()
        return Path(path).read_bytes()


def changed(rng: random.Random, data: bytearray) -> None:
    """Change bytes, replace a number, cut the end, or repeat a part."""
    position, kind = rng.randrange(len(data)), rng.randrange(5)
    if kind == 0:
        data[position] = rng.randrange(256)
    elif kind in (1, 2):  # headers are at the beginning, or in MP4 files at the end
        position = rng.choice((position, rng.randrange(min(400, len(data))), len(data) - 1 - rng.randrange(600)))
        form = rng.choice(("<I", ">I", "<H", ">H"))
        number = struct.pack(form, rng.choice(NUMBERS) % 2 ** (8 * struct.calcsize(form)))
        data[position : position + len(number)] = number
    elif kind == 3:
        del data[position:]
    else:
        data[position:position] = data[position : position + rng.randrange(1000)]


def make(rng: random.Random, folder: Path) -> Path:
    """Write a video with changes."""
    suffix, codec = rng.choice(CODECS)
    data = bytearray(video(suffix, codec))
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        if data:
            changed(rng, data)
    path = folder / f"a{suffix if rng.random() < 0.9 else rng.choice(CODECS)[0]}"
    path.write_bytes(data)
    return path


def run(path: Path) -> None:
    """Read some frames."""
    source = Video(path)
    try:
        for frame in itertools.islice(source.frames(), 2 * FRAMES):
            assert frame.image.dtype == np.uint8
            assert frame.image.ndim == 3
    finally:
        source.close()


if __name__ == "__main__":
    cv2.setNumThreads(1)
    for kind in CODECS:
        video(*kind)
    sys.exit(main(Fuzzer("videos", make, run, (ValueError,), 50)))
