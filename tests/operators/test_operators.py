"""Every case through every door: the oracle's result, and the same bits whatever the door, layout and threads."""

import numpy as np
import pytest

import mmort
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases

EXISTING = [case for case in cases.CASES if hasattr(mmort, case.operator)]
IN_ORT = [case for case in EXISTING if front_ends.row_of(case.operator)]
MANY = [case for case in EXISTING if "many" in case.name or "000" in case.name]
FLOATING = [case for case in EXISTING if all(array.dtype.kind == "f" for array in case.arrays)]
COMPARE = {"exact": assert_same, "close": assert_close}


def expected(case, arrays):
    return front_ends.run_oracle(case.operator, arrays, case.attributes)


def run(case, arrays=None):
    return front_ends.run_numpy(case.operator, case.arrays if arrays is None else arrays, case.attributes)


def scattered(array):
    """The same values in memory that is neither dense nor in order: transposed, and every other element of more."""
    wide = np.repeat(array.T, 2, axis=0) if array.ndim else array
    return wide[::2].T


@pytest.mark.parametrize("case", EXISTING, ids=str)
def test_numpy_gives_what_the_oracle_gives(case):
    COMPARE[case.tolerance](run(case), expected(case, case.arrays), str(case))


@pytest.mark.parametrize("case", IN_ORT, ids=str)
def test_ort_gives_the_bits_that_numpy_gives(case):
    got = front_ends.run_ort(case.operator, case.arrays, case.attributes)
    assert_same(got, front_ends.node_outputs(case.operator, run(case)), str(case))


@pytest.mark.parametrize("case", FLOATING, ids=str)
def test_float64(case):
    arrays = tuple(array.astype(np.float64) for array in case.arrays)
    COMPARE[case.tolerance](run(case, arrays), expected(case, arrays), str(case))


@pytest.mark.parametrize("case", FLOATING, ids=str)
def test_float16_is_computed_in_float32(case):
    with np.errstate(over="ignore"):
        halves = tuple(array.astype(np.float16) for array in case.arrays)
        wanted = expected(case, tuple(array.astype(np.float32) for array in halves))
        wanted = tuple(array.astype(np.float16) if array.dtype.kind == "f" else array for array in wanted)
    COMPARE[case.tolerance](run(case, halves), wanted, str(case))


@pytest.mark.parametrize("case", EXISTING, ids=str)
def test_layout_does_not_matter(case):
    """The arrays of the cases are read-only already."""
    arrays = tuple(scattered(array) for array in case.arrays)
    assert all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in zip(arrays, case.arrays, strict=True))
    assert_same(run(case, arrays), run(case), str(case))


@pytest.mark.parametrize("case", EXISTING, ids=str)
def test_inputs_stay_as_they_are_and_results_are_new(case):
    arrays = tuple(array.copy() for array in case.arrays)
    results = run(case, arrays)
    assert_same(arrays, case.arrays)
    for result in results:
        assert result.flags.writeable
        assert not any(np.shares_memory(result, array) for array in arrays)


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


@pytest.mark.parametrize("operator", sorted({case.operator for case in FLOATING}))
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
