"""Read every config of an unpacked mmdet wheel, and compare with MMEngine's reading.

    pip download --no-deps mmdet==3.3.0 && python -m zipfile -e mmdet-3.3.0-py3-none-any.whl FOLDER
    pip install mmengine && python -m tests.tools.check_published_configs FOLDER          # mmcv is not needed

Prints the configs that are refused, with reasons, and those that differ.  Exit code 1 if anything differs.
"""

import sys
import time
import warnings
from collections import defaultdict
from pathlib import Path
from typing import Any

from mmengine import Config

from mmort.configs import ConfigError, read_config  # the checkout's, not an installed one


def differences(ours: Any, theirs: Any, key: str = "") -> list[str]:
    """List the keys at which two configs differ; types count."""
    if type(ours) is not type(theirs):
        return [f"{key}: {type(ours).__name__} {ours!r}, MMEngine {type(theirs).__name__} {theirs!r}"[:300]]
    if isinstance(ours, dict):
        differing = [] if list(ours) == list(theirs) else [f"{key}: keys {list(ours)}, MMEngine {list(theirs)}"[:300]]
        for name in ours.keys() & theirs.keys():
            differing += differences(ours[name], theirs[name], f"{key}.{name}")
        return differing
    if isinstance(ours, (list, tuple)):
        if len(ours) != len(theirs):
            return [f"{key}: {len(ours)} elements, MMEngine {len(theirs)}"]
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [line for i, (our, their) in pairs for line in differences(our, their, f"{key}.{i}")]
    return [] if ours == theirs else [f"{key}: {ours!r}, MMEngine {theirs!r}"[:300]]


def main(folder: str) -> int:
    root = Path(folder).resolve()
    sys.path.insert(0, str(root))  # where both look for mmdet::...
    warnings.simplefilter("ignore")  # configs that MMDetection calls deprecated
    refused = defaultdict(list)
    equal, differing, seconds = 0, 0, 0.0
    for path in sorted(root.glob("mmdet/.mim/configs/**/*.py")):
        name = path.relative_to(root / "mmdet/.mim/configs")
        start = time.perf_counter()
        try:
            ours = read_config(path)
        except ConfigError as error:
            ours = None
            try:
                Config.fromfile(path, import_custom_modules=False)
                too = ""
            except Exception as fault:  # a config may raise anything when it is executed
                too = f" (MMEngine: {type(fault).__name__})"
            refused[str(error).replace(f"{root}/", "") + too].append(name)
        seconds += time.perf_counter() - start
        if ours is None:
            continue
        messages = differences(ours, Config.fromfile(path, import_custom_modules=False).to_dict())
        equal += not messages
        differing += bool(messages)
        for line in messages[:5]:
            print(f"DIFFERS {name}{line}")
    for reason, names in refused.items():
        print(f"REFUSED {len(names)}: {reason}")
    count = sum(map(len, refused.values()))
    print(f"{equal} equal, {count} refused, {differing} differ; read in {seconds:.1f} s")
    return bool(differing or not equal)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
