"""The work of a file at a size, and the operators that take the time: read from ONNX Runtime's own profile.

The profile has the shapes of all tensors of the nodes that ran, also inside loops and at sizes that only a run knows,
so that no shapes need to be inferred.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import mmort.ort
from mmort._files.drafts import temporary_folder
from mmort.onnx.graph.files import PathLike
from mmort.onnx.verify.sessions import feeds, refusals
from mmort.ort.sessions import silent_options
from mmort.tables import lay_out

if TYPE_CHECKING:
    import onnxruntime

RUNS = 5
"""Timed runs, after one that is not counted."""

WEIGHT_OF_CONVOLUTION = {
    **dict.fromkeys(("Conv", "ConvInteger", "DeformConv", "FusedConv"), 1),
    "MMCVDeformConv2d": 2,
    "MMCVModulatedDeformConv2d": 3,
    "QLinearConv": 3,
}
"""The position of the weights (M, C / group, ...) among the inputs."""

PRODUCTS = ("FusedMatMul", "MatMul", "MatMulInteger", "MatMulNBits", "QLinearMatMul")
GENERAL_PRODUCTS = ("FusedGemm", "Gemm", "QGemm")

CONTROL_FLOW = ("If", "Loop", "Scan")
"""Their time is that of the nodes inside, which the profile has, too."""

MIN_SHARE = 0.01
"""Of the time; operators below are one row of a table."""

_SUFFIX = "_kernel_time"


class OperatorTime(NamedTuple):
    """The nodes of an operator that ran in one run of a file, and their seconds."""

    operator: str
    nodes: int
    seconds: float


def count_multiply_adds(path: PathLike, values: Sequence[Any]) -> int:
    """Count the multiplications with an addition in the convolutions and matrix products of a file's run.

    MMDetection's ``get_flops.py`` calls them FLOPs.  The rest of a detector is a small part of its work.

    Parameters
    ----------
    path : path
    values : sequence of ndarray
        The inputs, in the order of the file's.

    Returns
    -------
    int
        Products of deformable convolutions count without the interpolation.

    Raises
    ------
    ValueError
        If the file does not run on these inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from mmort.demo import MODEL
    >>> from mmort.onnx.profiling import count_multiply_adds
    >>> counts = [count_multiply_adds(MODEL, [np.zeros((n, 3, 96, 96), np.float32)]) for n in (1, 2)]
    >>> counts[0] > 10**7, counts[1] > 1.5 * counts[0]
    (True, True)
    """
    import onnxruntime

    options = silent_options()
    # Otherwise nodes are fused, and weights that were packed are missing among the inputs of a node.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.disable_prepacking", "1")
    return sum(map(_multiply_adds, _events(path, values, options, runs=1)))


def operator_times(path: PathLike, values: Sequence[Any]) -> list[OperatorTime]:
    """Time the operators of a file: medians of five runs, the slowest first.

    Parameters
    ----------
    path, values
        As for `count_multiply_adds`.

    Returns
    -------
    list of OperatorTime
        ONNX Runtime's operators, some of which are several of the file's.

    Raises
    ------
    ValueError
        If the file does not run on these inputs.
    """
    samples: dict[str, list[float]] = {}
    nodes: dict[str, int] = {}
    run = -1
    for event in _events(path, values, silent_options(), runs=1 + RUNS):
        if event["name"] == "model_run":
            run += 1
        elif run and event["args"]["op_name"] not in CONTROL_FLOW:  # without the first one
            name = event["args"]["op_name"]
            samples.setdefault(name, [0.0] * RUNS)[run - 1] += 1e-6 * event["dur"]
            nodes[name] = nodes.get(name, 0) + (run == 1)
    times = (OperatorTime(name, nodes[name], statistics.median(seconds)) for name, seconds in samples.items())
    return sorted(times, key=lambda operator: -operator.seconds)


def time_table(times: Sequence[OperatorTime]) -> str:
    """Lay out operators with their nodes, milliseconds and share of the time.

    Examples
    --------
    >>> from mmort.onnx.profiling import OperatorTime, time_table
    >>> print(time_table([OperatorTime("Conv", 50, 0.03), OperatorTime("Relu", 40, 0.01)]))
    operator  nodes  ms     share
    Conv      50     30.00  75.0 %
    Relu      40     10.00  25.0 %
    """
    total = sum(operator.seconds for operator in times) or 1.0
    shown = [operator for operator in times if operator.seconds >= MIN_SHARE * total]
    if others := times[len(shown) :]:
        seconds = sum(operator.seconds for operator in others)
        shown.append(OperatorTime("others", sum(operator.nodes for operator in others), seconds))
    rows = [
        (
            *(operator.operator, str(operator.nodes), f"{1e3 * operator.seconds:.2f}"),
            f"{100 * operator.seconds / total:.1f} %",
        )
        for operator in shown
    ]
    return lay_out([("operator", "nodes", "ms", "share"), *rows])


def _events(
    path: PathLike, values: Sequence[Any], options: onnxruntime.SessionOptions, *, runs: int
) -> Iterator[dict[str, Any]]:
    """Yield the profile's events of nodes, and the event "model_run" before those of each run."""
    with temporary_folder() as folder:
        options.enable_profiling, options.profile_file_prefix = True, f"{folder}/profile"
        with refusals("info: ONNX Runtime cannot load the file"):
            session = mmort.ort.session(path, sess_options=options)
        with refusals("info: the file does not run on these inputs"):
            for _ in range(runs):
                session.run(None, feeds(session, values))
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    wanted = [event for event in events if event["name"] == "model_run" or event["name"].endswith(_SUFFIX)]
    # The event of a run is written at its end, but has the time of its beginning.
    yield from sorted(wanted, key=lambda event: (event["ts"], event["name"] != "model_run"))


def _multiply_adds(event: dict[str, Any]) -> int:
    """Return those of a node that ran; 0 of other operators."""
    if event["name"] == "model_run":
        return 0
    operator = event["args"]["op_name"]
    inputs, outputs = (
        [shape for tensor in event["args"].get(f"{side}_type_shape", ()) for shape in tensor.values()]
        for side in ("input", "output")
    )
    if operator in WEIGHT_OF_CONVOLUTION:
        return math.prod(outputs[0]) * math.prod(inputs[WEIGHT_OF_CONVOLUTION[operator]][1:])
    if operator == "ConvTranspose":
        return math.prod(inputs[0]) * math.prod(inputs[1][1:])
    if operator in PRODUCTS:
        return math.prod(outputs[0]) * inputs[0][-1]
    if operator in GENERAL_PRODUCTS and outputs[0][0]:
        return math.prod(outputs[0]) * math.prod(inputs[0]) // outputs[0][0]
    return 0
