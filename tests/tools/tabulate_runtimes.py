"""Write the tables of docs/measured/runtimes.md: each family's file in each runtime, compared with mmort's library.

    python -m tests.tools.tabulate_runtimes RECORD.json [--trained FILES IMAGES] [--small [NAME ...]] [--web MODULES]

RECORD.json keeps the results of former runs, which the page also has.  FILES is a folder of detectors that mmort export
wrote without --portable, IMAGES one of pictures for them.  Small detectors are those of the tests, with random weights:
each takes ten seconds to export; by default all; `rounding` tells what differs in them by rounding.  MODULES is a
folder in which npm installed onnxruntime-web.
Needs the openvino extra.  Files run on one thread, in processes of their own, as a runtime may crash.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from tqdm import tqdm

import mmort.ort
from mmort.onnx import make_portable
from mmort.onnx.verify.detections import compare_detections
from mmort.predict import OpenVino, Preprocessing, list_images
from mmort.tolerances import Tolerances
from tests.tools.rounding import Batches, NudgedRuns, Outputs, differing

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "measured" / "runtimes.md"
NODE_SCRIPT = Path(__file__).with_name("run_in_onnxruntime_web.mjs")
LIMITS = Tolerances(rtol=1e-3, atol=1e-4)
REPEATS = 5
"""Of each input, where times are stated."""

Run = Callable[[Path, Batches, int], tuple[Outputs, float]]
"""Runs a file on inputs, each several times; returns the outputs of each, and the median of the milliseconds."""


def timed(call: Callable[..., Any], batches: Batches, repeats: int) -> tuple[Outputs, float]:
    """Call with each batch several times; time is the processor's, as other programs may run."""
    outputs, seconds = [], []
    for batch in batches:
        for _ in range(repeats):
            begin = time.process_time()
            result = call(*batch)
            seconds.append(time.process_time() - begin)
        outputs.append(result)
    return outputs, 1000 * statistics.median(seconds)


def onnx_runtime(path: Path, batches: Batches, repeats: int, *, library: bool = False) -> tuple[Outputs, float]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    if library:
        mmort.ort.register(options)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [argument.name for argument in (*session.get_inputs(), *session.get_overridable_initializers())]

    def call(input: NDArray[Any], shapes: NDArray[Any]) -> Any:
        return session.run(None, {"input": input} | ({"img_shape": shapes} if "img_shape" in names else {}))

    return timed(call, batches, repeats)


def openvino_float32(path: Path, batches: Batches, repeats: int) -> tuple[Outputs, float]:
    return timed(OpenVino(path, threads=1), batches, repeats)


def openvino_default(path: Path, batches: Batches, repeats: int) -> tuple[Outputs, float]:
    """Run in the precision that OpenVINO chooses, on pictures without padding."""
    import openvino

    network = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": 1})
    names = [output.name for output in onnx.load(path, load_external_data=False).graph.output]

    def call(input: NDArray[Any], shapes: NDArray[Any]) -> Any:
        result = network(input)
        return [result[name] for name in names]

    return timed(call, batches, repeats)


