"""Measures what a binding saves over session.run: python benchmark.py [crnn.onnx].

Prints medians in microseconds of alternating runs.
"""

import statistics
import sys
import time

import numpy as np
import onnx
import onnx.helper
import onnxruntime

import mmort.ort
from reader import HEIGHT


def elementwise(count):
    """Make a model of one Relu on `count` numbers: hardly any work, and an output as large as the input."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [count]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    return onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()


def median_times(functions, min_runs=15, seconds=1.0):
    """Return the median time of each function, in alternating runs."""
    times = [[] for _ in functions]
    end = time.perf_counter() + seconds * len(functions)
    for function in functions:
        function()
    while len(times[0]) < min_runs or time.perf_counter() < end:
        for function, durations in zip(functions, times, strict=True):
            begin = time.perf_counter()
            function()
            durations.append(time.perf_counter() - begin)
    return [1e6 * statistics.median(durations) for durations in times]


def compare(model, shape, threads):
    """Return the medians of session.run, of session.run and a copy of its result, and of a binding."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = mmort.ort.session(model, sess_options=options)
    (input,), (output,) = session.get_inputs(), session.get_outputs()
    x = np.random.default_rng(0).random(shape, np.float32)
    y = np.empty_like(session.run(None, {input.name: x})[0])
    binding = mmort.ort.Binding(session, {input.name: x}, {output.name: y})

    def run_and_copy():
        y[:] = session.run(None, {input.name: x})[0]

    return median_times([lambda: session.run(None, {input.name: x}), run_and_copy, binding.run])


def main():
    """Print the table."""
    crnn = sys.argv[1] if len(sys.argv) > 1 else "crnn.onnx"
    cases = [(f"CRNN, a line of {width} columns", crnn, (1, 1, HEIGHT, width)) for width in (32, 160, 640)]
    cases += [(f"Relu, {size} B", elementwise(count), (count,)) for size, count in SIZES.items()]
    print(f"{'':32}  {'threads':>7}  {'run':>9}  {'run + copy':>10}  {'binding':>9}")
    for name, model, shape in cases:
        for threads in (1, 2):
            times = compare(model, shape, threads)
            print(f"{name:32}  {threads:7}  {times[0]:9.1f}  {times[1]:10.1f}  {times[2]:9.1f}", flush=True)


SIZES = {"40": 10, "64 k": 1 << 14, "1 M": 1 << 18, "16 M": 1 << 22, "64 M": 1 << 24}

if __name__ == "__main__":
    main()
