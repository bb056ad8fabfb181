"""The build: Cython kernels -> one archive, linked into the extension module and into the ONNX Runtime library.

Flags, from the environment:
  WITH_ORT     1: build the ONNX Runtime library or fail; 0: leave it out; unset: build it where possible.
  MMORT_DEBUG  1: little optimisation, debug information, Cython's bounds checks, address and undefined-behaviour
               sanitizers.
"""

import os
import runpy
import sys
from glob import glob

from setuptools import find_packages, setup

FLAGS = {name: os.environ.get(name, "") for name in ("WITH_ORT", "MMORT_DEBUG")}
for name, value in FLAGS.items():
    if value not in ("", "0", "1"):
        sys.exit(f"setup.py: {name} must be 0, 1 or unset, got {value!r}")
    print(f"setup.py: {name}={value or '(unset)'}")

operators = runpy.run_path("mmort/build.py")["operators"]  # importing mmort needs what is built here
setup(
    packages=[*find_packages(include=["mmort", "mmort.*"]), "mmort.bridge_c"],
    package_dir={"mmort.bridge_c": "bridge_c"},
    **operators(
        door="mmort._kernels.door",
        library="mmort.libmmort_ort",
        sources=sorted(glob("mmort/_kernels/*.c") + glob("mmort/_kernels/*.pyx")),
        with_library={"1": True, "0": False}.get(FLAGS["WITH_ORT"]),
        sanitize=FLAGS["MMORT_DEBUG"] == "1",
    )
)
