"""Inputs made from an image: to trace a detector, to compare its file with torch, and to verify the file."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmort.predict import Preprocessing
from mmort.predict.images import Image

DEFAULT_SHAPE = 800, 1216
STRIDE = 32  # pixels; sides are multiples of it
MAX_TEST_SIDE = 1344  # pixels
MIN_SIDE = 160  # pixels; torch freezes a size of 1, which the coarsest map has below 129


class Examples:
    """Makes the arguments of an exported detector: ``input``, and ``img_shape`` if `with_shapes`."""

    def __init__(self, preprocessing: Preprocessing, *, dynamic: bool, with_shapes: bool) -> None:
        self.preprocessing, self.dynamic, self.with_shapes = preprocessing, dynamic, with_shapes

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """The argument of `mmort.onnx.export`."""
        if not self.dynamic:
            return None
        shapes: dict[str, Any] = {"input": {0: "batch", 2: "height", 3: "width"}}
        return shapes | {"img_shape": {0: "batch"}} if self.with_shapes else shapes

    def default_shape(self) -> tuple[int, int]:
        """Return the height and width to trace with if none are given.

        A file for all sizes is traced with the size of the test pipeline's images, at which objects are found.
        """
        if padded := self.preprocessing.fixed_shape:
            return padded
        if self.preprocessing.size is None or (self.preprocessing.keep_ratio and not self.dynamic):
            return DEFAULT_SHAPE
        if self.preprocessing.keep_ratio:
            sides = zip(sorted(self.preprocessing.size), DEFAULT_SHAPE, strict=True)
            height, width = (self.rounded(max(MIN_SIDE, min(side, limit))) for side, limit in sides)
            return height, width
        # torch freezes a size of 1, which SSD's last map has at its own size.
        width, height = (2 * side if self.dynamic else side for side in self.preprocessing.size)
        return height, width

    def __call__(self, image: Image, batch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Return a batch of exactly one size: the image and its mirror image in turn.

        Each image of the batch is smaller than the one before, so that ``img_shape`` matters.
        """
        inputs, shapes = [], []
        for index in range(batch):
            own_height, own_width = (max(1, side - side * index // 8) for side in (height, width))
            prepare = self.resizing(own_height, own_width)
            inputs.append(prepare(np.ascontiguousarray(image[:, ::-1]) if index % 2 else image))
            shapes.append((own_height, own_width))
        input, _ = self.preprocessing.batch(inputs)
        return (torch.from_numpy(input), torch.tensor(shapes)) if self.with_shapes else (torch.from_numpy(input),)

    def resizing(self, height: int, width: int) -> Preprocessing:
        """Return a preprocessing that makes any image this size."""
        return replace(
            self.preprocessing, size=(width, height), keep_ratio=False, size_divisor=1, pad_or=0, padding=None
        )

    def checks(self, image: Image, height: int, width: int) -> list[tuple[Tensor, ...]]:
        """Return inputs to compare with; if sizes may vary, of two other sizes, one tall and one wide."""
        if not self.dynamic:
            args = self(image[::-1], 1, height, width)
            return [args, (args[0].flip(-1), *args[1:])]
        # Where all images are resized to one size, frozen feature maps of 1 pixel only show at much larger sizes.
        min_side, factors = (64, (0.5, 0.3)) if self.preprocessing.keep_ratio else (544, (1.125, 1.25))
        if self.preprocessing.keep_ratio and 2 * max(height, width) <= max(DEFAULT_SHAPE):
            factors = 2, 0.5  # a small example may freeze what only larger inputs have, such as more boxes than nms_pre
        short, long = (
            [self.rounded(max(min_side, side * factor)) for factor in factors] for side in sorted((height, width))
        )
        step = self.preprocessing.pad_or + 1 if self.preprocessing.pad_or else STRIDE
        return [
            self(image, 1, max(long[0], short[0] + step), short[0]),
            self(image, 3, short[1], max(long[1], short[1] + step)),
        ]

    def test_inputs(self, image: Image, height: int, width: int) -> tuple[Tensor, ...]:
        """Return inputs to verify with; if sizes may vary, of a further size."""
        if not self.dynamic:
            return self(image, 1, height, width)
        return self(image, 2, *(self.rounded(min(MAX_TEST_SIDE, side * 1.5)) for side in (height, width)))

    def rounded(self, side: float) -> int:
        """Return the next side that suits the network: a multiple of 32, or an odd one for CornerNet's padding."""
        pad_or = self.preprocessing.pad_or
        return (int(side) | pad_or) + self.preprocessing.pad_add if pad_or else -(-int(side) // STRIDE) * STRIDE
