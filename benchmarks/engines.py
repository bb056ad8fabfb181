"""Write the table of engines: published detectors in ONNX Runtime, OpenVINO and torch, all on one image.

    python benchmarks/engines.py FILES CONFIG ... [--engines ENGINE ...] [--threads N] [--limit SECONDS]
                                                  [--twins DIGITS ...] [--vocabulary VOCAB.txt] [--prepare]

FILES keeps the weights, the exported files, the input and the results (engines.json) of each CONFIG, so that the
command goes on where it was stopped, and tries again what failed; with --prepare it stops after the files.  Weights are
random, as those of `tests.tools.export_full_size`.  Each cell runs in a process of its own, `engine_cell.py`.
DIGITS are folders of small trained detectors, FAMILY/config.py and FAMILY/checkpoint.pth (`twins/train_twin.py` trains
some); the first also has a data set in COCO's format, data.  The AP is that of the same family in the same engine.
Prints Markdown.  Run it from the root of the repository.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.tools

from engine_cell import ENGINES

TITLES = {
    "library": "ONNX Runtime with mmort, float32",
    "library int8": "ONNX Runtime with mmort, int8",
    "portable": "ONNX Runtime, portable file, float32",
    "openvino float32": "OpenVINO, portable file, float32",
    "openvino bfloat16": "OpenVINO, portable file, bfloat16",
    "openvino int8": "OpenVINO, portable file, int8",
    "torch": "torch, eager, float32",
    "torch.compile": "torch.compile, float32",
}

_NOT_RUN = {"error": "not run"}


def prepare(
    files: Path,
    name: str,
    config: Path,
    checkpoint: Path | None = None,
    images: Path | None = None,
    vocabulary: Path | None = None,
) -> None:
    """Write the files that the cells of a detector need: weights, files, an input; existing ones are kept.

    Integers are calibrated with some of `images`, or with the input; `vocabulary` is that of a language model.
    """
    import torch

    import mmort.onnx
    from mmort.configs import read_config
    from mmort.detect import build
    from mmort.detect.export import ExportOptions, export
    from mmort.detect.export.examples import Examples
    from mmort.detect.export.export_steps import DEFAULT_IMAGE
    from mmort.predict import Preprocessing, list_images, read_image
    from tests.tools.export_full_size import fill

    weights, onnx_file, integers = (files / f"{name}{suffix}" for suffix in (".pth", ".onnx", ".int8.onnx"))
    preprocessing = Preprocessing.from_config(read_config(config))
    if checkpoint and not weights.exists():
        weights.symlink_to(checkpoint.resolve())
    elif not weights.exists():
        detector = build(read_config(config))
        fill(detector, preprocessing, vocabulary)
        torch.save({"state_dict": detector.state_dict(), "meta": {}}, weights)
    if not onnx_file.exists():
        # Without the proof: the outputs of the engines are compared with each other.
        export(config, weights, onnx_file, ExportOptions(verify=False, vocabulary=vocabulary), progress=tqdm.write)
    examples = Examples(preprocessing, dynamic=True, with_shapes=True)
    image = read_image(DEFAULT_IMAGE)
    inputs = [tensor.numpy() for tensor in examples(image, 1, *examples.default_shape())]
    np.savez(files / f"{name}.npz", input=inputs[0], img_shape=inputs[1])
    if not integers.exists():
        calibration = mmort.onnx.read_inputs(onnx_file, list_images(images)[:40]) if images else [inputs]
        mmort.onnx.quantize(onnx_file, integers, calibration)
    for file, form in ((onnx_file, "functions"), (onnx_file, "inlined"), (integers, "inlined")):
        portable = file.with_suffix(f".{form}.onnx")
        if not portable.exists():
            mmort.onnx.make_portable(file, portable, form)


def run_cell(limit: int, *arguments: str) -> dict[str, Any]:
    """Return a cell's figures, or why there are none in `limit` seconds as `error`."""
    command = [sys.executable, str(Path(__file__).with_name("engine_cell.py")), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"takes more than {limit} s"}
    if done.returncode:
        return {"error": " ".join((done.stderr.strip().splitlines() or ["crashes"])[-1].split())[:200]}
    return json.loads(done.stdout.splitlines()[-1])


