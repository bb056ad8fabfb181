"""The library in a process without Python: smoke.c is compiled, and runs with the ONNX Runtime that is installed."""

import os
import pathlib
import subprocess
import sys

import onnx
import onnxruntime
import pytest

import mmort
import mmort.build
from tests import front_ends

SOURCE = pathlib.Path(__file__).with_name("smoke.c")


def run_smoke(folder, runtime, library):
    """Compile smoke.c and run it in a folder; return the finished process."""
    program, model = folder / "smoke", folder / "nms.onnx"
    onnx.save(front_ends.make_model(front_ends.row_of("nms"), {"iou_threshold": 0.5}, ["boxes", "scores"]), model)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    include = f"-I{mmort.build.get_include()}"
    subprocess.run([os.environ.get("CC", "cc"), *strict, include, SOURCE, "-o", program, "-ldl"], check=True)
    return subprocess.run([program, runtime, library, model], capture_output=True, text=True)


@pytest.mark.skipif(sys.platform != "linux", reason="smoke.c reads /proc/self/maps")
def test_program_without_python(tmp_path):
    (runtime,) = pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")
    done = run_smoke(tmp_path, runtime, mmort.get_onnxruntime_op_path())
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert done.stdout.count("ok: indices are 1, 2") == 2
