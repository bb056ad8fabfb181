"""Write the table of where the time of whole detectors goes, by ONNX Runtime's profile on one thread.

    python benchmarks/profile_detectors.py RECORD.json CONFIG ... [--vocabulary VOCAB.txt]
    python benchmarks/profile_detectors.py RECORD.json                # only print the table

Each CONFIG is exported with random weights, those of `tests.tools.export_full_size`, and without a proof; the file runs
on one image of the size of the config's test pipeline.  A process for each; the record keeps their figures, so that
the command goes on where it was stopped.  Prints Markdown: the share of a run that is convolutions and products of
matrices, and each other type of operator from 1 % on; an operator of mmort is marked.  Run it from the root of the
repository.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))  # for tests.tools

LAYERS = {"Conv", "FusedConv", "NhwcFusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "FusedGemm"}
"""Convolutions and products of matrices, also as ONNX Runtime's fusions."""
RUNS = 1
SHOWN = 0.01
"""The share of a run from which on a type of operator is shown."""
NODES = 20
"""The slowest other nodes, of which the record keeps the names."""


def exclusive_times(events: list[dict[str, Any]]) -> list[tuple[str, str, float]]:
    """Return the name, the type and the microseconds of each node of a profile, without those of nodes inside it."""
    kernels = [event for event in events if event["name"].endswith("_kernel_time")]
    kernels.sort(key=lambda event: (event["ts"], -event["dur"]))
    times: list[tuple[str, str, float]] = []
    enclosing: list[tuple[float, int]] = []  # ends and indices of the nodes that an event is inside of
    for event in kernels:
        while enclosing and event["ts"] >= enclosing[-1][0]:
            enclosing.pop()
        if enclosing:
            name, operator, time = times[enclosing[-1][1]]
            times[enclosing[-1][1]] = name, operator, time - event["dur"]
        enclosing.append((event["ts"] + event["dur"], len(times)))
        times.append((event["name"].removesuffix("_kernel_time"), event["args"]["op_name"], event["dur"]))
    return times


def measure(config: Path, vocabulary: Path | None) -> dict[str, Any]:
    """Return the milliseconds of a run, and the shares of operators and of the slowest nodes."""
    import onnx
    import onnxruntime
    import torch

    import mmort
    import mmort.ort
    from mmort.configs import read_config
    from mmort.detect import build
    from mmort.detect.export import ExportOptions, export
    from mmort.detect.export.examples import Examples
    from mmort.detect.export.export_steps import DEFAULT_IMAGE
    from mmort.predict import Preprocessing, read_image
    from tests.tools.export_full_size import fill

    torch.set_num_threads(1)
    mmort.set_num_threads(1)
    preprocessing = Preprocessing.from_config(read_config(config))
    examples = Examples(preprocessing, dynamic=True, with_shapes=True)
    arrays = [tensor.numpy() for tensor in examples(read_image(DEFAULT_IMAGE), 1, *examples.default_shape())]
    with tempfile.TemporaryDirectory() as folder:
        weights, file = Path(folder) / "weights.pth", Path(folder) / "detector.onnx"
        detector = build(read_config(config))
        family = type(detector).__name__
        words = vocabulary if detector.takes_texts else None
        fill(detector, preprocessing, words)
        torch.save({"state_dict": detector.state_dict(), "meta": {}}, weights)
        del detector
        export(config, weights, file, ExportOptions(verify=False, vocabulary=words), progress=lambda line: None)
        ours = {node.op_type for node in onnx.load(file).graph.node if node.domain not in {"", "ai.onnx"}}
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 3
        options.enable_profiling, options.profile_file_prefix = True, f"{folder}/profile"
        session = mmort.ort.session(file, sess_options=options, providers=["CPUExecutionProvider"])
        feeds = dict(zip((argument.name for argument in session.get_inputs()), arrays, strict=False))
        for _ in range(1 + RUNS):
            session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text())
    begins = sorted(event["ts"] for event in events if event["name"] == "model_run")
    times = exclusive_times([event for event in events if event["ts"] >= begins[1]])  # the first run allocates
    total = sum(time for *_, time in times)
    operators: Counter[str] = Counter()
    nodes: Counter[tuple[str, str]] = Counter()
    for name, operator, time in times:
        operators[operator] += time / total
        if operator not in LAYERS:
            nodes[name, operator] += time / total
    return {
        "family": family,
        "shape": list(arrays[0].shape[2:]),
        "milliseconds": total / RUNS / 1e3,
        "operators": dict(operators.most_common()),
        "nodes": [[name, operator, share] for (name, operator), share in nodes.most_common(NODES)],
        "mmort": sorted(ours),
    }


def row(name: str, figures: dict[str, Any]) -> str:
    """Return a row of the table."""
    if "error" in figures:
        return f"| {name} | {figures['error']} | | | | |"
    operators = figures["operators"]
    layers = sum(share for operator, share in operators.items() if operator in LAYERS)
    shown = [
        f"`{operator}`{'*' if operator in figures['mmort'] else ''} {100 * share:.1f}"
        for operator, share in operators.items()
        if operator not in LAYERS and share >= SHOWN
    ]
    size = "x".join(map(str, figures["shape"]))
    return (
        f"| {figures['family']} | {name} | {size} | {figures['milliseconds']:,.0f} | {100 * layers:.1f} "
        f"| {', '.join(shown)} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", type=Path)
    parser.add_argument("configs", type=Path, nargs="*")
    parser.add_argument("--vocabulary", type=Path, help="of configs with a language model: its vocab.txt")
    parser.add_argument("--again", action="store_true", help="also measure the configs that the record has")
    parser.add_argument("--limit", type=int, default=1200, help="seconds for a config (default: %(default)s)")
    parser.add_argument("--cell", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell:
        options.record.write_text(json.dumps(measure(options.configs[0], options.vocabulary)))
        return
    record = json.loads(options.record.read_text()) if options.record.exists() else {}
    for config in options.configs:
        if not options.again and "error" not in record.get(config.stem, {"error": ""}):
            continue
        with tempfile.TemporaryDirectory() as folder:
            cell = Path(folder) / "cell.json"
            command = [sys.executable, __file__, str(cell), str(config), "--cell"]
            command += ["--vocabulary", str(options.vocabulary)] if options.vocabulary else []
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=options.limit, check=False)
                error = (done.stderr.strip().splitlines() or ["crashes"])[-1][:200]
            except subprocess.TimeoutExpired:
                error = f"takes more than {options.limit} s"
            record[config.stem] = json.loads(cell.read_text()) if cell.exists() else {"error": error}
        options.record.write_text(json.dumps(record, indent=1) + "\n")
        print(row(config.stem, record[config.stem]), file=sys.stderr, flush=True)
    print("| family | config | input | ms | convolution and product, % | others, % |\n|-|-|-|-|-|-|")
    for name, figures in sorted(record.items(), key=lambda item: item[1].get("family", "")):
        print(row(name, figures))


if __name__ == "__main__":
    main()
