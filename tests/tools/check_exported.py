"""Compare exported detectors with torch.  Run by hand, as the data is not in the repository.

    python -m tests.tools.check_exported FOLDER [FAMILY ...] [--python OTHER_PYTHON] [--portable] [--keep FOLDER]

FOLDER has images, and a config and a checkpoint for each family.  Each family is exported once, at a size that none of
its images has, and run on single images, in batches of four images of different sizes, and at other sizes: with one and
with two threads, and again with the ONNX Runtime of other interpreters, which need ONNX Runtime and numpy only.  With
``--portable`` the files have definitions of mmort's operators, and are also run without its library.  Prints a line for
each family and kind of inputs.  Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import mmort
import mmort.onnx
from mmort.configs import read_config
from mmort.contract import WITH_MASKS
from mmort.detect import Detector, load
from mmort.onnx.verify.detections import DetectionRow, compare_detections
from mmort.predict import Preprocessing

Array = NDArray[Any]
Inputs = tuple[Array, Array]
"""``input`` and ``img_shape``."""

RTOL, ATOL = 1e-3, 1e-4

VARIANTS = {"cornernet": ("with flip",), "detr": ("isolated",)}

RUN = """
import sys
import numpy as np, onnxruntime
library, model, inputs, outputs, threads, mask_type = sys.argv[1:]
options = onnxruntime.SessionOptions()
if library:
    options.register_custom_ops_library(library)
