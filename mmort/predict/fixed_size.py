"""Files that take inputs of one size only: how images get into them, and what that costs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mmort.contract.preprocessing import Preprocessing
from mmort.limits import MAX_BATCH_PIXELS

MIN_COST = 1.15  # times the pixels of an image's own input; less is not worth a number


class FixedSizeWarning(UserWarning):
    """A file takes inputs of one size only, and images are padded to it, which changes what is detected."""


def fit(
    input: NDArray[np.float32], img_shape: NDArray[np.int64], shape: tuple[int | None, int | None, int | None]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Pad a batch with zeros to the shape that a file fixes."""
    size = len(input), *input.shape[2:]
    if all(expected in (None, actual) for expected, actual in zip(shape, size, strict=True)):
        return input, img_shape
    number, height, width = (expected or actual for expected, actual in zip(shape, size, strict=True))
    if size[1] > height or size[2] > width:
        raise ValueError(
            f"the preprocessed image is {size[1]} x {size[2]}, but the model takes {height} x {width} only; export "
            "it without --static and --shape, so that it takes all sizes, or pass a Preprocessing with a size that fits"
        )
    if size[0] > number:
        raise ValueError(f"the model takes {number} images in a batch, got {size[0]}")
    if number * height * width > MAX_BATCH_PIXELS:
        raise ValueError(
            f"padding to {number} images of {height} x {width} makes more than {MAX_BATCH_PIXELS} pixels, the limit; "
            "export the model without --static and --shape, or for smaller inputs"
        )
    padded = np.zeros((number, input.shape[1], height, width), np.float32)
    padded[: size[0], :, : size[1], : size[2]] = input
    unused = np.tile(np.array([height, width], np.int64), (number - size[0], 1))
    return padded, np.concatenate([img_shape, unused])


def mismatch(preprocessing: Preprocessing, height: int, width: int) -> str | None:
    """Return how images are changed for a file that takes inputs of one size only; None if all of them have it.

    Examples
    --------
    >>> from mmort.predict import Preprocessing
    >>> from mmort.predict.fixed_size import mismatch
    >>> preprocessing = Preprocessing(size=(640, 640), keep_ratio=False)
    >>> mismatch(preprocessing, 800, 1216)
    'the test pipeline makes inputs of 640 x 640; padding them changes what is detected and takes 2.4 times as long'
    >>> mismatch(preprocessing, 320, 320)
    'the test pipeline makes inputs of 640 x 640, which do not fit'
    >>> mismatch(preprocessing, 640, 640) is None
    True
    """
    fixed, largest = preprocessing.fixed_shape, preprocessing.largest_shape
    if fixed == (height, width):
        return None
    if preprocessing.size is None or largest is None:
        return (
            "the test pipeline keeps the sizes of images: smaller ones are padded, which changes what is detected, and "
            "larger ones do not fit"
        )
    short, long = sorted(fixed or preprocessing.size)
    makes = f"makes inputs of {fixed[0]} x {fixed[1]}" if fixed else f"fits images into {short} x {long}"
    if min(height, width) < short or (fixed and (height < fixed[0] or width < fixed[1])):
        return f"the test pipeline {makes}, which do not fit"
    refused = "" if height >= largest[0] and width >= largest[1] else "; some do not fit"
    return f"the test pipeline {makes}; padding them {effect(height * width / (short * long))}{refused}"


def effect(pixels: float) -> str:
    """Return the effect of padding to this multiple of an input's pixels."""
    time = f" and takes {pixels:.{0 if pixels >= 10 else 1}f} times as long" if pixels >= MIN_COST else ""
    return f"changes what is detected{time}"
