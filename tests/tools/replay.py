"""Replay what run_on_runtimes.py recorded; needs only numpy and the onnxruntime under test.

python replay.py LIBRARY FOLDER: prints differences, and on the last line how many checks passed, as JSON by operator.
"""

import collections
import contextlib
import gc
import json
import pathlib
import sys
import traceback

import numpy as np
import onnxruntime

LIBRARY, FOLDER = sys.argv[1], pathlib.Path(sys.argv[2])
MINOR = int(onnxruntime.__version__.split(".")[1])


def make_session(model, threads):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are expected here, and raised
    options.intra_op_num_threads = threads
    options.register_custom_ops_library(LIBRARY)
    return onnxruntime.InferenceSession(str(FOLDER / model["file"]), options, providers=["CPUExecutionProvider"])


@contextlib.contextmanager
def expect_error(text):
    try:
        yield
    except Exception as error:  # onnxruntime's exceptions have only Exception in common
        if text not in str(error):
            raise
    else:
        raise AssertionError(f"no error, instead of {text!r}")


def expect_bits(got, wanted):
    """Compare bit by bit, but for NaN, whose sign is the processor's."""
    for i, (array, expected) in enumerate(zip(got, wanted, strict=True)):
        assert (array.dtype, array.shape) == (expected.dtype, expected.shape), f"output {i}: {array.dtype}{array.shape}"
        same = without_nan(array).tobytes() == without_nan(expected).tobytes()
        assert same, f"output {i}: got\n{array}\ninstead of\n{expected}"


def without_nan(array):
    return np.where(np.isnan(array), array.dtype.type(np.nan), array) if array.dtype.kind == "f" else array


def replay_case(session, case, arrays):
    names = [formal.name for formal in session.get_inputs()]
    inputs = {name: arrays[f"{case['key']}_in{i}"] for i, name in enumerate(names)}
    if case["error"]:
        with expect_error(case["error"]):
            session.run(None, inputs)
        return
    got = session.run(None, inputs)
    assert len(got) == case["outputs"]
    expect_bits(got, [arrays[f"{case['key']}_out{i}"] for i in range(case["outputs"])])


def replay_model(model, threads, arrays):
    """Return the number of checks."""
    if model["error"]:
        with expect_error(model["error"]):
            make_session(model, threads)
        return 1
    session = make_session(model, threads)
    if model["infers_from"] <= MINOR:
        # Names of unknown dimensions are ONNX Runtime's own.
        got = [[n if isinstance(n, int) else None for n in output.shape] for output in session.get_outputs()]
        assert got == model["output_shapes"], f"inferred {got} instead of {model['output_shapes']}"
    for case in model["cases"]:
        try:
            replay_case(session, case, arrays)
        except Exception:
            print(f"in {case['name']}, {threads} threads")
            raise
    return len(model["cases"])


def main():
    models = json.loads((FOLDER / "models.json").read_text())
    arrays = dict(np.load(FOLDER / "arrays.npz"))
    passed = collections.Counter()
    for threads in (1, 2):
        for model in models:
            try:
                passed[model["operator"]] += replay_model(model, threads, arrays)
            except Exception:
                traceback.print_exc(limit=0, file=sys.stdout)
                print(f"in {model['file']}: {model['name']}, {threads} threads")
        # The library is unloaded with its last session; the second round loads it again.
        gc.collect()
        maps = pathlib.Path("/proc/self/maps")
        assert not maps.exists() or LIBRARY not in maps.read_text(), "the library is still loaded"
    print(json.dumps(passed))


if __name__ == "__main__":
    main()
