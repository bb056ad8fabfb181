"""The list of mmcv.ops in docs/torch.md: complete, and true."""

import re
from pathlib import Path

import mmort.torch

ROOT = Path(__file__).parents[2]
MMCV = set((ROOT / "tests/data/mmcv_ops.txt").read_text().split())  # mmcv.ops.__all__ of MMCV 2.1.0


def test_names_of_mmcv_ops():
    section = (ROOT / "docs/torch.md").read_text().partition("## What of `mmcv.ops` is here")[2].partition("\n## ")[0]
    here, _, missing = section.partition("The others are not, and why:")
    rows = [row.split("|") for row in missing.splitlines() if row.startswith("| `")]
    assert len(rows) > 5
    assert all(row[2].strip() for row in rows)

    def names(text):
        return sorted(re.findall(r"`(\w+)`", text))

    assert names(here) == sorted(MMCV & set(mmort.torch.__all__))
    assert names(" ".join(row[1] for row in rows)) == sorted(MMCV - set(mmort.torch.__all__))
    assert all(callable(getattr(mmort.torch, name)) for name in names(here))
