"""Run a detector in one engine, and print as JSON what it took: a cell of the table of `engines.py`.

    python benchmarks/engine_cell.py ENGINE FILES NAME CONFIG [--threads N] [--vocabulary VOCAB.txt]
                                                              [--annotations FILE --images DIR]

FILES has what `engines.py` wrote for the detector NAME of CONFIG.  The outputs are written to FILES/NAME.ENGINE.npz.
With --annotations, prints AP on a data set in COCO's format instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Run = Callable[[NDArray[Any], NDArray[Any]], Sequence[NDArray[Any]]]
"""From `input` and `img_shape` to the outputs."""

MIN_RUNS, MAX_RUNS, MAX_SECONDS = 2, 9, 8.0


class Source(NamedTuple):
    """A detector, and how many threads run it."""

    files: Path
    name: str
    config: Path
    threads: int
    vocabulary: Path | None

    def file(self, form: str) -> Path:
        return self.files / f"{self.name}{form}"


def onnx_runtime(source: Source, form: str, library: bool) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = source.threads, 3
    if library:
        import mmort.ort

        mmort.ort.register(options)
    session = onnxruntime.InferenceSession(source.file(form), options, providers=["CPUExecutionProvider"])
    names = [argument.name for argument in (*session.get_inputs(), *session.get_overridable_initializers())]

    def run(*arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        feeds = dict(zip(("input", "img_shape"), arrays, strict=True))
        return session.run(None, {name: array for name, array in feeds.items() if name in names})

    return run


def openvino(source: Source, form: str, precision: Literal["float32", "bfloat16"]) -> Run:
    from mmort.predict import OpenVino

    return OpenVino(source.file(form), threads=source.threads, precision=precision)


def openvino_of_fixed_size(source: Source, form: str) -> Run:
    """Open a file again for each size: OpenVINO compiles integers only then."""
    from openvino import Core

    from mmort.predict.engines.openvino import _add_img_shape

    core = Core()

    @cache
    def network_of(shape: tuple[int, ...]) -> tuple[Any, list[str]]:
        model = core.read_model(source.file(form))
        names = [output.get_any_name() for output in model.outputs]
        _add_img_shape(model)
        model.reshape({"input": list(shape), "img_shape": [shape[0], 2]})
        settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": source.threads, "NUM_STREAMS": 1}
        return core.compile_model(model, "CPU", settings), names

    def run(*arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        network, names = network_of(arrays[0].shape)
        outputs = network(dict(zip(("input", "img_shape"), arrays[: len(network.inputs)], strict=False)))
        return [np.array(outputs[name]) for name in names]

    return run


def torch_model(source: Source, compiled: bool) -> Run:
    import torch

    from mmort.detect import load

    torch.set_num_threads(source.threads)
    detector = load(source.config, source.file(".pth"), vocabulary=source.vocabulary)
    call = torch.compile(detector) if compiled else detector

    def run(*arrays: NDArray[Any]) -> Sequence[NDArray[Any]]:
        with torch.no_grad():
            return [output.numpy() for output in call(*map(torch.from_numpy, arrays))]

    return run


ENGINES: dict[str, tuple[Callable[..., Run], dict[str, Any]]] = {
    "library": (onnx_runtime, {"form": ".onnx", "library": True}),
    "library int8": (onnx_runtime, {"form": ".int8.onnx", "library": True}),
    "portable": (onnx_runtime, {"form": ".functions.onnx", "library": False}),
    "openvino float32": (openvino, {"form": ".inlined.onnx", "precision": "float32"}),
    "openvino bfloat16": (openvino, {"form": ".inlined.onnx", "precision": "bfloat16"}),
    "openvino int8": (openvino_of_fixed_size, {"form": ".int8.inlined.onnx"}),
    "torch": (torch_model, {"compiled": False}),
    "torch.compile": (torch_model, {"compiled": True}),
}


def open_engine(engine: str, source: Source) -> Run:
    function, settings = ENGINES[engine]
    return function(source, **settings)


def peak_memory() -> int:
    """Return the largest resident memory of this process in bytes; getrusage's includes the parent's before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(engine: str, source: Source) -> dict[str, Any]:
    """Return the figures of a cell: seconds of a run, those of CPU time, those until the first result, peak memory."""
    import mmort

    mmort.set_num_threads(source.threads)  # of the kernels in torch and in ONNX Runtime
    with np.load(source.file(".npz")) as arrays:
        inputs = arrays["input"], arrays["img_shape"]
    begin = time.perf_counter()
    run = open_engine(engine, source)
    run(*inputs)
    first = time.perf_counter() - begin
    latencies: list[float] = []
    cpu: list[float] = []
    while len(latencies) < MIN_RUNS or (len(latencies) < MAX_RUNS and sum(latencies) < MAX_SECONDS):
        begin, begin_cpu = time.perf_counter(), time.process_time()
        outputs = run(*inputs)
        latencies.append(time.perf_counter() - begin)
        cpu.append(time.process_time() - begin_cpu)
    np.savez(source.file(f".{engine}.npz"), *outputs)
    return {
        "latency": statistics.median(latencies),
        "cpu": statistics.median(cpu),
        "first": first,
        "peak": peak_memory(),
        "runs": len(latencies),
    }


class Network:
    """An engine as `mmort.Predictor` calls it."""

    def __init__(self, run: Run, mask_format: Any) -> None:
        self.input_shape, self.mask_format = (None, None, None), mask_format
        self.run = run

    def __call__(self, input: NDArray[Any], img_shape: NDArray[Any]) -> Sequence[NDArray[Any]]:
        return self.run(input, img_shape)


def average_precision(engine: str, source: Source, annotations: Path, images: Path) -> dict[str, float]:
    """Return the metrics on a data set, image by image."""
    from mmort import Predictor
    from mmort.evaluate import CocoDataset, evaluate
    from mmort.predict.engines.onnxruntime import OnnxRuntime

    described = OnnxRuntime(source.file(".onnx"))
    network = Network(open_engine(engine, source), described.mask_format)
    predictor = Predictor(network, classes=described.classes, preprocessing=described.preprocessing, score_threshold=0)
    dataset = CocoDataset(annotations, images, predictor.classes)
    kinds = ["bbox", "segm"] if "masks" in (output.name for output in described.session.get_outputs()) else ["bbox"]
    figures = evaluate(dataset, predictor.predict, kinds, progress=False).figures
    return {kind: float(figures[f"{kind}_mAP"]) for kind in kinds}


def main() -> None:
    """Print a cell's figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("files", type=Path)
    parser.add_argument("name")
    parser.add_argument("config", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--vocabulary", type=Path)
    parser.add_argument("--annotations", type=Path)
    parser.add_argument("--images", type=Path)
    options = parser.parse_args()
    source = Source(options.files, options.name, options.config, options.threads, options.vocabulary)
    if options.annotations:
        figures = average_precision(options.engine, source, options.annotations, options.images)
    else:
        figures = measure(options.engine, source)
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
