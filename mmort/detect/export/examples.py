"""Inputs made from an image: to trace a detector, to compare its file with torch, and to verify the file."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mmort.contract import Preprocessing
from mmort.contract.padding import multiple
from mmort.contract.tasks import IMG_SHAPE, INPUT, PROPOSALS
from mmort.detect.detector import Detector
from mmort.images import Image
from mmort.onnx.verify.operator_calls import Intercepted
from mmort.predict.fixed_size import fit

DEFAULT_SHAPE = 800, 1216
STRIDE = 32  # pixels; sides are multiples of it, and of the divisor of the preprocessing
MAX_TEST_SIDE = 1344  # pixels
SUFFICIENT_SIDE = 800  # pixels; no network is known that freezes a size here, and larger images take long
MIN_SIDE = 160  # pixels; torch freezes a size of 1, which the coarsest map has below 129


class Examples:
    """Makes the arguments of an exported detector: ``input``, and on demand ``proposals`` and ``img_shape``."""

    def __init__(
        self, preprocessing: Preprocessing, *, dynamic: bool, with_shapes: bool, with_proposals: bool = False
    ) -> None:
        self.preprocessing, self.dynamic = preprocessing, dynamic
        self.with_shapes, self.with_proposals = with_shapes, with_proposals

    @property
    def dynamic_shapes(self) -> dict[str, Any] | None:
        """The argument of `mmort.onnx.export`."""
        shapes: dict[str, Any] = {INPUT.name: {0: "batch", 2: "height", 3: "width"} if self.dynamic else None}
        if self.with_proposals:  # images differ in their number even where they have one size
            shapes[PROPOSALS.name] = {0: "batch", 1: "proposal"} if self.dynamic else {1: "proposal"}
        elif not self.dynamic:
            return None
        if self.with_shapes:
            shapes[IMG_SHAPE.name] = {0: "batch"} if self.dynamic else None
        return shapes

    def default_shape(self) -> tuple[int, int]:
        """Return the height and width to trace with if none are given.

        Of a file of fixed size, that is the smallest input that holds every image of the test pipeline.  A file for all
        sizes is traced with the size of the test pipeline's images, at which objects are found.

        Raises
        ------
        ValueError
            If a file of fixed size is to be made, and the test pipeline keeps the sizes of images.
        """
        if not self.dynamic:
            shape = self.preprocessing.largest_shape
            if shape is None:
                raise ValueError(
                    "export: shape (--shape H W) is needed, as the test pipeline keeps the sizes of images"
                )
            return shape
        size = self.preprocessing.size
        if self.preprocessing.padding is not None and self.preprocessing.fixed_shape is not None:
            return self.preprocessing.fixed_shape
        if size is None:
            return DEFAULT_SHAPE
        if self.preprocessing.keep_ratio:
            sides = zip(sorted(size), DEFAULT_SHAPE, strict=True)
            height, width = (self.rounded(max(MIN_SIDE, min(side, limit))) for side, limit in sides)
            return height, width
        return 2 * size[1], 2 * size[0]  # torch freezes a size of 1, which SSD's last map has at its own size

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
        args = [torch.from_numpy(input)]
        if self.with_proposals:
            args.append(proposals(torch.tensor(shapes)))
        return (*args, torch.tensor(shapes)) if self.with_shapes else tuple(args)

    def resizing(self, height: int, width: int) -> Preprocessing:
        """Return a preprocessing that makes any image this size."""
        return replace(
            self.preprocessing, size=(width, height), keep_ratio=False, size_divisor=1, pad_or=0, padding=None
        )

    def checks(self, image: Image, height: int, width: int) -> list[tuple[Tensor, ...]]:
        """Return inputs to compare with; if sizes may vary, of two other sizes, one tall and one wide."""
        if not self.dynamic:
            args = self(image[::-1], 1, height, width)
            other = [args[0].flip(-1), *args[1:]]
            if self.with_proposals:
                other[1] = args[1][:, ::2]
            if self.with_shapes:
                other[-1] = args[-1] - args[-1] // 8
            return [args, tuple(other)]
        if not self.preprocessing.keep_ratio:
            # Where all images are resized to one size, frozen maps of 1 pixel only show at much larger sizes.
            min_side, factors = 64, (0.5, 1.125)
        elif 2 * max(height, width) <= max(DEFAULT_SHAPE):
            # A small example may freeze what only larger inputs have, such as more boxes than nms_pre.
            min_side, factors = 64, (0.5, 2)
        else:  # small inputs, as all values are compared there
            min_side, factors = 96, (0.15, 0.2)
        short, long = (
            [self.rounded(max(min_side, side * factor)) for factor in factors] for side in sorted((height, width))
        )
        step = self.preprocessing.pad_or + 1 if self.preprocessing.pad_or else self.stride
        return [
            self(image, 1, max(long[1], short[1] + step), short[1]),
            self(image, 3, short[0], max(long[0], short[0] + step)),
        ]

    def prepared(self, image: Image) -> tuple[Tensor, ...]:
        """Return the input that `Predictor` makes of an image, which has the test pipeline's own size."""
        shape = (None, None, None) if self.dynamic else (1, *self.default_shape())
        input, img_shape = map(torch.from_numpy, fit(*self.preprocessing.batch([self.preprocessing(image)]), shape))
        args = (input, proposals(img_shape)) if self.with_proposals else (input,)
        return (*args, img_shape) if self.with_shapes else args

    def test_inputs(self, image: Image, height: int, width: int) -> tuple[Tensor, ...]:
        """Return inputs to verify with; if sizes may vary, of a further size."""
        if not self.dynamic:
            return self(image, 1, height, width)
        return self(image, 2, *(self.rounded(min(MAX_TEST_SIDE, side * 1.5)) for side in (height, width)))

    def rounded(self, side: float) -> int:
        """Return the next side that suits the network: a multiple of `stride`, odd for CornerNet's padding."""
        pad_or = self.preprocessing.pad_or
        if pad_or:
            return (int(side) | pad_or) + self.preprocessing.pad_add
        return multiple(int(side), self.stride)

    @property
    def stride(self) -> int:
        """The number of pixels that divides all sides: some networks, such as NAS-FPN, fail with others."""
        return math.lcm(STRIDE, self.preprocessing.size_divisor)


