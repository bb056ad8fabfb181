"""Run the same library on old and new ONNX Runtimes: cases are recorded as models with results and replayed on each.

python -m tests.tools.run_on_runtimes: makes a virtual environment per version, prints a table, exits with 1 if anything
differs; tabulate_versions.py does so for all versions.  python -m tests.tools.run_on_runtimes --record FOLDER only
records; with --baseline, what processors without AVX2 give, and those of other architectures.  The recorded results
are those of the numpy API, which the tests compare with the oracles.
"""

import argparse
import collections
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import mmort
from mmort._kernels.numpy_api import limit_simd
from tests import front_ends
from tests.operators import cases, test_errors
from tests.ort import test_smoke

RUNTIMES = ("1.16.3", "1.20.1", "1.24.4", "1.32.0")
"""Versions that CI runs; Python 3.11 is the one for which all of them have wheels."""

CASES_PER_MODEL = 3
"""What a runtime may do differently shows in the first cases of a model; all of them are what the tests run."""

TOOLS = pathlib.Path(__file__).resolve().parent


class Recording:
    """Models and arrays in a directory, in the form that replay.py reads."""

    def __init__(self, folder):
        self.folder, self.models, self.arrays = folder, [], {}

    def add_model(self, row, title, model, error=None):
        """Add a model of one operator; `error` is part of the message when a session is created."""
        operator, file = title_of(row), f"{len(self.models)}.onnx"
        entry = {"name": f"{operator} {title}", "operator": operator, "file": file, "error": error, "cases": []}
        onnx.save(model, self.folder / entry["file"])
        if not error:
            shapes = [output.shape for output in front_ends.make_session(model).get_outputs()]
            entry["output_shapes"] = [[n if isinstance(n, int) else None for n in shape] for shape in shapes]
            # Older runtimes get no shape inference from the library: see make_op in bridge_c/registry.c.
            entry["infers_from"] = 24 if any(formal["optional"] for formal in row["inputs"]) else 17
        self.models.append(entry)
        return entry

    def add_case(self, entry, name, inputs, outputs=(), error=None):
        """Add inputs of a model with the outputs, or part of the error, that they give."""
        key = f"{entry['file']}_{len(entry['cases'])}"
        for kind, arrays in (("in", inputs), ("out", outputs)):
            self.arrays |= {f"{key}_{kind}{i}": array for i, array in enumerate(arrays)}
        entry["cases"].append({"name": name, "key": key, "outputs": len(outputs), "error": error})

    def write(self):
        """Write the recording; return the number of checks of each operator in both rounds of replay.py."""
        (self.folder / "models.json").write_text(json.dumps(self.models))
        np.savez(self.folder / "arrays.npz", **self.arrays)
        checks = collections.Counter()
        for entry in self.models:
            checks[entry["operator"]] += 2 * (len(entry["cases"]) or 1)
        return checks


def title_of(row):
    return f"{row['domain']}::{row['type']}"


def record(folder):
    """Record all operators in a directory; return the number of checks of each."""
    recording = Recording(folder)
    for row in front_ends.ROWS:
        before = len(recording.arrays)
        record_row(recording, row)
        assert len(recording.arrays) > before, f"{row['type']} has no cases"
    checks = recording.write()
    assert checks, "the library has no operators"
    return checks


