"""Runs of a model, or of two in turn, by ONNX Runtime's profiler: the time of each, and what each node did."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx.shape_inference

import mmort.ort
from mmort import get_num_threads
from mmort._files.drafts import temporary_folder
from mmort.onnx.accelerate.runs import Run
from mmort.onnx.graph import inspection
from mmort.onnx.verify.sessions import feeds, refusals
from mmort.ort.sessions import silent_options

MIN_RUNS, MAX_RUNS = 4, 32
"""How often each model runs; the first run does not count."""
MIN_GAIN, MIN_SHARE = 0.02, 0.75
"""By how much the fastest run of a faster model is faster, and in how many turns its run is; less is noise."""
SECONDS = 0.5
"""How long models run that are fast: other work on the machine hardly disturbs all of their runs."""
_SUFFIX = "_kernel_time"


def run_once(model: onnx.ModelProto, values: Sequence[Any]) -> dict[str, Run]:
    """Return the measurements of each node in a first run, by name, whose seconds are longer than those of later runs.

    Raises
    ------
    ValueError
        If ONNX Runtime refuses the model or its inputs.
    """
    with temporary_folder() as folder:
        session = _session(model, f"{folder}/0")
        _run(session, values)
        return _declared(model, _nodes(_profile(session), skipped_runs=0))


def is_faster(before: Sequence[float], after: Sequence[float]) -> bool:
    """Return whether a model is faster than another by more than noise, by the seconds of runs that took turns.

    Examples
    --------
    >>> is_faster([1.0, 1.1, 1.0, 1.2], [0.9, 0.9, 0.8, 1.3]), is_faster([1.0, 1.1, 1.0, 1.2], [0.99, 1.2, 1.1, 1.1])
    (True, False)
    """
    turns = [new < old for old, new in zip(before, after, strict=True)]
    return min(after) <= (1 - MIN_GAIN) * min(before) and sum(turns) >= MIN_SHARE * len(turns)


def measure(models: list[onnx.ModelProto], values: Sequence[Any]) -> list[tuple[list[float], dict[str, Run]]]:
    """Return the seconds of each model's runs, which take turns, and the records of its nodes in the fastest, by name.

    Raises
    ------
    ValueError
        If ONNX Runtime refuses a model or its inputs.
    """
    with temporary_folder() as folder:
        sessions = [_session(model, f"{folder}/{number}") for number, model in enumerate(models)]
        seconds: list[list[float]] = [[] for _ in models]
        deadline = time.perf_counter() + SECONDS
        for number in range(MAX_RUNS):
            if number >= MIN_RUNS and time.perf_counter() >= deadline:
                break
            for session, samples in zip(sessions, seconds, strict=True):
                samples.append(_run(session, values))
        profiles = [_profile(session) for session in sessions]
    return [(samples[1:], _nodes(profile, skipped_runs=1)) for samples, profile in zip(seconds, profiles, strict=True)]


def _session(model: onnx.ModelProto, prefix: str) -> Any:
    """Open a model with the profiler on."""
    options = silent_options()
    options.intra_op_num_threads = get_num_threads()
    options.enable_profiling, options.profile_file_prefix = True, prefix
    with refusals("accelerate: ONNX Runtime cannot load the model"):
        return mmort.ort.session(model.SerializeToString(), sess_options=options)


def _run(session: Any, values: Sequence[Any]) -> float:
    """Run a model; return the seconds."""
    with refusals("accelerate: the model does not run on these inputs"):
        begin = time.perf_counter()
        session.run(None, feeds(session, values))
        return time.perf_counter() - begin


def _profile(session: Any) -> list[dict[str, Any]]:
    """Return the events of a session, which ends its profile."""
    events: list[dict[str, Any]] = json.loads(Path(session.end_profiling()).read_text())
    return events


def _nodes(events: list[dict[str, Any]], skipped_runs: int) -> dict[str, Run]:
    """Return the measurements of each node after the runs to skip; the seconds are those of its fastest run."""
    ends = [event["ts"] + event["dur"] for event in events if event["name"] == "model_run"]
    seconds: dict[str, list[float]] = {}
    inputs: dict[str, list[tuple[str, list[int]]]] = {}
    for event in events:
        run = sum(end <= event["ts"] for end in ends) - skipped_runs
        if event["name"].endswith(_SUFFIX) and run >= 0:
            name = event["name"].removesuffix(_SUFFIX)
            seconds.setdefault(name, [0.0] * (len(ends) - skipped_runs))[run] += 1e-6 * event["dur"]
            inputs[name] = [next(iter(tensor.items())) for tensor in event["args"].get("input_type_shape", [])]
    return {
        name: Run(min(samples), tuple(kind for kind, _ in inputs[name]), tuple(tuple(size) for _, size in inputs[name]))
        for name, samples in seconds.items()
    }


def _declared(model: onnx.ModelProto, runs: dict[str, Run]) -> dict[str, Run]:
    """Correct first inputs of float16, which ONNX Runtime converts for nodes that it has in float32 only."""
    halves = _halves(model)
    first = {node.name: node.input[0] for node in inspection.every_node(model) if node.input}
    return {
        name: run._replace(types=(halves[first[name]], *run.types[1:])) if first.get(name) in halves else run
        for name, run in runs.items()
    }


def _halves(model: onnx.ModelProto) -> dict[str, str]:
    """Return the element types of the graph's values that are float16 or bfloat16, by their names."""
    kinds = {onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.BFLOAT16: "bfloat16"}
    halves = {tensor.name: kinds[tensor.data_type] for tensor in model.graph.initializer if tensor.data_type in kinds}
    sources = [formal.type.tensor_type.elem_type for formal in model.graph.input]
    sources += [
        attribute.i for node in inspection.every_node(model) for attribute in node.attribute if attribute.name == "to"
    ]
    if not halves and not set(sources) & set(kinds):
        return {}
    graph = onnx.shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.input, *graph.value_info, *graph.output)}
    return halves | {name: kinds[kind] for name, kind in types.items() if kind in kinds}
