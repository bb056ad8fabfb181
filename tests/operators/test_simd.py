"""Kernels with a version for each instruction set: every version that this machine has gives what the oracle gives."""

from itertools import product

import numpy as np
import pytest

import mmort
from mmort._kernels.numpy_api import limit_simd, simd_level
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases, test_golden

LEVELS = ("baseline", "avx2", "avx512")
CASES = [case for operator in ("deform_conv2d", "modulated_deform_conv2d") for case in cases.of(operator)]
RECORDED = [name for name in test_golden.ORDINARY if "DeformConv2d" in test_golden.GOLDEN[name]["op"]]

VECTORS = ("corner_pool", "cummax", "cummin", "grid_sample", "roi_align", "roi_align_rotated", "rotated_feature_align")
"""Operators whose vectors give the bits of plain loops."""


@pytest.fixture
def levels():
    """The levels of this machine; sets the limit back after the test."""
    yield range(LEVELS.index(simd_level()) + 1)
    limit_simd(len(LEVELS) - 1)


def run(level, run_case):
    limit_simd(level)
    assert simd_level() == LEVELS[level]
    return run_case()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_version_gives_what_the_oracle_gives(case, dtype, levels):
    """Without fused multiply-add its bits; with it the same bits whatever the width of the vectors."""
    arrays = tuple(array.astype(dtype) for array in case.arrays)
    wanted = front_ends.run_oracle(case.operator, arrays, case.attributes)
    results = [run(level, lambda: front_ends.run_numpy(case.operator, arrays, case.attributes)) for level in levels]
    (assert_close if case.tolerance == "close" else assert_same)(results[0], wanted, f"{case}")
    for result in results[1:]:
        assert_close(result, wanted, f"{case}")
        assert_same(result, results[1], f"{case}")


def test_without_fused_multiply_add_the_bits_are_those_of_the_original(levels):
    for name in RECORDED:
        assert_same(run(0, lambda name=name: test_golden.run_numpy(name)), test_golden.arrays(name, "out"), name)


def check_bits(levels, operator, arrays, attributes, message):
    results = [run(level, lambda: front_ends.run_numpy(operator, arrays, attributes)) for level in levels]
    for result in results[1:]:
        assert_same(result, results[0], message)


@pytest.mark.parametrize("operator", VECTORS)
def test_every_version_gives_the_same_bits(operator, levels):
    for case in cases.of(operator):
        check_bits(levels, operator, case.arrays, case.attributes, f"{case}")