def record_row(recording, row):
    """Add cases of an operator with each of their attributes, what it refuses, and nodes that it refuses."""
    operator, entries = row["kernel"], {}

    def model_for(case):
        """Return the model for a case or refusal: optional inputs at the end may be left out."""
        names = [formal["name"] for formal in row["inputs"]][: len(case.arrays)]
        key = f"{case.attributes} of {', '.join(names)}"
        if key not in entries:
            model = front_ends.make_model(row, front_ends.onnx_attributes(operator, case.attributes), names)
            entries[key] = recording.add_model(row, key, model)
        return entries[key]

    def add(case, entry):
        outputs = front_ends.node_outputs(operator, front_ends.run_numpy(operator, case.arrays, case.attributes))
        recording.add_case(entry, str(case), case.arrays, outputs)

    for case in cases.of(operator):
        entry = model_for(case)
        if len(entry["cases"]) < CASES_PER_MODEL:
            add(case, entry)
    ordinary = cases.ordinary(operator)
    shapes = [array.shape for array in ordinary.arrays]
    fixed = front_ends.make_model(row, front_ends.onnx_attributes(operator, ordinary.attributes), shapes=shapes)
    add(ordinary, recording.add_model(row, "of known shapes", fixed))

    for refusal in test_errors.IN_ORT:
        if refusal.operator == operator:
            entry = model_for(refusal)
            recording.add_case(entry, str(refusal), refusal.arrays, error=test_errors.whole(refusal))
            good = cases.ordinary(operator, len(refusal.arrays))
            if refusal.attributes == good.attributes:
                add(good, entry)  # the session goes on
    for attribute in row["attributes"]:
        wrong = "text" if attribute["type"] != "STRING" else 1
        model = front_ends.make_model(row, test_errors.node_attributes(row, **{attribute["name"]: wrong}))
        error = f"attribute {attribute['name']} must be of type {attribute['type']}"
        recording.add_model(row, f"with {attribute['name']}={wrong!r}", model, error)


def find_python():
    """Return a Python 3.11 that can make virtual environments."""
    pyenv = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    candidates = [sys.executable, shutil.which("python3.11"), *sorted(glob.glob(f"{pyenv}/versions/3.11.*/bin/python"))]
    check = "import sys, ensurepip; sys.exit(sys.version_info[:2] != (3, 11))"
    for python in filter(None, candidates):
        if subprocess.run([python, "-c", check], capture_output=True).returncode == 0:
            return python
    sys.exit("run_on_runtimes.py: needs Python 3.11 with venv and ensurepip (as python3.11 on PATH, or in pyenv)")


def make_environment(python, version, folder):
    """Return a new virtual environment in a directory, with a version of ONNX Runtime."""
    environment = folder / version
    subprocess.run([python, "-m", "venv", environment], check=True)
    numpy_version = "numpy<2" if version < "1.19" else "numpy"  # older wheels were compiled against numpy 1
    command = [environment / "bin/pip", "install", "-qq", f"onnxruntime=={version}", numpy_version]
    subprocess.run(command, check=True)
    return environment


def replay(python, version, folder):
    """Return the number of checks that passed on a version, by operator, and the result of the C program."""
    environment = make_environment(python, version, folder)
    library = mmort.get_onnxruntime_op_path()
    command = [environment / "bin/python", TOOLS / "replay.py", library, folder]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    *differences, last = done.stdout.strip().splitlines() or [""]
    if done.returncode or differences:
        print(f"ONNX Runtime {version}, exit code {done.returncode}:\n{done.stdout}")
    passed = {} if done.returncode else json.loads(last)
    runtimes = list(environment.glob("lib/python*/site-packages/onnxruntime/capi/libonnxruntime.so.*"))
    if not runtimes:
        return passed, "no C library in the wheel"
    smoke = test_smoke.run_smoke(folder, runtimes[0], library)
    if smoke.returncode:
        print(f"smoke.c on ONNX Runtime {version}:\n{smoke.stdout}{smoke.stderr}")
    return passed, "FAILED" if smoke.returncode else "ok"


def main():
    """Record, replay on every version, print the table."""
    parser = argparse.ArgumentParser(prog="run_on_runtimes", description=__doc__)
    parser.add_argument("--record", type=pathlib.Path, metavar="FOLDER", help="only record, in an existing directory")
    parser.add_argument("--baseline", action="store_true", help="record without fused multiply-add")
    options = parser.parse_args()
    folder = options.record
    if folder:
        if options.baseline:
            limit_simd(0)
        print(f"{sum(record(folder).values())} checks")
        return
    python = find_python()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        expected = record(folder)
        results = {version: replay(python, version, folder) for version in RUNTIMES}
    print(f"{len(expected)} operators, 1 and 2 threads")
    print("ONNX Runtime  checks  passed  C program")
    for version, (passed, smoke) in results.items():
        print(f"{version:<12}  {expected.total():>6}  {sum(passed.values()):>6}  {smoke}")
    sys.exit(any(passed != expected or smoke == "FAILED" for passed, smoke in results.values()))


if __name__ == "__main__":
    main()
