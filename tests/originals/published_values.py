"""The values that entries have in MMDetection's published configs: mutations take them.

    python -m tests.originals.published_values      # writes published_values.json again, from the installed mmdet

By the type of the dict that an entry is in, or without a type by the dict's name, and the entry's name.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
MAX_VALUES = 6
"""The most frequent ones."""
MAX_TEXT = 160
"""Longer values are whole networks."""


@cache
def published() -> dict[str, list[Any]]:
    """Return the values by "TYPE.ENTRY"."""
    values: dict[str, list[Any]] = json.loads(FILE.read_text())
    return values


def _entries(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield "TYPE.ENTRY" and the value for each entry of a tree."""
    if isinstance(value, (list, tuple)):
        for element in value:
            yield from _entries(name, element)
    elif isinstance(value, dict):
        kind = str(value.get("type", name)).rpartition(".")[2]
        for key, child in value.items():
            if key != "type":
                yield f"{kind}.{key}", child
            yield from _entries(str(key), child)


def main() -> int:
    import mmdet
    from mmengine.config import Config

    warnings.simplefilter("ignore")
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for path in sorted(Path(mmdet.__file__).parent.glob(".mim/configs/*/*.py")):
        try:
            config = Config.fromfile(path, import_custom_modules=False).to_dict()
        except Exception as error:  # of other repositories, which are not installed
            print(f"{path.name}: {type(error).__name__}")
            continue
        for name in ("model", "test_dataloader", "test_pipeline"):
            for key, value in _entries(name, config.get(name)):
                try:
                    text = json.dumps(value)
                except TypeError:
                    continue
                if len(text) <= MAX_TEXT and "init_cfg" not in key:
                    counts[key][text] += 1
    lines = [
        f"{json.dumps(key)}: [{', '.join(text for text, _ in counts[key].most_common(MAX_VALUES))}]"
        for key in sorted(counts)
    ]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
