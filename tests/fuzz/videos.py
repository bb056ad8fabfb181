"""Videos with changed bytes: their frames, or an error; FFmpeg itself has no limits.

python -m tests.fuzz.videos --seconds 60 [--seed N] [--count N]

Half of them are longer, and cut, or have a hole among their frames: those must not seem to be whole.
"""

import itertools
import random
import struct
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import cv2
import numpy as np

from mmort.predict.video import Video
from tests.fuzz.children import Fuzzer, main

CODECS = (".avi", "MJPG"), (".avi", "MPNG"), (".mkv", "MJPG"), (".mp4", "mp4v"), (".mov", "mp4v"), (".webm", "VP80")
FRAMES, MANY_FRAMES, HEIGHT, WIDTH = 5, 60, 48, 64
NUMBERS = 0, 1, 2, 255, 4096, 8192, 16000, 30000, 65535, 2**31 - 1, 2**31, 2**32 - 1


MISSED = 20
"""Frames that may be missing without a word: those that a decoder held back, and some hidden in the damage."""


class Case(NamedTuple):
    """A file, and how many frames it has had if they are still there, or were before a part of them was lost."""

    path: Path
    frames: int | None


@cache
def video(suffix: str, codec: str, frames: int = FRAMES) -> bytes:
    """Return a video."""
    with TemporaryDirectory() as folder:
        path = f"{folder}/a{suffix}"
        writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*codec), 5, (WIDTH, HEIGHT))
        texture = np.random.default_rng(0).integers(0, 200, (HEIGHT, WIDTH, 3), np.uint8)
        for number in range(frames):
            writer.write(np.roll(texture, number, 1) if frames > FRAMES else np.full_like(texture, 40 * number))
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


def with_a_hole(rng: random.Random, suffix: str, codec: str) -> bytes:
    """Return a longer video that is cut, or lacks a part of its frames."""
    data = bytearray(video(suffix, codec, MANY_FRAMES))
    if rng.random() < 0.3:
        return bytes(data[: rng.randrange(len(data) // 4, len(data) - 8)])
    begin, end = frames_of(bytes(data))
    first, last = sorted(rng.randrange(begin, end) for _ in range(2))
    last = end if rng.random() < 0.4 else last
    data[first:last] = rng.choice((bytes(last - first), rng.randbytes(last - first)))
    return bytes(data)


def frames_of(data: bytes) -> tuple[int, int]:
    """Return where the frames of a video begin and end: behind its headers, before lists of frames at its end."""
    marks = [(b"mdat", b"moov"), (b"movi", b"idx1"), (b"\x1f\x43\xb6\x75", b"\x1c\x53\xbb\x6b")]
    for first, last in marks:
        if first in data:
            end = data.rfind(last)
            return data.index(first) + 12, (end if end > 0 else len(data)) - 8
    raise AssertionError(data[:20])


def make(rng: random.Random, folder: Path) -> Case:
    """Write a video with changes."""
    suffix, codec = rng.choice(CODECS)
    has_hole = rng.random() < 0.5
    data = bytearray(with_a_hole(rng, suffix, codec) if has_hole else video(suffix, codec))
    for _ in range(0 if has_hole else rng.choice((0, 1, 1, 2, 4, 8))):
        if data:
            changed(rng, data)
    path = folder / f"a{suffix if has_hole or rng.random() < 0.9 else rng.choice(CODECS)[0]}"
    path.write_bytes(data)
    return Case(path, MANY_FRAMES if has_hole else None)


def run(case: Case) -> None:
    """Read some frames; fewer than there were are an error, or the video states more, which is noted."""
    source, count = Video(case.path), 0
    try:
        for frame in itertools.islice(source.frames(), 2 * MANY_FRAMES):
            assert frame.image.dtype == np.uint8
            assert frame.image.ndim == 3
            count += 1
    finally:
        source.close()
    if case.frames is not None and count < case.frames - MISSED:
        assert count < (source.stated_frames or 0), f"{count} of {case.frames} frames without a word"


if __name__ == "__main__":
    cv2.setNumThreads(1)
    for kind in CODECS:
        video(*kind), video(*kind, MANY_FRAMES)
    sys.exit(main(Fuzzer("videos", make, run, (ValueError,), 50)))