@pytest.mark.parametrize("size", [1, 2, 17, 300])
def test_positions_that_do_not_fill_vectors(size, levels):
    """Far outside, not finite, on pixels and between them; maps of one row or column, pixels not finite."""
    rng = np.random.default_rng(size)
    grid = rng.uniform(-1.5, 1.5, (1, 1, size, 2)).astype(np.float32)
    special = grid.reshape(-1)[:: 1 + size // 5]
    special[:] = np.resize(np.float32([np.nan, np.inf, -np.inf, 1e38, 1e9, -1, 1, 3, 77.7]), special.size)
    for shape, mode, padding, align in product(
        ((1, 3, 5, 7), (1, 1, 1, 9), (1, 2, 9, 1)), ("nearest", "bilinear"), ("zeros", "border"), (False, True)
    ):
        image = rng.standard_normal(shape).astype(np.float32)
        image.reshape(-1)[::7] = np.nan
        image.reshape(-1)[3::11] = np.inf
        attributes = {"mode": mode, "padding_mode": padding, "align_corners": align}
        check_bits(levels, "grid_sample", (image, grid), attributes, f"{shape} {attributes}")
        attributes["padding_mode"] = "reflection"
        near = np.where(np.abs(grid) < 1e4, grid, np.float32(77.7))  # reflected in vectors
        check_bits(levels, "grid_sample", (image, near), attributes, f"{shape} {attributes}")


@pytest.mark.parametrize("shape", [(1, 17, 61, 70), (2, 9, 200, 170)])
def test_maps_larger_than_a_cache(shape, levels):
    """Planes of up to a megabyte are read at all positions before the next; the baseline may read a copy."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal(shape).astype(np.float32)
    grid = rng.uniform(-1.2, 1.2, (shape[0], 60, 70, 2)).astype(np.float32)
    for mode, padding in product(("nearest", "bilinear"), ("zeros", "border", "reflection")):
        attributes = {"mode": mode, "padding_mode": padding}
        check_bits(levels, "grid_sample", (image, grid), attributes, f"{attributes}")


@pytest.mark.parametrize("output_size", [(1, 8), (4, 4), (3, 7)])
def test_bins_that_do_not_fill_vectors(output_size, levels):
    """Rotated regions on the borders, of which the last column and row are not finite, and outside."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 3, 30, 31)).astype(np.float32)
    image[..., -1], image[:, :, -1] = np.inf, np.nan
    rois = np.float32([[0, 15, 15, 40, 30, 0.3], [0, 30, 29, 9, 9, 1], [0, 15, 15, 30, 30, 0], [0, 90, 9, 9, 9, 0]])
    for sampling_ratio in (0, 1):
        attributes = {"output_size": output_size, "sampling_ratio": sampling_ratio}
        check_bits(levels, "roi_align_rotated", (image, rois), attributes, f"{attributes}")


def test_rotated_regions_that_share_tiles(levels):
    """On a map of 8 MB regions that overlap share tiles; single ones are gathered, or read from the planes."""
    rng = np.random.default_rng(0)
    image = rng.standard_normal((1, 8, 512, 512)).astype(np.float32)
    image.reshape(-1)[::9973] = np.nan
    rois = np.hstack([rng.uniform(-50, 560, (30, 2)), rng.uniform(0, 600, (30, 2)), rng.uniform(-4, 4, (30, 1))])
    rois = np.insert(rois, 0, 0, axis=1).astype(np.float32)
    attributes = {"output_size": 49, "sampling_ratio": 2}
    single = np.concatenate([mmort.roi_align_rotated(image, roi[None], **attributes) for roi in rois])
    for level in levels:
        assert_same([run(level, lambda: mmort.roi_align_rotated(image, rois, **attributes))], [single], LEVELS[level])


@pytest.mark.parametrize("channels", [16, 19, 32, 45, 64])
def test_tiles_of_two_vectors(channels, levels):
    """Channels, pixels and bins that do and do not fill vectors; pixels that are not finite, regions outside."""
    rng = np.random.default_rng(channels)
    for shape, output_size, sampling_ratio in product(
        ((2, channels, 3, 5), (1, channels, 9, 14)), ((1, 2), (3, 3), (4, 4), (3, 7)), (0, 2, 3)
    ):
        image = rng.standard_normal(shape).astype(np.float32)
        image.reshape(-1)[::41] = np.nan
        image.reshape(-1)[5::67] = np.inf
        corners = rng.uniform(-0.3, 1.3, (60, 4)) * np.float32([shape[3], shape[2]] * 2)
        rois = np.hstack([rng.integers(0, shape[0], (60, 1)), corners]).astype(np.float32)
        attributes = {"output_size": output_size, "sampling_ratio": sampling_ratio}
        check_bits(levels, "roi_align", (image, rois), attributes, f"{shape} {attributes}")


def test_tiles_that_are_too_large_for_many_channels(levels):
    image = np.random.default_rng(0).standard_normal((1, 33, 370, 370), np.float32)
    rois = np.float32([[0, 0, 0, 370, 370], [0, 100, 9, 200, 99], [0, 9, 100, 99, 200]])
    check_bits(levels, "roi_align", (image, rois), {"output_size": (14, 14)}, "large")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "float32"])
def test_ties(dtype, levels):
    """Of the smallest and the largest number, of zeros with either sign, and across the ends of vectors."""
    rng = np.random.default_rng(0)
    low, high = (-np.inf, np.inf) if dtype == "float32" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    zero = -0.0 if dtype == "float32" else 0
    for length, numbers in product((9, 32, 100), ((0, zero), (0, zero, 1, 2), (low, 1, high), (low, high - 1))):
        array = rng.choice(np.array(numbers, dtype), (9, length))
        for operator in ("cummax", "cummin"):
            check_bits(levels, operator, (array,), {"dim": 1}, f"{operator} {numbers} {length}")
        for mode in ("left", "right"):
            check_bits(levels, "corner_pool", (array[None, None],), {"mode": mode}, f"{mode} {numbers} {length}")
