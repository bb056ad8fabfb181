"""MMDetection's published configs are read as MMEngine reads them; a sample, another one for each ORIGINALS_SEED.

All configs: ``ORIGINALS_CONFIGS=0 pytest tests/originals/test_published_configs.py``.
"""

import os
import random
import warnings
from pathlib import Path

import mmdet
import pytest
from mmengine import Config

from mmort.configs import ConfigError, read_config

FOLDER = Path(mmdet.__file__).parent / ".mim" / "configs"
SCRIPT = "override_category.py"  # which is not a config
PATHS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.py") if path.name != SCRIPT)
COUNT = int(os.environ.get("ORIGINALS_CONFIGS", "60")) or len(PATHS)
SAMPLE = random.Random(int(os.environ.get("ORIGINALS_SEED", "0"))).sample(PATHS, COUNT)


def differences(ours, theirs, key="config"):
    """Return the keys at which two configs differ; types and the order of keys count."""
    if type(ours) is not type(theirs):
        return [f"{key}: {ours!r}, MMEngine {theirs!r}"]
    if isinstance(ours, dict):
        differing = [] if list(ours) == list(theirs) else [f"{key}: keys {list(ours)}, MMEngine {list(theirs)}"]
        pairs = [(name, ours[name], theirs[name]) for name in ours if name in theirs]
    elif isinstance(ours, (list, tuple)):
        differing = [] if len(ours) == len(theirs) else [f"{key}: {len(ours)} elements, MMEngine {len(theirs)}"]
        pairs = [(index, *pair) for index, pair in enumerate(zip(ours, theirs, strict=False))]
    else:
        return [] if ours == theirs else [f"{key}: {ours!r}, MMEngine {theirs!r}"]
    return differing + [line for name, *pair in pairs for line in differences(*pair, f"{key}.{name}")]


def test_differences():
    ours = {"a": [1, 2, (3,)], "b": {"c": True}, "e": 1}
    assert differences(ours, ours) == []
    assert differences(ours, {"a": [1, 5], "b": {"c": 1}}) == [
        "config: keys ['a', 'b', 'e'], MMEngine ['a', 'b']",
        "config.a: 3 elements, MMEngine 2",
        "config.a.1: 2, MMEngine 5",
        "config.b.c: True, MMEngine 1",
    ]


@pytest.mark.parametrize("path", SAMPLE)
def test_read_as_mmengine_reads(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # configs that MMDetection calls deprecated
        try:
            theirs = Config.fromfile(FOLDER / path, import_custom_modules=False).to_dict()
        except Exception:  # a config may raise anything when it is executed
            with pytest.raises(ConfigError):
                read_config(FOLDER / path)
            return
        assert differences(read_config(FOLDER / path), theirs) == []
