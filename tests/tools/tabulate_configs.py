"""Write docs/configs.md: which of MMDetection's published configs `mmort export` supports.

    pip download --no-deps mmdet==2.28.2; pip download --no-deps mmdet==3.3.0
    python -m zipfile -e mmdet-VERSION-py3-none-any.whl FOLDER             # for each
    pip install pyyaml timm && python -m tests.tools.tabulate_configs FOLDER_2 FOLDER_3

Everything is taken from the wheels: the configs, and from their metafiles the models with published weights.  What
follows the table in the page, on what is left, is written by hand and stays.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from mmort.configs import read_config
from mmort.detect import unsupported

PAGE = Path(__file__).parents[2] / "docs" / "configs.md"
TASKS = {"Object Detection", "Instance Segmentation"}
VERSIONS = ("2.28.2", "3.3.0")

LEFT = "\n## What is left"

HEAD = """# Which configs work

Whether a config works, and all that is missing if not, takes seconds and no weights:

```sh
mmort export config.py --check
```

This is its answer for the configs that MMDetection publishes, by folder. Models are those with published weights that
detect objects or segment instances.

"""


@dataclass
class Row:
    """The configs of a folder in one version."""

    configs: int = 0
    supported: int = 0
    models: int = 0
    supported_models: int = 0
    missing: Counter[str] = field(default_factory=Counter)


def models(root: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield the config and the tasks of each model with published weights."""
    for path in sorted(root.glob("*/metafile.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for model in content.get("Models", []) if isinstance(content, dict) else content:
            if model.get("Weights") and model.get("Config"):
                tasks = {result["Task"] for result in model.get("Results") or []}
                yield model["Config"].removeprefix("configs/").replace("%2B", "+"), tasks


def reasons(path: Path) -> tuple[list[str], Any]:
    """Return what is missing for a config, and its model."""
    try:
        config = read_config(path)
    except ValueError as error:
        return [str(error).rpartition(": ")[2]], None
    for hook in config.get("custom_hooks") or ():
        if hook.get("rfstructure_file"):  # of RF-Next; the wheels lack these files, so the first dilations stand in
            hook.update(mode="search", rfstructure_file=None)
    return unsupported(config), config.get("model")


def rows(root: Path) -> dict[str, Row]:
    """Return a row for each folder of configs that has models."""
    counted = Counter(name for name, tasks in models(root) if tasks & TASKS)
    table: dict[str, Row] = defaultdict(Row)
    for path in tqdm(sorted(root.glob("**/*.py")), desc=str(root)):
        name = path.relative_to(root).as_posix()
        folder = name.partition("/")[0]
        if folder in ("_base_", "common"):
            continue
        missing, model = reasons(path)
        if not isinstance(model, dict):
            continue
        row = table[folder]
        row.configs += 1
        row.supported += not missing
        row.models += counted[name]
        row.supported_models += counted[name] * (not missing)
        row.missing.update(missing)
    return table


def cell(row: Row | None) -> str:
    """Return a table's cell: the supported configs and all."""
    return "" if row is None else f"{row.supported} / {row.configs}"


def main(*folders: str) -> None:
    warnings.simplefilter("ignore")
    tables = [rows(Path(folder).resolve() / "mmdet" / ".mim" / "configs") for folder in folders]
    lines = ["| | configs that work | models that work |", "|-|-|-|"]
    for version, table in zip(VERSIONS, tables, strict=True):
        total = [
            sum(getattr(row, name) for row in table.values()) for name in Row.__dataclass_fields__ if name != "missing"
        ]
        configs, supported, count, supported_models = total
        lines.append(
            f"| MMDetection {version} | {supported} of {configs} | {supported_models} of {count} "
            f"({100 * supported_models // count} %) |"
        )
    names = " | ".join(VERSIONS)
    lines += ["", f"| folder | {names} | missing |", "|-|-|-|-|"]
    for folder in sorted({folder for table in tables for folder in table}):
        columns = [table.get(folder) for table in tables]
        missing = sum((row.missing for row in columns if row is not None), Counter[str]())
        texts = "; ".join(text for text, _ in missing.most_common(4)) + ("; ..." if len(missing) > 4 else "")
        lines.append(f"| {folder} | {' | '.join(map(cell, columns))} | {texts} |")
    _, heading, left = PAGE.read_text(encoding="utf-8").partition(LEFT)
    PAGE.write_text(HEAD + "\n".join(lines) + "\n" + heading + left, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
