"""docs/limits.md: each of its messages is provoked here, or by `python -m tests.tools.check_limits`."""

import re
from pathlib import Path

import numpy as np
import pytest

import mmort
from tests.operators import test_limits
from tests.operators.case import REFUSALS, zeros

PAGE = (Path(mmort.__file__).parents[1] / "docs" / "limits.md").read_text()
ROWS = re.findall(r"^\| .+? \| `([a-z]\w+: .+?)` \|", PAGE, re.MULTILINE)
ELSEWHERE = {
    "nms: … boxes of a class take more than 131072 comparisons each, the limit; pass fewer boxes": "takes seconds",
    "nms: the sizes of … are too large to be multiplied": "numpy has no such arrays",
}
ROIS = np.array([[0, 0, 0, 1e30, 1]], np.float32)
PROVOKED = {
    "roi_align: an output": lambda: mmort.roi_align(zeros(1, 1, 2, 2), zeros(1, 5), 2**31),
    "nms: at most 536870911": lambda: mmort.nms(zeros(2**29, 4), zeros(2**29), 0.5),
    "roi_align: rois": lambda: mmort.roi_align(zeros(1, 1, 2, 2), ROIS, 1),
    "grid_sample": lambda: mmort.grid_sample(zeros(1, 1, 1, 2**29), zeros(1, 1, 1, 2)),
    "deform_conv2d: input": lambda: mmort.deform_conv2d(
        zeros(1, 1, 1, 2**29 + 1), zeros(1, 2, 1, 2**29 + 1), zeros(1, 1, 1, 1)
    ),
}


def refused():
    """Return all messages that the tests of refusals provoke."""
    known = [(refusal.operator, refusal.text) for refusal in REFUSALS]
    known += [(operator, text) for operator, text, *_ in test_limits.TOO_MUCH]
    return [f"{operator}: {text}" for operator, text in known]


@pytest.mark.parametrize("row", ROWS)
def test_message(row):
    if row in ELSEWHERE:
        return
    pattern = ".*".join(map(re.escape, row.split("…")))
    calls = [call for start, call in PROVOKED.items() if row.startswith(start)]
    if calls:
        with pytest.raises(ValueError, match=f"^{pattern}"):
            calls[0]()
    else:
        assert any(re.match(pattern, text) for text in refused())


def test_all_tables_are_read():
    assert len(ROWS) == PAGE.count("\n| `") + PAGE.count("\n| all")