def proposals(img_shape: Tensor) -> Tensor:
    """Return boxes [N, P, 4] of several sizes all over images of heights and widths [N, 2]; the last row is unused."""
    boxes = [
        (x, y, x + width, y + height)
        for cells in (1, 2, 4, 8)
        for width, height in ((1 / cells, 1 / cells), (0.5 / cells, 1 / cells))
        for x in (column / cells for column in range(cells))
        for y in (row / cells for row in range(cells))
    ]
    shares = torch.tensor([*boxes, (0.0, 0.0, 0.0, 0.0)])
    return shares * img_shape[:, None, [1, 0, 1, 0]]


def sufficient_shape(
    detector: Detector, channels: int, height: int, width: int, rounded: Callable[[int], int]
) -> tuple[int, int]:
    """Return a height and a width, doubled as often as is needed, at which backbone and neck have no size to freeze.

    torch takes a size of 1 for a constant.  Where a small image makes one, and a larger image more (the coarsest map,
    or the windows of a Swin Transformer along a side), the file would fail with larger images.

    Parameters
    ----------
    detector : Detector
    channels : int
        Those of its images.
    height, width : int
        The sides to begin with.
    rounded : callable
        Returns the next side that suits the network.
    """
    shapes = None
    while min(height, width) < SUFFICIENT_SIDE:
        larger = rounded(2 * height), rounded(2 * width)
        shapes, next_shapes = shapes or _shapes(detector, channels, height, width), _shapes(detector, channels, *larger)
        if not any(map(_freezes, shapes, next_shapes)):
            break
        (height, width), shapes = larger, next_shapes
    return height, width


def _shapes(detector: Detector, channels: int, height: int, width: int) -> list[torch.Size]:
    """Return the shapes of all that is computed up to the neck's maps."""
    shapes: list[torch.Size] = []

    def note(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        outputs = func(*args, **kwargs)
        shapes.extend(output.shape for output in tree_leaves(outputs) if isinstance(output, Tensor))
        return outputs

    with torch.no_grad(), Intercepted(note):
        detector.levels(torch.zeros(1, channels, height, width))
    return shapes


def _freezes(shape: torch.Size, larger: torch.Size) -> bool:
    """Return whether a tensor has a size of 1 that is more in a larger image."""
    return any(size == 1 < more for size, more in zip(shape, larger, strict=False))
