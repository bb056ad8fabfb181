"""Compare exported full-size detectors with MMDetection's own results, on old and new ONNX Runtimes.

    python -m tests.tools.oracle_table FOLDER FILES [FAMILY ...] [--runtimes VERSION ...]

FOLDER is that of `check_detectors oracle3` or `oracle_rotated`, which is not in the repository: configs, weights from a
recipe, and results of single images and of a padded batch, in the frame of the network and in that of the original
image.  FILES keeps the checkpoints FAMILY.pth and the exported files FAMILY.onnx; those that exist are not made again.
Each file runs on all ONNX Runtimes, with one thread and with two.  Prints a table, and a line for each image that
differs.  Exit code 1 if one does.  Needs Python 3.11 and a package index for other versions than the installed ONNX
Runtime.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import mmort
from mmort.configs import read_config
from mmort.detect import build
from mmort.detect.families.masks.solo import SOLO
from tests.tools import check_detectors, check_exported
from tests.tools.check_detectors import Difference, Found
from tests.tools.run_on_runtimes import find_python, make_environment

OLDEST = "1.17.3"
"""The oldest ONNX Runtime that has the opset of torch's exporter, 20."""
THREADS = 1, 2
BOX, MASK = 2e-2, 2e-3
"""Tolerances: pixels, and the share of a mask's pixels."""


class Oracle:
    """A detector with the inputs and the expected results of its cases."""

    def __init__(self, folder: Path, family: str) -> None:
        self.family, self.config = family, folder / f"config_{family}.py"
        self.cases = check_detectors.import_file(folder / "cases.py")
        self.meta, self.arrays = self.cases.load(folder / f"{family}_ref.npz")
        with np.load(folder / "images.npz") as file:
            images = {key: file[key] for key in file.files}
        self.batches = {case: self.cases.batch(self.meta, case, images) for case in self.meta["cases"]}
        self.metas = {case: self.cases.img_metas(self.meta, case) for case in self.meta["cases"]}
        detector = build(read_config(self.config))
        self.mask_format, self.always_rescaled = detector.mask_format, isinstance(detector, SOLO)
        self.has_masks = "masks" in detector.output_names

    def inputs(self) -> dict[str, Any]:
        """Return the arrays that `check_exported.run_file` reads."""
        arrays = {}
        for index, (case, batch) in enumerate(self.batches.items()):
            arrays[f"{index}.input"] = batch
            arrays[f"{index}.img_shape"] = np.array([meta["img_shape"][:2] for meta in self.metas[case]])
        return arrays

    def differences(self, outputs: list[list[Any]]) -> dict[str, Difference]:
        """Compare a file's outputs for each case; return the difference of each image and mode."""
        actual = {}
        for (case, batch), values in zip(self.batches.items(), map(check_exported.whole, outputs), strict=True):
            for mode in ("net", "ori"):
                rescale = mode == "ori" or self.always_rescaled
                detected = check_detectors.detect(
                    lambda batch, shapes, values=values: values, self.mask_format, batch, self.metas[case], rescale
                )
                for image, ours in enumerate(detected):
                    result = self.cases.result(self.arrays, case, mode, image)
                    theirs = Found(result["dets"], result["labels"], result["masks"])
                    score = check_detectors.score_tolerance(self.family, theirs)
                    actual[f"{case}.{mode}.{image}"] = check_detectors.compare(ours, theirs, BOX, score, MASK)
        return actual


def measured(command: list[str]) -> tuple[int, str]:
    """Run a command; return its exit code, and the seconds of CPU time and the peak memory that it took."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, f"{usage.ru_utime + usage.ru_stime:.0f} s, {usage.ru_maxrss / 2**20:.1f} GB"


def export(folder: Path, oracle: Oracle, file: Path) -> str:
    """Export a detector unless the file exists; return the seconds of CPU time and the peak memory that it took."""
    if file.exists():
        return "-"
    checkpoint = file.with_suffix(".pth")
    if not checkpoint.exists():
        recipe = check_detectors.import_file(folder / "recipe.py")
        weights = check_detectors.recipe_weights(recipe, folder / f"{oracle.family}.npz")
        torch.save({"state_dict": weights, "meta": {}}, checkpoint)
    # Without the proof: what the file computes is compared here, and random weights overflow on other images.
    command = [sys.executable, "-c", "import sys; from mmort.cli import main; sys.exit(main())", "export"]
    command += [str(oracle.config), str(checkpoint), "--output", str(file), "--no-verify"]
    code, cost = measured(command)
    if code:
        sys.exit(f"oracle_table: {oracle.family} was not exported")
    return cost


def row(folder: Path, family: str, files: Path, pythons: dict[str, Path], work: Path) -> tuple[str, int]:
    """Return a family's row of the table, and how many comparisons of an image differ."""
    oracle = Oracle(folder, family)
    cost = export(folder, oracle, files / f"{family}.onnx")
    inputs = work / "inputs.npz"
    np.savez(inputs, **oracle.inputs())
    columns, every = [], []
    for version, python in pythons.items():
        for threads in THREADS:
            library = mmort.get_onnxruntime_op_path()
            model = files / f"{family}.onnx"
            text, outputs = check_exported.run_file(str(python), library, model, inputs, threads, "float32")
            if not outputs:
                sys.exit(f"oracle_table: {family} on ONNX Runtime {version}: {text}")
            result = oracle.differences(outputs)
            for name, difference in result.items():
                if not difference.equal:
                    print(
                        f"{family} {name}, ONNX Runtime {text}, {threads} threads:", *difference.unmatched, sep="\n  "
                    )
            columns.append(f"{sum(difference.equal for difference in result.values())} of {len(result)}")
            every += result.values()
    masks = min(difference.mask for difference in every)
    values = [
        family,
        str(sum(difference.theirs for difference in result.values())),
        *columns,
        f"{max(difference.box for difference in every):.1g}",
        f"{max(difference.score for difference in every):.1g}",
        f"{masks:.4f}" if oracle.has_masks else "-",
        cost,
    ]
    return "| " + " | ".join(values) + " |", sum(not difference.equal for difference in every)


def main() -> int:
    """Compare the families of the command line, by default all; print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("files", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--runtimes", nargs="*", default=[OLDEST], help="versions besides the installed one")
    arguments = parser.parse_args()
    known = sorted(path.stem.removeprefix("config_") for path in arguments.folder.glob("config_*.py"))
    rows, different = [], 0
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        pythons = {
            version: make_environment(find_python(), version, work) / "bin/python" for version in arguments.runtimes
        }
        pythons[onnxruntime.__version__] = Path(sys.executable)
        for family in arguments.families or known:
            text, count = row(arguments.folder, family, arguments.files, pythons, work)
            rows.append(text)
            different += count
            print(text, flush=True)
    runtimes = [f"{version}, {threads} threads" for version in pythons for threads in THREADS]
    head = ["detector", "detections", *runtimes, "box, px", "score", "mask IoU", "export"]
    print("\n| " + " | ".join(head) + " |", "|" + "-|" * len(head), *rows, sep="\n")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
