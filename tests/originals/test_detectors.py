"""Each case: mmort detects what MMDetection detects."""

import pytest

from tests.originals.cases import CASES
from tests.originals.compare import assert_equal
from tests.originals.known_differences import KNOWN
from tests.originals.original import Original

NAMES = [pytest.param(name, marks=[pytest.mark.xfail(reason=KNOWN[name])] if name in KNOWN else []) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_equal(name):
    assert_equal(Original, CASES[name])
