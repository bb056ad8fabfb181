"""The tracking example: digits that move through a video keep their numbers."""

import pathlib
import subprocess
import sys

import cv2
import numpy as np
import pytest

from mmort.demo import IMAGES, MODEL
from mmort.predict import read_image

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "track" / "track.py"
FRAMES = 12


@pytest.fixture
def clip(tmp_path):
    """Four digits that move two pixels to the right in each frame."""
    image, path = read_image(IMAGES[2]), tmp_path / "clip.mp4"
    height, width = image.shape[:2]
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"mp4v"), 10, (width, height))
    for number in range(FRAMES):
        writer.write(np.ascontiguousarray(np.roll(image, 2 * number, axis=1)))
    writer.release()
    return path


def test_digits_keep_their_numbers(clip):
    done = subprocess.run([sys.executable, EXAMPLE, MODEL, clip], capture_output=True, text=True, check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [int(number) for number, *_ in lines] == list(range(FRAMES))
    assert len(set(lines[-1][1:])) == len(lines[-1][1:])
    kept = set.intersection(*(set(objects) for _, *objects in lines[2:]))
    assert {name.partition("#")[0] for name in kept} >= {"six", "seven"}
