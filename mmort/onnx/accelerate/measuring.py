"""Runs of two models in turn, by ONNX Runtime's profiler: the time of each, and what each node did."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx

import mmort.ort
from mmort import get_num_threads
from mmort.onnx.accelerate.graph import Run
from mmort.onnx.verify.sessions import feeds, refusals

MIN_RUNS, MAX_RUNS = 4, 32
"""How often each model runs; the first run does not count."""
SECONDS = 0.5
"""How long models run that are fast: other work on the machine hardly disturbs all of their runs."""
_SUFFIX = "_kernel_time"


def measure(models: list[onnx.ModelProto], values: Sequence[Any]) -> list[tuple[float, dict[str, Run]]]:
    """Return the seconds of each model's fastest run, and its nodes' runs by name.

    Raises
    ------
    ValueError
        If ONNX Runtime refuses a model or its inputs.
    """
    with tempfile.TemporaryDirectory() as folder:
        sessions = [_session(model, f"{folder}/{number}") for number, model in enumerate(models)]
        seconds: list[list[float]] = [[] for _ in models]
        deadline = time.perf_counter() + SECONDS
        for number in range(MAX_RUNS):
            if number >= MIN_RUNS and time.perf_counter() >= deadline:
                break
            for session, samples in zip(sessions, seconds, strict=True):
                with refusals("accelerate: the model does not run on these inputs"):
                    begin = time.perf_counter()
                    session.run(None, feeds(session, values))
                    samples.append(time.perf_counter() - begin)
        events = [json.loads(Path(session.end_profiling()).read_text()) for session in sessions]
    return [(min(samples[1:]), _nodes(profile)) for samples, profile in zip(seconds, events, strict=True)]


def _session(model: onnx.ModelProto, prefix: str) -> Any:
    """Open a model with the profiler on."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    options.intra_op_num_threads = get_num_threads()
    options.enable_profiling, options.profile_file_prefix = True, prefix
    with refusals("accelerate: ONNX Runtime cannot load the model"):
        return mmort.ort.session(model.SerializeToString(), sess_options=options)


def _nodes(events: list[dict[str, Any]]) -> dict[str, Run]:
    """Return what each node did in the runs that count; its seconds are those of its fastest run."""
    ends = [event["ts"] + event["dur"] for event in events if event["name"] == "model_run"]
    seconds: dict[str, list[float]] = {}
    inputs: dict[str, list[tuple[str, list[int]]]] = {}
    for event in events:
        number = sum(end <= event["ts"] for end in ends)
        if event["name"].endswith(_SUFFIX) and number:
            name = event["name"].removesuffix(_SUFFIX)
            seconds.setdefault(name, [0.0] * (len(ends) - 1))[number - 1] += 1e-6 * event["dur"]
            inputs[name] = [next(iter(tensor.items())) for tensor in event["args"].get("input_type_shape", [])]
    return {
        name: Run(min(samples), tuple(kind for kind, _ in inputs[name]), tuple(tuple(size) for _, size in inputs[name]))
        for name, samples in seconds.items()
    }
