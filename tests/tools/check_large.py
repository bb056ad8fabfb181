"""Call operators with a million boxes, maps of 16,384 x 16,384 pixels and arrays of more than 2**31 elements.

    python -m tests.tools.check_large     # two minutes, 9 GB of memory

Prints a line for each call: right, or the message by which it is refused; fails if a result is wrong.  Most inputs are
zeros but for their last elements, so that they take little memory and a wrong index shows.  Run by hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mmort

BEYOND = 2**31
Array = NDArray[Any]


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def overlaps(boxes: Array, references: Array) -> Array:
    """Return the intersection over union of each box with all others."""
    sides = np.minimum(boxes[:, None, 2:], references[:, 2:]) - np.maximum(boxes[:, None, :2], references[:, :2])
    common = sides.clip(0).prod(2)
    areas, other_areas = (np.prod(x[:, 2:] - x[:, :2], axis=1) for x in (boxes, references))
    return common / (areas[:, None] + other_areas - common)


def million_boxes() -> bool:
    """Of some kept boxes none may overlap a better kept one; each of some suppressed ones must."""
    rng = np.random.default_rng(0)
    corners = rng.random((1_000_000, 2), np.float32) * 10_000
    boxes = np.concatenate([corners, corners + 10 + 90 * rng.random((len(corners), 2), np.float32)], 1)
    scores = rng.permutation(len(boxes)).astype(np.float32)
    kept = mmort.nms(boxes, scores, 0.5)[1]
    suppressed = np.setdiff1d(np.arange(len(boxes)), kept)
    right = bool((np.diff(scores[kept]) < 0).all())
    for chosen, expected in ((rng.choice(kept, 100), False), (rng.choice(suppressed, 100), True)):
        for index in chosen:
            better = kept[scores[kept] > scores[index]]
            right &= bool((overlaps(boxes[index : index + 1], boxes[better]) > 0.5).any()) == expected
    return right


def corner_pool() -> bool:
    input = np.random.default_rng(0).random((1, 1, 16_384, 16_384), np.float32)
    result = mmort.corner_pool(input, "right")
    rows = np.random.default_rng(1).integers(0, 16_384, 20)
    return np.array_equal(result[0, 0, rows], np.maximum.accumulate(input[0, 0, rows], axis=1))


def grid_sample(channels: int, side: int) -> bool:
    input, grid = zeros(1, channels, side, side), np.ones((1, 1, 3, 2), np.float32)
    input[0, :, -1, -1] = np.arange(1, channels + 1)
    samples = mmort.grid_sample(input, grid, align_corners=True)
    return np.array_equal(samples[0, :, 0], np.arange(1, channels + 1)[:, None].repeat(3, 1))


def roi_align() -> bool:
    input = zeros(1, 2, 32_769, 32_768)
    input[0, 1, -8:, -8:] = 5
    rois = np.array([[0, 32_768 - 7, 32_769 - 7, 32_768 - 1, 32_769 - 1]], np.float32)
    pooled = mmort.roi_align(input, rois, 2, 1.0, 2)
    return np.array_equal(pooled[0, :, :, :], np.stack([np.zeros((2, 2)), np.full((2, 2), 5)]).astype(np.float32))


def deform_conv2d() -> bool:
    input, weight = zeros(1, 5, 20_992, 20_992), np.ones((1, 5, 1, 1), np.float32)
    input[0, :, -1, -1] = 1
    result = mmort.deform_conv2d(input, zeros(1, 2, 2, 2), weight, stride=20_991)
    return np.array_equal(result.ravel(), [0, 0, 0, 5])


def attention() -> bool:
    value = zeros(1, 8192 * 8192, 1, 33)
    value[0, -1] = 1
    locations, weights = zeros(1, 1, 1, 1, 1, 2) + (1 - 0.5 / 8192), zeros(1, 1, 1, 1, 1) + 1
    sizes = np.array([[8192, 8192]])
    result = mmort.multi_scale_deformable_attention(value, sizes, np.array([0]), locations.astype(np.float32), weights)
    return np.allclose(result, 1)


def cummax() -> bool:
    input = np.zeros(BEYOND // 8 + 5, np.int8)
    input[-3] = 1
    values, indices = mmort.cummax(input, 0)
    return bool(values[-4] == 0 and (indices[-3:] == len(input) - 3).all())


def box_iou() -> bool:
    boxes = np.array([[0, 0, 2, 2]], np.float32).repeat(65_537, 0)
    references = np.array([[0, 0, 2, 1]], np.float32).repeat(32_768, 0)
    references[-1] = (0, 0, 2, 2)
    result = mmort.box_iou(boxes, references)
    return result.size > BEYOND and bool((result[::999, :-1] == 0.5).all() and (result[:, -1] == 1).all())


CALLS: dict[str, Callable[[], bool]] = {
    "nms, 1,000,000 boxes": million_boxes,
    "nms, 2**29 boxes": lambda: bool(mmort.nms(zeros(2**29, 4), zeros(2**29), 0.5)),
    "soft_nms, 1,000,000 boxes": lambda: bool(mmort.soft_nms(zeros(10**6, 4), zeros(10**6) + 1)),
    "corner_pool, 16,384 x 16,384": corner_pool,
    "grid_sample, 16,384 x 16,384": lambda: grid_sample(1, 16_384),
    "grid_sample, 5 x 20,992 x 20,992": lambda: grid_sample(5, 20_992),
    "grid_sample, 32,768 x 32,768": lambda: grid_sample(1, 32_768),
    "roi_align, 2 x 32,769 x 32,768": roi_align,
    "deform_conv2d, 5 x 20,992 x 20,992": deform_conv2d,
    "deform_conv2d, 32,768 x 32,768": lambda: bool(
        mmort.deform_conv2d(zeros(1, 1, 32_768, 32_768), zeros(1, 2, 1, 1), zeros(1, 1, 1, 1), stride=32_768)
    ),
    "multi_scale_deformable_attention, 8,192 x 8,192 x 33": attention,
    "cummax, 2**28 elements": cummax,
    "box_iou, 65,537 x 32,768": box_iou,
}


def main() -> None:
    """Print what became of each call."""
    for name, call in CALLS.items():
        begin = time.perf_counter()
        try:
            right = call()
        except (ValueError, MemoryError) as error:
            print(f"{name}: refused: {error}", flush=True)
            continue
        if not right:
            raise SystemExit(f"{name}: wrong")
        print(f"{name}: right, {time.perf_counter() - begin:.1f} s", flush=True)


if __name__ == "__main__":
    main()
