"""Every case through every front end: what the oracle gives, and the same bits in ONNX Runtime, float16, any layout."""

import tracemalloc

import numpy as np
import pytest

import mmort
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases

EXISTING = [case for case in cases.CASES if hasattr(mmort, case.operator)]
MANY = [case for case in EXISTING if "many" in case.name or "000" in case.name]
FLOATING = {str(case) for case in EXISTING if all(array.dtype.kind == "f" for array in case.arrays)}
COMPARE = {"exact": assert_same, "fused": assert_close, "close": assert_close}


def expected(case, arrays):
    return front_ends.run_oracle(case.operator, arrays, case.attributes)


def run(case, arrays=None):
    return front_ends.run_numpy(case.operator, case.arrays if arrays is None else arrays, case.attributes)


def cast(arrays, dtype):
    with np.errstate(over="ignore"):
        return tuple(array.astype(dtype) if array.dtype.kind == "f" else array for array in arrays)


def scattered(array):
    """Return the same values in memory that is neither dense nor in order: transposed, every second element of more."""
    wide = np.repeat(array.T, 2, axis=0) if array.ndim else array
    return wide[::2].T


def channels_last(array):
    """Return the same values, maps with the channels of a pixel side by side in memory, as pictures have them."""
    return np.ascontiguousarray(array.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2) if array.ndim == 4 else array


@pytest.mark.parametrize("case", EXISTING, ids=str)
def test_numpy_gives_what_the_oracle_gives(case):
    """In both precisions; inputs stay as they are, and results are new arrays."""
    arrays = tuple(array.copy() for array in case.arrays)
    results = run(case, arrays)
    COMPARE[case.tolerance](results, expected(case, case.arrays), f"{case}")
    assert_same(arrays, case.arrays, f"{case}, its input:")
    for result in results:
        assert result.flags.writeable
        assert not any(np.shares_memory(result, array) for array in arrays)
    if str(case) in FLOATING:
        doubles = cast(case.arrays, np.float64)
        COMPARE[case.tolerance](run(case, doubles), expected(case, doubles), f"{case} in float64")


@pytest.mark.parametrize("case", EXISTING, ids=str)
def test_the_same_bits_everywhere(case):
    """ONNX Runtime, arrays of another layout, float64, and float16, which is computed in float32.

    The arrays of the cases are read-only already.
    """
    results = run(case)
    if front_ends.row_of(case.operator):
        got = front_ends.run_ort(case.operator, case.arrays, case.attributes)
        assert_same(got, front_ends.node_outputs(case.operator, results), f"{case} in ONNX Runtime")
    for layout in (scattered, channels_last):
        assert_same(run(case, tuple(map(layout, case.arrays))), results, f"{case} in {layout.__name__} memory")
    if str(case) in FLOATING:
        doubles = cast(case.arrays, np.float64)
        assert_same(run(case, tuple(map(scattered, doubles))), run(case, doubles), f"{case} in scattered float64")
        halves = cast(case.arrays, np.float16)
        wanted = cast(run(case, cast(halves, np.float32)), np.float16)
        assert_same(run(case, halves), wanted, f"{case} in float16")
        assert_same(run(case, tuple(map(channels_last, halves))), wanted, f"{case} in float16, channels last")


@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("float32", ">f4"), ("float64", "float64")])
def test_channels_last_maps_are_not_copied(dtypes, rng):
    """Of a large map, two positions read a few pixels."""
    maps = channels_last(rng.standard_normal((1, 16, 100, 100)).astype(dtypes[0]))
    grid = rng.uniform(-1, 1, (1, 1, 2, 2)).astype(dtypes[1])
    mmort.grid_sample(maps, grid)  # numpy imports modules in the first call
    tracemalloc.start()
    try:
        mmort.grid_sample(maps, grid)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < maps.nbytes / 10


def test_scattered_arrays_are_equal():
    for case in EXISTING:
        assert_same(tuple(map(scattered, case.arrays)), case.arrays, str(case))


@pytest.mark.parametrize("case", MANY, ids=str)
def test_threads_do_not_matter(case):
    results = []
    for threads in (1, 2, 5):
        mmort.set_num_threads(threads)
        results.append(run(case))
    for other in results[1:]:
        assert_same(other, results[0], str(case))
    if front_ends.row_of(case.operator):
        for threads in (1, 2):
            got = front_ends.run_ort(case.operator, case.arrays, case.attributes, threads)
            assert_same(got, front_ends.node_outputs(case.operator, results[0]), str(case))


@pytest.mark.parametrize("operator", sorted({name.partition("-")[0] for name in FLOATING}))
def test_other_byte_order(operator):
    case = cases.ordinary(operator)
    swapped = tuple(array.astype(array.dtype.newbyteorder()) for array in case.arrays)
    results = run(case, swapped)
    assert all(result.dtype.isnative for result in results)
    assert_same(results, run(case))


@pytest.mark.parametrize("operator", sorted({case.operator for case in EXISTING}))
def test_lists_and_integers(operator):
    """Integers are computed in float64, but the scans keep every real dtype."""
    case = cases.ordinary(operator)
    was_floating = [array.dtype.kind == "f" for array in case.arrays]
    integers = tuple(
        (np.round(4 * array) if was else array).astype(np.int32)
        for array, was in zip(case.arrays, was_floating, strict=True)
    )
    if operator in ("roi_align", "roi_align_rotated"):
        integers[1][:, 0] = 0
    floats = tuple(
        array.astype(np.float64 if was else np.int64) for array, was in zip(integers, was_floating, strict=True)
    )
    scan = operator in ("corner_pool", "cummax", "cummin")
    wanted = expected(case, integers if scan else floats)
    COMPARE[case.tolerance](run(case, integers), wanted)
    COMPARE[case.tolerance](run(case, tuple(array.tolist() for array in floats)), expected(case, floats))
