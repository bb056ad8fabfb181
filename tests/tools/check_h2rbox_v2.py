"""Compare H2RBox-v2 with the code of onedl-mmrotate.  Run by hand, as that cannot be installed beside MMRotate.

    python -m tests.tools.check_h2rbox_v2 FOLDER [--record]
    python -m tests.tools.check_h2rbox_v2 FOLDER --mutations [ARGUMENT ...]

FOLDER is ``mmrotate/models`` of onedl-mmrotate, of which a head and its loss are imported; `.ci/run originals` shows
what else must be installed.  Torch modules and exported files detect in images, alone and in a batch.  Prints a line
for each detector and exits with 1 if one differs.  With ``--record``, writes what `tests/detect/test_rotated.py`
expects.  With ``--mutations``, changes one entry of a config at a time instead; ARGUMENTs are those of
`tests.originals.mutations`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import torch

from tests.detect import rotated_1_cases
from tests.originals import mutations, records
from tests.originals.cases import rotated
from tests.originals.compare import write_record
from tests.originals.version_3 import VERSION
from tests.tools.check_co_dino import compare

RECORD = records.FOLDER / "rotated_1.json"


def main(folder: str, *arguments: str) -> int:
    """Check the detectors."""
    torch.set_grad_enabled(False)
    for module in ("losses/h2rbox_v2_consistency_loss", "dense_heads/h2rbox_v2_head"):
        path = Path(folder, module)
        sys.path.insert(0, str(path.parent))
        import_module(path.name)  # registers itself
    cases = {name: rotated.case(name) for name in rotated_1_cases.FORKS}
    if "--mutations" in arguments:
        sys.argv[1:] = [argument for argument in arguments if argument != "--mutations"]
        return mutations.main(replace(VERSION, cases=cases, cases_of_pipeline=()), "tests.originals")
    failures = compare(cases, VERSION.build)
    if "--record" in arguments:
        recorded = json.loads(RECORD.read_text())
        write_record(RECORD, recorded | {name: records.rotated(name) for name in cases})
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
