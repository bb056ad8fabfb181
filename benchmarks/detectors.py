"""Time exported detectors in ONNX Runtime against their torch models, on one thread.

    python benchmarks/detectors.py CONFIGS FILES [NAME ...] [--shape 640 640] [--image FILE]

CONFIGS has config_NAME.py, FILES has NAME.pth and NAME.onnx: `python -m tests.tools.oracle_table` makes them.  torch
and ONNX Runtime take turns on the same input; the medians are printed, and how much of ONNX Runtime's time comes after
the last layer of the network, by ONNX Runtime's profile.

With ``--attention``, what deformable attention takes in a file is printed instead: by mmort's operator, and by the
standard operators of its definition, in a portable copy of the file that runs without the library.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path

import onnx
import onnxruntime
import torch

import mmort
import mmort.ort
from mmort.configs import read_config
from mmort.detect import load
from mmort.detect.export.examples import Examples
from mmort.detect.export.export_steps import DEFAULT_IMAGE
from mmort.onnx import make_portable
from mmort.predict import Preprocessing, read_image

LAYERS = ("Conv", "Gemm", "MatMul", "GroupNorm", "LayerNormalization", "Resize", "RoiAlign")
"""Parts of the names of a network's layers; all that comes after them is post-processing."""
RUNS = 7


def session(file: Path, profile: str = "", optimized: str = "", library: bool = True) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if profile:
        options.enable_profiling, options.profile_file_prefix, options.optimized_model_filepath = (
            True,
            profile,
            optimized,
        )
    options.log_severity_level = 3
    if not library:
        return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return mmort.ort.session(file, sess_options=options, providers=["CPUExecutionProvider"])


def after_the_network(model: onnx.ModelProto) -> set[str]:
    """Return the names of the nodes that no layer depends on."""
    needed: set[str] = set()  # tensors that a layer depends on
    names = set()
    for node in reversed(model.graph.node):
        if needed.intersection(node.output) or any(layer in node.op_type for layer in LAYERS):
            needed.update(node.input)
        else:
            names.add(node.name)
    return names


def post_processing(file: Path, feeds: dict) -> float:
    """Return the share of a run that comes after the network."""
    with tempfile.TemporaryDirectory() as folder:
        optimized = f"{folder}/optimized.onnx"
        profiled = session(file, f"{folder}/profile", optimized)
        for _ in range(1 + RUNS):
            profiled.run(None, feeds)
        events = json.loads(Path(profiled.end_profiling()).read_text())
        after = after_the_network(onnx.load(optimized, load_external_data=False))
    kernels = [event for event in events if event["name"].endswith("_kernel_time")]
    total = sum(event["dur"] for event in kernels)
    return sum(event["dur"] for event in kernels if event["name"].removesuffix("_kernel_time") in after) / total


def kernel_times(running: onnxruntime.InferenceSession, feeds: dict) -> dict[str, float]:
    """Return the seconds of a run of a session with a profile, and those of each kind of operator."""
    for _ in range(1 + RUNS):
        running.run(None, feeds)
    events = json.loads(Path(running.end_profiling()).read_text())
    times: Counter[str] = Counter()
    for event in events:
        if event["name"].endswith("_kernel_time"):
            times[event["args"]["op_name"]] += event["dur"] / 1e6 / (1 + RUNS)
        elif event["name"] == "model_run":
            times["run"] += event["dur"] / 1e6 / (1 + RUNS)
    return times


def attention(file: Path, feeds: dict) -> tuple[float, float, float, float]:
    """Return the seconds of deformable attention by the operator and by standard ones, and those of the whole runs."""
    with tempfile.TemporaryDirectory() as folder:
        portable = Path(folder) / "portable.onnx"
        make_portable(file, portable)
        ours = kernel_times(session(file, f"{folder}/ours"), feeds)
        stock = kernel_times(session(portable, f"{folder}/stock", library=False), feeds)
    seconds = ours["MultiScaleDeformableAttention"]
    loops = stock["Loop"]  # nothing else in these files is one; its event has the time of what it runs
    return seconds, loops, ours["run"], stock["run"]


def inputs_of(config: Path, image: Path, shape: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Return the input and the shape of the image for a detector."""
    preprocessing = Preprocessing.from_config(read_config(config))
    return Examples(preprocessing, dynamic=True, with_shapes=True)(read_image(image), 1, *shape)


def feeds_of(args: tuple[torch.Tensor, ...]) -> dict:
    return dict(zip(("input", "img_shape"), (tensor.numpy() for tensor in args), strict=True))


def measure(config: Path, checkpoint: Path, file: Path, image: Path, shape: tuple[int, int]) -> tuple[float, ...]:
    """Return the seconds of torch and of ONNX Runtime, and the share of post-processing."""
    detector = load(config, checkpoint)
    args = inputs_of(config, image, shape)
    feeds = feeds_of(args)
    running = session(file)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(1 + RUNS):
        with torch.inference_mode():
            begin = time.perf_counter()
            detector(*args)
            seconds[0].append(time.perf_counter() - begin)
        begin = time.perf_counter()
        running.run(None, feeds)
        seconds[1].append(time.perf_counter() - begin)
    return *(statistics.median(samples[1:]) for samples in seconds), post_processing(file, feeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", type=Path)
    parser.add_argument("files", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--shape", type=int, nargs=2, default=(640, 640), help="height and width")
    parser.add_argument("--image", type=Path, default=DEFAULT_IMAGE)
    parser.add_argument("--attention", action="store_true", help="time deformable attention only")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    mmort.set_num_threads(1)
    if arguments.attention:
        print("| detector | operator | standard operators | ratio | whole runs | load |\n|-|-|-|-|-|-|")
    else:
        print("| detector | torch | ONNX Runtime | ratio | post-processing | load |\n|-|-|-|-|-|-|")
    for name in arguments.names or sorted(path.stem for path in arguments.files.glob("*.onnx")):
        config, stem = arguments.configs / f"config_{name}.py", arguments.files / name
        checkpoint, file = stem.with_suffix(".pth"), stem.with_suffix(".onnx")
        if arguments.attention:
            feeds = feeds_of(inputs_of(config, arguments.image, arguments.shape))
            seconds, loops, run, stock_run = attention(file, feeds)
            times = f"{1e3 * seconds:.0f} ms | {1e3 * loops:.0f} ms | {loops / seconds:.1f}"
            whole = f"{1e3 * run:.0f} and {1e3 * stock_run:.0f} ms"
            print(f"| {name} | {times} | {whole} | {os.getloadavg()[0]:.1f} |", flush=True)
            continue
        slow, fast, share = measure(config, checkpoint, file, arguments.image, arguments.shape)
        times = f"{1e3 * slow:.0f} ms | {1e3 * fast:.0f} ms | {slow / fast:.2f} | {share:.1%}"
        print(f"| {name} | {times} | {os.getloadavg()[0]:.1f} |", flush=True)


if __name__ == "__main__":
    main()
