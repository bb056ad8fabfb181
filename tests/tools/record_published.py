"""Write mmort/evaluate/published.txt: the AP that MMDetection's metafiles state for configs on COCO's val2017.

pip download --no-deps mmdet==3.3.0; python -m zipfile -e mmdet-3.3.0-py3-none-any.whl FOLDER
pip install pyyaml && python -m tests.tools.record_published FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import yaml

TARGET = Path(__file__).parents[2] / "mmort" / "evaluate" / "published.txt"
TASKS = {"Object Detection": "box AP", "Instance Segmentation": "mask AP"}


def lines(folder: Path) -> list[str]:
    """Return a line for each config with an AP of boxes or masks on COCO."""
    figures: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("**/configs/*/metafile.yml")):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for model in content.get("Models", []) if isinstance(content, dict) else content:
            for result in model.get("Results") or []:
                metric = TASKS.get(result["Task"], "")
                if result["Dataset"] == "COCO" and model.get("Config") and metric in (result.get("Metrics") or {}):
                    figures.setdefault(Path(model["Config"]).stem, {})[metric] = float(result["Metrics"][metric])
    return [
        f"{name} {' '.join(str(of.get(metric, '-')) for metric in TASKS.values())}"
        for name, of in sorted(figures.items())
    ]


if __name__ == "__main__":
    TARGET.write_text("".join(f"{line}\n" for line in lines(Path(sys.argv[1]))), encoding="utf-8")
