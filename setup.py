"""The build: Cython kernels -> one archive, linked into the extension module and into the ONNX Runtime library.

Also writes mmort/ops/__init__.pyi, which lists for type checkers the names that mmort/ops/__init__.py collects.

Flags, from the environment:
  WITH_ORT     1: build the ONNX Runtime library or fail; 0: leave it out; unset: build it where possible.
  MMORT_DEBUG  1: little optimisation, debug information, Cython's bounds checks, address and undefined-behaviour
               sanitizers.
"""

import ast
import os
import runpy
import sys
from glob import glob
from pathlib import Path

from setuptools import find_packages, setup

FLAGS = {name: os.environ.get(name, "") for name in ("WITH_ORT", "MMORT_DEBUG")}
for name, value in FLAGS.items():
    if value not in ("", "0", "1"):
        sys.exit(f"setup.py: {name} must be 0, 1 or unset, got {value!r}")
    print(f"setup.py: {name}={value or '(unset)'}")


def write_stub(folder: Path) -> None:
    """Write the stub of a package that collects the ``__all__`` of its modules, which cannot be imported yet."""
    names = {}
    for path in sorted(folder.glob("[!_]*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="__all__")]):
                    names[path.stem] = ast.literal_eval(node.value)
    lines = [f"from mmort.ops.{module} import {name} as {name}" for module in names for name in names[module]]
    public = sorted(name for module in names.values() for name in module)
    text = "\n".join(["# Written by setup.py.", *lines, "", f"__all__ = {public}", ""])
    (folder / "__init__.pyi").write_text(text, encoding="utf-8")


write_stub(Path("mmort/ops"))
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
    ),
)
