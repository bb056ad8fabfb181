"""Compare EfficientDet with MMDetection's own ``projects/EfficientDet``.  Run by hand, as that is in no package.

    python -m tests.tools.check_efficientdet FOLDER [--record]
    python -m tests.tools.check_efficientdet FOLDER --mutations [ARGUMENT ...]

FOLDER is that of MMDetection's repository; `.ci/run originals` shows what else must be installed.  Torch modules and
exported files detect in images, alone and in a batch.  Prints a line for each detector and exits with 1 if one
differs.  With ``--record``, writes what `tests/detect/test_efficientdet.py` expects.  With ``--mutations``, changes one
entry of a config at a time instead; ARGUMENTs are those of `tests.originals.mutations`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from tests.detect import efficientdet_cases
from tests.originals.cases.case import PACK, PREPROCESSOR, Config
from tests.originals.weights import Spread
from tests.tools.check_co_dino import cases_of, check

RECORD = Path(__file__).parents[1] / "data" / "detect" / "efficientdet.json"
SPREAD: Spread = {r"cls_header\.pointwise_conv$": (-1.0, 0.6), r"reg_header\.pointwise_conv$": (0.0, 0.5)}
ODD: dict[str, Config] = {
    "efficientdet_odd": {"scale": (126, 121), "keep_ratio": False},
    "same_padding": {"scale": (121, 93), "keep_ratio": True},
}
"""By case, how images are resized so that not all maps have even sides."""

CASES = cases_of(efficientdet_cases.MODELS, SPREAD)
for name, sizes in ODD.items():
    model = {**CASES[name].model, "data_preprocessor": {**PREPROCESSOR, "pad_size_divisor": 1}}
    pipeline: list[Config] = [{"type": "LoadImageFromFile"}, {"type": "Resize", **sizes}, PACK]
    CASES[name] = replace(CASES[name], model=model, pipeline=pipeline)

if __name__ == "__main__":
    options = {"weights": efficientdet_cases.weights, "shapes": efficientdet_cases.SHAPES}
    sys.exit(check(["projects.EfficientDet.efficientdet"], CASES, RECORD, *sys.argv[1:], **options))
