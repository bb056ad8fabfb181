"""Each case: mmort detects what MMDetection 2 or MMRotate 0 detects."""

import pytest

from tests.originals.compare import assert_equal
from tests.originals_2.cases import CASES
from tests.originals_2.original import Original


@pytest.mark.parametrize("name", CASES)
def test_equal(name):
    assert_equal(Original, CASES[name])
