"""Make the table of AP in docs/measured/equality.md.  Run by hand, as the data is not in the repository.

    python -m tests.tools.parity_table FOLDER [FAMILY ...] [--files DIRECTORY]

FOLDER has ``data/``, and for each family a config, a checkpoint, and MMDetection's AP in ``metrics.json``.  Each family
is exported, unless DIRECTORY has its file, and evaluated in torch and in ONNX Runtime, image by image and in batches of
4.  Prints a line for each kind of AP.  Exit code 1 if an AP differs by 0.0005 or more, or less than 99.9 % of the
detections are equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path

from mmort.configs import read_config
from mmort.detect.export import export
from mmort.detect.network import load_network
from mmort.evaluate import dataset_of
from mmort.evaluate.parity import Parity, compare_models
from mmort.evaluate.parity.result import METRIC_TOLERANCE
from mmort.predict import Predictor

BATCH_SIZES = 1, 4

HEADINGS = (
    *("", "MMDetection", "torch", "ONNX", "difference"),
    *("torch, batches of 4", "ONNX, batches of 4", "difference", "equal detections"),
)
"""A difference is the largest one of the figures to its left.  Equal detections: image by image, and in batches."""


def compare(folder: Path, family: str, files: Path) -> tuple[str, list[Parity]]:
    """Return a family's name, and the comparison of its file with torch for each size of batches."""
    config, checkpoint = folder / family / "config.py", folder / family / "checkpoint.pth"
    file = files / f"{family}.onnx"
    if not file.exists():
        export(config, checkpoint, file, progress=lambda line: None)
    network = load_network(read_config(config), checkpoint)
    dataset = dataset_of(read_config(config), classes=network.classes, data_root=folder / "data")
    metrics = ["bbox", "segm"] if "masks" in network.detector.output_names else ["bbox"]
    models = {
        "torch": Predictor(network, classes=network.classes, preprocessing=network.preprocessing, score_threshold=0),
        "ONNX": Predictor(file, score_threshold=0),
    }
    results = []
    for size in BATCH_SIZES:
        predict = {name: partial(model.predict, batch_size=size) for name, model in models.items()}
        results.append(compare_models(dataset, predict, metrics))
    return network.detector.family, results


def rows(family: str, expected: dict[str, float], results: list[Parity]) -> list[tuple[str, ...]]:
    """Return a line of the table for each kind of AP."""
    totals = [result.columns[0].comparison for result in results]
    equal = ", ".join(f"{total.matched} of {total.expected}" for total in totals)
    lines = []
    for metric, label, counts in (("bbox_mAP", family, equal), ("segm_mAP", f"{family}, masks", "")):
        if metric not in results[0].metrics:
            continue
        cells = [label]
        for result, columns in zip(results, ([expected[metric]], []), strict=True):
            values = [*columns, result.metrics[metric], result.columns[0].metrics[metric]]
            cells += [*(f"{value:.4f}" for value in values), f"{max(values) - min(values):.3f}"]
        lines.append((*cells, counts))
    return lines


def equal(expected: dict[str, float], results: list[Parity]) -> bool:
    """Whether ONNX Runtime equals torch, and torch MMDetection."""
    figures = results[0].metrics
    apart = [abs(figures[name] - expected[name]) for name in ("bbox_mAP", "segm_mAP") if name in figures]
    return all(result.ok for result in results) and max(apart) < METRIC_TOLERANCE


def main() -> int:
    """Print the table of the families of the command line, by default of all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--files", type=Path, help="directory of the exported files (default: a temporary one)")
    arguments = parser.parse_args()
    families = arguments.families or sorted(path.parent.name for path in arguments.folder.glob("*/config.py"))
    print("|", " | ".join(HEADINGS), "|")
    print("|-" * len(HEADINGS) + "|", flush=True)
    different = 0
    with tempfile.TemporaryDirectory() as temporary:
        for family in families:
            name, results = compare(arguments.folder, family, arguments.files or Path(temporary))
            expected = json.loads((arguments.folder / family / "metrics.json").read_text(encoding="utf-8"))["pytorch"]
            different += not equal(expected, results)
            for row in rows(name, expected, results):
                print("|", " | ".join(row), "|", flush=True)
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
