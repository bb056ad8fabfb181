"""Writes expected.txt: what MMEngine (0.10.7) reads in these configs.

pip install mmengine && MMORT_TEST_CLASSES=9 python tests/data/configs/make_expected.py
"""

import os
import pprint
import sys
from pathlib import Path

from mmengine import Config

FOLDER = Path(__file__).resolve().parent
NAMES = (
    "features.py",
    "inherit.py",
    "deeper/child.py",
    "deeper/child.yaml",
    "deeper/taken_apart.py",
    "from_package.py",
    "importing/config.py",
)

os.chdir(FOLDER)
sys.path.insert(0, str(FOLDER / "packages"))
expected = {name: Config.fromfile(name).to_dict() for name in NAMES}
text = pprint.pformat(expected, width=118, sort_dicts=False).replace(str(FOLDER), "FOLDER")
Path("expected.txt").write_text(f"{text}\n")
