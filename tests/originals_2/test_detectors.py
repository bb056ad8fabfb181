"""Each case: mmort detects what MMDetection 2 or MMRotate 0 detects, image by image and in a padded batch."""

import pytest
import torch

from tests.originals.candidate import Candidate
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.weights import fill
from tests.originals_2.cases import CASES
from tests.originals_2.original import Original


@pytest.mark.parametrize("name", CASES)
def test_equal(name, tmp_path):
    case, files = CASES[name], list(image_files())
    original = Original(case.config())
    with torch.no_grad():
        fill(original.model, lambda: original.run(files[:1]), case.spread)
    torch.save({"state_dict": original.model.state_dict(), "meta": {}}, tmp_path / "weights.pth")
    candidate = Candidate(case.config(), str(tmp_path / "weights.pth"))
    batches = [files[:1], files[1:], *([files] if case.batches else [])]
    expected = [original.run(batch) for batch in batches]
    require_substance(expected, case.classes)
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