def onnx_runtime_web(path: Path, batches: Batches, repeats: int, *, modules: str) -> tuple[Outputs, float]:
    with tempfile.TemporaryDirectory() as folder:
        inputs = []
        for index, (input, _) in enumerate(batches):
            file = Path(folder, f"input{index}")
            file.write_bytes(input.tobytes())
            inputs.append({"file": str(file), "dims": input.shape})
        job = {"model": str(path), "inputs": inputs, "repeats": repeats, "folder": folder}
        Path(folder, "job.json").write_text(json.dumps(job))
        command = ["node", str(NODE_SCRIPT), modules, f"{folder}/job.json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if "rror" in line]
            raise RuntimeError(lines[-1] if lines else done.stderr[-200:])
        answer = json.loads(done.stdout.splitlines()[-1])
        outputs = [
            [np.fromfile(tensor["path"], tensor["type"]).reshape(tensor["dims"]) for tensor in tensors]
            for tensors in answer["results"]
        ]
        return outputs, answer["milliseconds"]


class Worker:
    """A process for runs, and another one after a crash."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

    def run(self, run: Run, path: Path, batches: Batches, repeats: int) -> tuple[Outputs, float] | str:
        """Return a run's results, or why it failed."""
        try:
            return self._pool.submit(run, path, batches, repeats).result()
        except BrokenProcessPool:
            self._start()
            return "crashes"
        except Exception as error:  # of any runtime
            return " ".join(str(error).split())[:160].replace("|", "/").replace(str(path), "the file")


def cell(
    result: tuple[Outputs, float] | str, expected: tuple[Outputs, float], *, nudged: NudgedRuns | None = None
) -> str:
    """Return the text for a runtime's results: with the time or, if there are `nudged` runs, with what is rounding."""
    if isinstance(result, str):
        return result
    total = different = rounding = 0
    for batch, (actual, wanted) in enumerate(zip(result[0], expected[0], strict=True)):
        if len(actual[0]) != len(wanted[0]):
            return f"{len(actual[0])} of {len(wanted[0])} pictures"
        rows = compare_detections("", actual[:3], wanted[:3], rtol=LIMITS.rtol, atol=LIMITS.atol)
        for image, row in enumerate(rows):
            count = differing(actual, wanted, image, LIMITS) - row.ties
            total, different = total + row.detections, different + count
            if count and nudged:
                rounding += min(count, nudged.count(actual, wanted, batch, image, LIMITS))
    text = f"{different - rounding} of {total} differ" if different > rounding else "equal"
    if rounding:
        text += f", {rounding} of {total} by rounding" if text == "equal" else f", {rounding} by rounding"
    if not total:
        text = "nothing detected"
    return text if nudged else f"{text}, {result[1] / expected[1]:.2f}"


def cells(
    worker: Worker, source: Path, batches: Batches, modules: str | None, work: Path, *, trained: bool
) -> dict[str, str]:
    """Return the text for each runtime."""
    repeats = REPEATS if trained else 1
    functions: Path | None = work / "functions.onnx"
    inlined = work / "inlined.onnx"
    for path, form in ((work / "functions.onnx", "functions"), (inlined, "inlined")):
        path.unlink(missing_ok=True)
        missing = [row.operator for row in make_portable(source, path, form) if row.missing]
        if missing and form == "inlined":
            return {"inlined": f"no definition of {', '.join(missing)}"}
        if missing:  # a function cannot choose between all definitions that nodes of an operator may need
            functions = None
    whole = [(input, np.tile(np.array(input.shape[2:]), (len(input), 1))) for input, _ in batches]
    padded = worker.run(partial(onnx_runtime, library=True), source, batches, repeats)
    plain = worker.run(partial(onnx_runtime, library=True), source, whole, repeats) if trained else padded
    if isinstance(padded, str) or isinstance(plain, str):
        return {"library": str(padded)}
    actual = {"library": f"{padded[1]:.1f} ms" if trained else "runs"}
    runs: list[tuple[str, Run, Path, Batches, Any]] = [
        ("inlined", onnx_runtime, inlined, batches, padded),
        ("openvino", openvino_float32, inlined, batches, padded),
    ]
    if functions:
        runs.insert(0, ("functions", onnx_runtime, functions, batches, padded))
    else:
        actual["functions"] = "needs `inlined`"
    if trained:
        runs.append(("openvino default", openvino_default, inlined, whole, plain))
    if modules:
        runs.append(("web", partial(onnx_runtime_web, modules=modules), inlined, whole, plain))
    nudged = NudgedRuns(lambda path, batches: onnx_runtime(path, batches, 1, library=True)[0], source, batches, work)
    for name, run, path, inputs, expected in runs:
        actual[name] = cell(worker.run(run, path, inputs, repeats), expected, nudged=None if trained else nudged)
    return actual


def trained_files(folder: Path, images: Path, work: Path) -> Iterator[tuple[str, Path, Batches]]:
    """Yield each trained detector's name, file and inputs: two single pictures and a batch of three."""
    pictures = list_images(images)[:5]
    for path in sorted(folder.glob("*.onnx")):
        metadata = {entry.key: entry.value for entry in onnx.load(path, load_external_data=False).metadata_props}
        prepare = Preprocessing.from_dict(json.loads(metadata["preprocessing"]))
        images_of = [prepare(picture) for picture in pictures]
        batches = [prepare.batch(chunk) for chunk in (images_of[:1], images_of[1:2], images_of[2:])]
        yield f"{metadata['family']}, trained", path, batches


def small_files(names: list[str], work: Path) -> Iterator[tuple[str, Path, Batches]]:
    """Yield each small detector's name, file and inputs of two sizes that were not traced."""
    import torch

    from mmort.detect import build
    from mmort.detect.export import ExportOptions, export
    from tests.detect.small_exports import PIPELINE, small_cases

    torch.set_grad_enabled(False)
    cases = small_cases()
    settings, weights, path = (work / name for name in ("config.json", "weights.pth", "detector.onnx"))
    for name in names or cases:
        model, fill = cases[name]
        config = {"model": model, "test_pipeline": PIPELINE}
        options = ExportOptions(shape=(128, 192), dynamic_export=True, verify=False)
        torch.manual_seed(0)  # for what `fill` leaves as it was built
        detector = build(config)
        fill(detector)
        settings.write_text(json.dumps(config))
        torch.save({"state_dict": detector.state_dict(), "meta": {}}, weights)
        try:
            export(settings, weights, path, options, progress=lambda line: None)
        except ValueError as error:
            tqdm.write(f"{name}: {error}")
            continue
        rng, sizes = np.random.default_rng(0), ((2, 96, 160), (1, 160, 128))
        batches = [
            (rng.normal(0, 1, (n, 3, h, w)).astype(np.float32), np.tile(np.array([h, w]), (n, 1))) for n, h, w in sizes
        ]
        yield f"{type(detector).__name__}, {name}", path, batches


COLUMNS = {
    "library": "mmort's library",
    "functions": "`functions`",
    "inlined": "`inlined`",
    "web": "onnxruntime-web",
    "openvino": "OpenVINO, float32",
    "openvino default": "OpenVINO's default",
    "cuda": "CUDA",
}


def page(text: str, record: dict[str, dict[str, str]]) -> str:
    """Return the page with new tables, which are between comments."""
    for key, chosen in (("trained", True), ("small", False)):
        columns = {name: title for name, title in COLUMNS.items() if chosen or name != "openvino default"}
        lines = [f"| detector | {' | '.join(columns.values())} |", "-".join(["|"] * (len(columns) + 2))]
        for name, row in sorted(record.items()):
            if name.endswith(", trained") == chosen:
                label = name.removesuffix(", trained")
                lines.append(f"| {label} | {' | '.join(row.get(column, 'not run') for column in columns)} |")
        begin, end = f"<!-- {key} -->\n", f"<!-- end of {key} -->"
        before, _, rest = text.partition(begin)
        text = "".join((before, begin, *(f"{line}\n" for line in lines), end, rest.partition(end)[2]))
    return text


def main() -> None:
    """Run what the command line names, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("--trained", nargs=2, type=Path, metavar=("FILES", "IMAGES"))
    parser.add_argument("--small", nargs="*", metavar="NAME")
    parser.add_argument("--web", metavar="MODULES")
    arguments = parser.parse_args()
    record = json.loads(arguments.record.read_text()) if arguments.record.exists() else {}
    worker = Worker()
    with tempfile.TemporaryDirectory() as folder:
        sources: list[tuple[bool, Iterator[tuple[str, Path, Batches]]]] = []
        if arguments.trained:
            sources.append((True, trained_files(*arguments.trained, Path(folder))))
        if arguments.small is not None:
            sources.append((False, small_files(arguments.small, Path(folder))))
        for trained, files in sources:
            for name, path, batches in tqdm(files, unit="file"):
                record[name] = cells(worker, path, batches, arguments.web, Path(folder), trained=trained)
                tqdm.write(f"{name}: {record[name]}")
                arguments.record.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), record), encoding="utf-8")


if __name__ == "__main__":
    main()
