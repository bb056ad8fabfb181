"""Other exporters' files, each adopted and compared with its own package's detections on photos; none may be wrong.

python -m tests.tools.check_exporters RECORD [PART_OF_A_NAME ...]

A file is right if all detections are the package's own, boxes within 0.01 pixels and scores within 1e-4, or by the
rounding of float16 where the network computes in it.  Otherwise `adopt` must refuse it, or ask; with the preset or the
entries that the question names, it must be right.  The files are made of packages of the index, with random weights by
a fixed seed, or with the trained ones that a package ships.  RECORD gets a line of JSON for each; what it has is not
run again.  The last lines are a table of counts.  Exit code 1 if a file is silently wrong.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import warnings
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np

import mmort
import mmort.onnx
from mmort.onnx.adopt import Question
from tests.tools.exporters.exporter import Exporter, difference, photos

OUTCOMES = "right", "right after a question", "asked", "refused", "shows nothing", "not exported", "WRONG"


def files() -> dict[str, Exporter]:
    """Return all files by name, whose first word is the package."""
    from tests.tools.exporters import of_packages, of_torchvision, of_transformers, of_ultralytics, of_yolos

    return {
        name: exporter
        for module in (of_ultralytics, of_torchvision, of_transformers, of_packages, of_yolos)
        for name, exporter in module.FILES.items()
    }


def judge(exporter: Exporter, folder: Path, images: list[np.ndarray]) -> tuple[str, str]:
    """Return the outcome of a file, one of `OUTCOMES`, and what it is about."""
    try:
        path = exporter.make(folder)
    except Exception as error:  # of any package
        return "not exported", f"{type(error).__name__}: {error}"[:300]
    adopted, config = folder / "adopted.onnx", folder if exporter.config else None
    question = ""
    try:
        mmort.onnx.adopt(path, adopted, exporter.layout, config=config)
    except Question as error:
        question = str(error)
        if exporter.preset is None:
            return "asked", question
        try:
            mmort.onnx.adopt(path, adopted, exporter.layout, config=config, preset=exporter.preset)
        except ValueError as again:
            return "asked", str(again)
    except ValueError as error:
        return "refused", str(error)
    predict = mmort.Predictor(adopted, score_threshold=0)

    def candidates(image: np.ndarray) -> mmort.Detections:
        """Return all boxes in an image, before suppression and clipping."""
        every = {"iou_threshold": None, "max_detections": 9999, "preprocessing": {"clip_boxes": False}}
        layout, preset = (exporter.layout or {}) | every, exporter.preset if question else None
        mmort.onnx.adopt(path, folder / "every_box.onnx", layout, config=config, preset=preset, force=True)
        return mmort.Predictor(folder / "every_box.onnx", score_threshold=0)(image)

    count, problems = 0, []
    for image in images:
        expected = exporter.detect(path, image)
        count += len(expected[1])
        if problem := difference(predict(image), expected, exporter, partial(candidates, image)):
            problems.append(problem)
    if problems:
        return "WRONG", f"{'after a question: ' if question else ''}{'; '.join(problems)}"
    if not count:
        return "shows nothing", "the package detects nothing"
    return ("right after a question", f"{count}; {question}") if question else ("right", str(count))


def table(lines: list[dict[str, str]]) -> str:
    """Return a row for each package, with the number of files of each outcome."""
    packages: dict[str, Counter[str]] = {}
    for line in lines:
        packages.setdefault(line["name"].split()[0], Counter())[line["outcome"]] += 1
    packages["all"] = Counter(line["outcome"] for line in lines)
    shown = [outcome for outcome in OUTCOMES if packages["all"][outcome] or outcome == "WRONG"]
    rows = [("package", "files", *shown)]
    for name, counts in packages.items():
        rows.append((name, str(counts.total()), *(str(counts[outcome]) for outcome in shown)))
    rows.insert(1, ("-",) * len(rows[0]))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> int:
    """Judge the files that the record does not have, and print the table."""
    record, parts = Path(sys.argv[1]).absolute(), sys.argv[2:]
    lines = list(map(json.loads, record.read_text().splitlines())) if record.exists() else []
    done = {line["name"] for line in lines}
    images = photos()
    for name, exporter in files().items():
        if name in done or (parts and not any(part in name for part in parts)):
            continue
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.chdir(folder)  # where some packages write
            outcome, text = judge(exporter, Path(folder), images)
            os.chdir(record.parent)
        lines.append({"name": name, "outcome": outcome, "text": text})
        with record.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
        print(f"{name}: {outcome}: {' '.join(text.split())[:300]}", flush=True)
    print(table(lines))
    return int(any(line["outcome"] == "WRONG" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
