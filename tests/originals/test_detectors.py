"""Each case: mmort detects what MMDetection detects, image by image and in a padded batch."""

import pytest
import torch

from tests.originals.cases import CASES
from tests.originals.compare import batches_of, pair
from tests.originals.comparison import differences, require_substance
from tests.originals.known_differences import KNOWN

NAMES = [pytest.param(name, marks=[pytest.mark.xfail(reason=KNOWN[name])] if name in KNOWN else []) for name in CASES]


@pytest.mark.parametrize("name", NAMES)
def test_equal(name):
    original, candidate = pair(name)
    batches = batches_of(CASES[name])
    expected = [original.run(batch) for batch in batches]
    require_substance(expected, CASES[name].classes)
    found = [
        line
        for batch, result in zip(batches, expected, strict=True)
        for line in differences(candidate.run(batch), result)
    ]
    if found and not any("inputs" in line for line in found):  # perhaps rounding decided
        found = [
            f"{line}, in float64"
            for batch in batches
            for line in differences(candidate.run(batch, torch.float64), original.run(batch, torch.float64), "float64")
        ]
    assert not found
