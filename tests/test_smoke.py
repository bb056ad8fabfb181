"""The library in a process without Python: smoke.c is compiled, and runs with the ONNX Runtime that is installed."""

import os
import pathlib
import subprocess
import sys

import doors
import mmort
import onnx
import onnxruntime
import pytest

SOURCE = pathlib.Path(__file__).with_name("smoke.c")
RUNTIMES = list(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*"))


@pytest.mark.skipif(sys.platform != "linux", reason="smoke.c reads /proc/self/maps")
def test_program_without_python(tmp_path):
    program, model = tmp_path / "smoke", tmp_path / "nms.onnx"
    onnx.save(doors.make_model(doors.row_of("nms"), {"iou_threshold": 0.5}), model)
    strict = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([os.environ.get("CC", "cc"), *strict, SOURCE, "-o", program, "-ldl"], check=True)
    (runtime,) = RUNTIMES
    done = subprocess.run([program, runtime, mmort.get_onnxruntime_op_path(), model], capture_output=True, text=True)
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert done.stdout.count("ok: indices are 1, 2") == 2
