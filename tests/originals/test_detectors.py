"""Each case: mmort detects what MMDetection detects."""

import pytest

from tests.originals.cases import CASES
from tests.originals.compare import assert_equal
from tests.originals.original import Original


@pytest.mark.parametrize("name", CASES)
def test_equal(name):
    assert_equal(Original, CASES[name])