options.intra_op_num_threads = int(threads)
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
names = [formal.name for formal in session.get_inputs()]
with np.load(inputs) as given:
    results = {}
    for index in range(len(given.files) // 2):
        values = {"input": given[f"{index}.input"], "img_shape": given[f"{index}.img_shape"]}
        found = session.run(None, {name: values[name] for name in names})
        masks = [mask[found[1] >= 0].astype(mask_type) for mask in found[2:]]
        for output, array in enumerate(found[:2] + masks):
            results[f"{index}.{output}"] = array
np.savez(outputs, **results)
print(onnxruntime.__version__)
"""
"""Runs a model in any interpreter.  Masks of unused rows are dropped: they would take gigabytes."""


def kinds_of_inputs(prepare: Preprocessing, images: list[Path]) -> Iterator[tuple[str, list[Inputs]]]:
    """Yield the name of a kind of inputs, and inputs of that kind made from the images."""
    prepared = [prepare(image) for image in images]
    yield "single images", [prepare.batch([image]) for image in prepared]
    quarter = len(prepared) // 4
    yield "batches of 4", [prepare.batch(prepared[start::quarter]) for start in range(quarter)]
    width, height = prepare.size or (180, 150)
    batches = []
    for index, factor in enumerate((0.5, 0.8, 1.3, 1.9)):
        resize = dataclasses.replace(prepare, size=(round(width * factor), round(height * factor)))
        for start in range(index, len(images), 24):
            input, shapes = resize.batch([resize(image) for image in images[start : start + 2]])
            # a row and two columns of padding, so that sides are no multiples of a stride
            batches.append((np.pad(input, ((0, 0), (0, 0), (0, 1), (0, 2))), shapes))
    yield "other sizes", batches


def run_torch(detector: Detector, inputs: list[Inputs]) -> list[list[Array]]:
    """Return torch's results: dets, labels, and the masks of used rows."""
    results = []
    for input, shapes in inputs:
        with torch.inference_mode():
            outputs = detector(torch.from_numpy(input), torch.from_numpy(shapes))
        dets, labels, *masks = (output.numpy() for output in outputs)
        results.append([dets, labels, *(mask[labels >= 0].astype(np.float16) for mask in masks)])
    return results


def run_file(
    python: str, library: str, model: Path, inputs: Path, threads: int, mask_type: str = "float16"
) -> tuple[str, list[list[Array]]]:
    """Return the version of ONNX Runtime and its results, like those of `run_torch`; or an error and no results.

    Without a `library` (an empty string) the file is run without mmort's operators.
    """
    outputs = inputs.with_name("outputs.npz")
    arguments = [library, model, inputs, outputs, threads, mask_type]
    done = subprocess.run([python, "-c", RUN, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr.strip().splitlines()[-1], []
    with np.load(outputs) as file:
        count = 1 + max(int(key.split(".")[0]) for key in file.files)
        width = len(file.files) // count
        return done.stdout.strip(), [[file[f"{index}.{output}"] for output in range(width)] for index in range(count)]


def compare(got: list[list[Array]], wanted: list[list[Array]]) -> list[DetectionRow]:
    """Compare all images."""
    rows = []
    for index, (ours, theirs) in enumerate(zip(got, wanted, strict=True)):
        rows += compare_detections(str(index), whole(ours), whole(theirs), rtol=RTOL, atol=ATOL)
    return rows


def whole(outputs: list[Array]) -> list[Array]:
    """Put the masks of used rows back among all rows."""
    dets, labels, *masks = outputs
    if not masks:
        return outputs
    every = np.zeros((*labels.shape, *masks[0].shape[1:]), masks[0].dtype)
    every[labels >= 0] = masks[0]
    return [dets, labels, every]


def export(detector: Detector, inputs: Inputs, path: Path, portable: bool) -> float:
    """Export with an example whose size differs from all images'; return the seconds that it took.

    The example is so large that no feature map has a single row or column, which torch.export takes for a constant.
    """
    input, shapes = inputs
    example = np.pad(input, ((0, 0), (0, 0), (0, input.shape[2] + 5), (0, input.shape[3] + 9)))
    arguments = torch.from_numpy(example), torch.from_numpy(shapes)
    begin = time.perf_counter()
    mmort.onnx.export(
        detector,
        arguments,
        path,
        dynamic_shapes=({0: "batch", 2: "height", 3: "width"}, {0: "batch"}),
        input_names=["input", "img_shape"],
        output_names=WITH_MASKS[: len(detector(*arguments))],
        rtol=RTOL,
        atol=ATOL,
        portable=portable,
    )
    return time.perf_counter() - begin


def check(folder: Path, family: str, variant: str, pythons: list[str], portable: bool, work: Path) -> int:
    """Check a family; return the number of images that differ, over all runs."""
    directory = folder / family
    prepare = Preprocessing.from_config(read_config(directory / "config.py"))
    detector = load(directory / "config.py", directory / "checkpoint.pth")
    if variant:
        detector.prepare_for_export(flip=variant == "with flip")
    family = f"{family} {variant}".strip()
    images = sorted((folder / "data/val2017").glob("*.png"))
    model = work / f"{family.replace(' ', '_')}.onnx"
    seconds = export(detector, prepare.batch([prepare(image) for image in images[:2]]), model, portable)
    print(f"{family}: exported in {seconds:.0f} s, {model.stat().st_size / 1e6:.1f} MB", flush=True)
    different = 0
    for kind, inputs in kinds_of_inputs(prepare, images):
        arrays = {}
        for index, pair in enumerate(inputs):
            arrays |= {f"{index}.{name}": array for name, array in zip(("input", "img_shape"), pair, strict=True)}
        np.savez(work / "inputs.npz", **arrays)
        wanted = run_torch(detector, inputs)
        library = mmort.get_onnxruntime_op_path()
        for python, used in itertools.product(pythons, [library, ""] if portable else [library]):
            for threads in (1, 2):
                version, got = run_file(python, used, model, work / "inputs.npz", threads)
                version += "" if used else ", no library"
                if not got:
                    print(f"{family}, {kind}, {python}, {threads} threads: {version}", flush=True)
                    different += len(inputs)
                    continue
                rows = compare(got, wanted)
                different += sum(not row.ok for row in rows)
                print(line(family, kind, f"{version}, {threads} threads", rows), flush=True)
                for row in rows:
                    if not row.ok:
                        print(f"    inputs {row.inputs}, image {row.image}: {row.problem} of {row.detections}")
    return different


def line(family: str, kind: str, runtime: str, rows: list[DetectionRow]) -> str:
    """Return the totals of a run as a line of the table."""
    counts = [sum(getattr(row, name) for row in rows) for name in ("detections", "matched", "missing", "extra")]
    box, score = max(row.max_box_diff for row in rows), max(row.max_score_diff for row in rows)
    overlaps = [row.min_mask_overlap for row in rows if row.min_mask_overlap is not None]
    mask = f"{min(overlaps):.4f}" if overlaps else "-"
    numbers = "  ".join(f"{count:6}" for count in counts)
    return f"{family:20}  {kind:14}  {runtime:30}  {numbers}  {box:8.1e}  {score:8.1e}  {mask:>7}"


def main() -> int:
    """Check the families of the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--python", action="append", default=[], help="another interpreter with ONNX Runtime")
    parser.add_argument("--portable", action="store_true", help="run the files without mmort's library, too")
    parser.add_argument("--keep", type=Path, help="a folder for the exported files")
    arguments = parser.parse_args()
    known = sorted(path.parent.name for path in arguments.folder.glob("*/config.py"))
    print(
        f"{'family':20}  {'inputs':14}  {'ONNX Runtime':30}  detections  matched  missing  extra  box  score  overlap",
        flush=True,
    )
    different = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = arguments.keep or Path(temporary)
        for family in arguments.families or known:
            pythons = [sys.executable, *arguments.python]
            for variant in ("", *VARIANTS.get(family, ())):
                different += check(arguments.folder, family, variant, pythons, arguments.portable, work)
    print(f"{different} images differ")
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
