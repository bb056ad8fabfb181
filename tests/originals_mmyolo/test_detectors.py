"""Each case: mmort detects what MMYOLO detects; inputs are equal bit for bit."""

import pytest

from tests.originals.compare import assert_equal
from tests.originals_mmyolo.cases import CASES
from tests.originals_mmyolo.original import Original


@pytest.mark.parametrize("name", CASES)
def test_equal(name):
    assert_equal(Original, CASES[name])
