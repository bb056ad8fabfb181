"""The images that both sides read from files: random shapes on random ground, of different sizes."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

SIZES = (75, 96), (100, 70)
"""Height and width: one image is wide, the other is tall, so that a batch of both is padded in both directions."""


def _image(height: int, width: int) -> NDArray[np.uint8]:
    """Return smooth ground with noise and rectangles, whose content depends on the size alone."""
    random = np.random.default_rng([height, width])
    coarse = random.integers(0, 256, (6, 8, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR).astype(np.float64)
    for _ in range(8):
        top, left = random.integers(0, height - 8), random.integers(0, width - 8)
        bottom, right = top + random.integers(6, height // 2), left + random.integers(6, width // 2)
        image[top:bottom, left:right] = random.integers(0, 256, 3)
    return (image + random.normal(0, 12, image.shape)).clip(0, 255).astype(np.uint8)


@cache
def image_files() -> tuple[str, ...]:
    """Write the images once per process, and return their paths."""
    folder = Path(tempfile.mkdtemp(prefix="originals-"))
    paths = []
    for height, width in SIZES:
        path = folder / f"{width}x{height}.png"
        assert cv2.imwrite(str(path), _image(height, width))
        paths.append(str(path))
    return tuple(paths)