def differing(files: Path, name: str, engine: str) -> str:
    """Return how many detections differ from those of ONNX Runtime with mmort's library."""
    from mmort.onnx.verify.detections import compare_detections

    outputs = []
    for file in (files / f"{name}.{engine}.npz", files / f"{name}.library.npz"):
        with np.load(file) as arrays:
            outputs.append([arrays[key] for key in arrays.files][:3])
    rows = compare_detections("", *outputs, rtol=1e-3, atol=1e-4)
    total = sum(row.detections for row in rows)
    return f"{total - sum(row.matched + row.ties for row in rows)} of {total}"


def table(name: str, record: dict[str, Any], engines: list[str], threads: int) -> str:
    """Return the table of a detector."""
    head = ["engine", "latency", "CPU time", "first result after", "peak memory", "detections that differ", "AP"]
    lines = [f"| {' | '.join(head)} |", "|" + "-|" * len(head)]
    for engine in engines:
        cell = record.get(f"{name}, {engine}, {threads}", _NOT_RUN)
        scores = record.get(f"{name}, {engine}, AP", {})
        text = " / ".join(f"{value:.3f}" for value in scores.values() if isinstance(value, float)) or "-"
        if "error" in cell:
            values = [cell["error"], "", "", "", ""]
        else:
            times = (f"{cell[key]:.3g} s" for key in ("latency", "cpu", "first"))
            values = [*times, f"{cell['peak'] / 1e9:.1f} GB", cell["differ"]]
        lines.append(f"| {' | '.join([TITLES[engine], *values, text])} |")
    return f"### {name}\n\n" + "\n".join(lines) + "\n"


def twin_of(name: str, folders: list[Path]) -> Path | None:
    """Return the config of the twin whose family the name of a detector begins with, None if there is none."""
    twins = [twin for folder in folders for twin in folder.glob("*/config.py")]
    return next((twin for twin in twins if name.replace("-", "_").startswith(f"{twin.parent.name}_")), None)


def main() -> None:
    """Run the cells that the record lacks or has an error for; print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path)
    parser.add_argument("configs", type=Path, nargs="+")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=list(ENGINES))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--limit", type=int, default=600, help="seconds that a cell may take (default: %(default)s)")
    parser.add_argument("--twins", type=Path, nargs="+", default=[], metavar="DIGITS")
    parser.add_argument("--vocabulary", type=Path, help="of configs with a language model: its vocab.txt")
    parser.add_argument("--prepare", action="store_true", help="only write the files")
    options = parser.parse_args()
    options.files.mkdir(exist_ok=True)
    journal = options.files / "engines.json"
    record = json.loads(journal.read_text()) if journal.exists() else {}

    def save() -> None:
        journal.write_text(json.dumps(record, indent=1) + "\n")

    def fill_cell(key: str, *arguments: str) -> dict[str, Any]:
        if "error" in record.get(key, _NOT_RUN):
            tqdm.write(key, file=sys.stderr)
            record[key] = run_cell(options.limit, *arguments)
            save()
        return record[key]

    for config in tqdm(options.configs, unit="detector", disable=None):
        name = config.stem
        prepare(options.files, name, config, vocabulary=options.vocabulary)
        for engine in [] if options.prepare else options.engines:
            key = f"{name}, {engine}, {options.threads}"
            arguments = engine, str(options.files), name, str(config), "--threads", str(options.threads)
            arguments += ("--vocabulary", str(options.vocabulary)) if options.vocabulary else ()
            cell = fill_cell(key, *arguments)
            if "error" not in cell and "differ" not in cell:
                cell["differ"] = differing(options.files, name, engine)
                save()
        if twin := twin_of(name, options.twins):
            family = twin.parent.name
            annotations, images = (next(options.twins[0].glob(f"data/{of}")) for of in ("annotations/*.json", "val*"))
            prepare(options.files, family, twin, twin.with_name("checkpoint.pth"), images)
            for engine in [] if options.prepare else options.engines:
                data = "--annotations", str(annotations), "--images", str(images)
                fill_cell(f"{name}, {engine}, AP", engine, str(options.files), family, str(twin), *data)
    for config in [] if options.prepare else options.configs:
        print(table(config.stem, record, list(ENGINES), options.threads))


if __name__ == "__main__":
    main()
