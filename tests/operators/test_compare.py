"""The comparisons of compare.py fail where they should; one that cannot fail proves nothing."""

import numpy as np
import pytest

from tests.compare import assert_close, assert_same

ARRAYS = [np.array([1.0, np.nan, 0.0, np.inf], np.float32), np.array([3, 4])]


def changed(index, value, output=0, dtype=None):
    """Return ARRAYS with one element or dtype changed."""
    arrays = [array.copy() for array in ARRAYS]
    arrays[output][index] = value
    if dtype:
        arrays[output] = arrays[output].astype(dtype)
    return arrays


@pytest.mark.parametrize("compare", [assert_same, assert_close])
def test_equal_passes(compare):
    compare([array.copy() for array in ARRAYS], ARRAYS)
    compare([], [])
    compare([np.zeros((0, 5), np.float32)], [np.zeros((0, 5), np.float32)])


@pytest.mark.parametrize("compare", [assert_same, assert_close])
@pytest.mark.parametrize(
    "other",
    [
        changed(0, 1.001),
        changed(0, np.nan),
        changed(1, 1.0),
        changed(1, np.inf),
        changed(3, -np.inf),
        changed(3, 3e38),
        changed(0, 5, output=1),
        changed(0, 1.0, dtype=np.float64),
        changed(0, 3, output=1, dtype=np.int32),
        ARRAYS[:1],
        [*ARRAYS, ARRAYS[0]],
        [ARRAYS[0][:3], ARRAYS[1]],
        [ARRAYS[0][None], ARRAYS[1]],
    ],
)
def test_different_fails(compare, other):
    with pytest.raises(AssertionError):
        compare(other, ARRAYS)


def test_same_is_bits():
    for arrays in (changed(0, np.nextafter(np.float32(1), np.float32(2))), changed(2, -0.0)):
        assert_close(arrays, ARRAYS)
        with pytest.raises(AssertionError):
            assert_same(arrays, ARRAYS)


def test_close_is_relative_to_the_largest():
    large = [np.array([1e6, 1.0], np.float32)]
    assert_close([np.array([1e6, 2.0], np.float32)], large)
    with pytest.raises(AssertionError):
        assert_close([np.array([1e6, 20.0], np.float32)], large)
