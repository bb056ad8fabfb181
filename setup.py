"""The build: Cython kernels -> one archive, linked into the extension module and into the ONNX Runtime library.

Also writes mmort/ops/__init__.pyi, which lists for type checkers the names that mmort/ops/__init__.py collects.

Flags, from the environment:
  WITH_ORT     1: build the ONNX Runtime library or fail; 0: leave it out; unset: build it where possible.
  MMORT_DEBUG  1: little optimisation, debug information, Cython's bounds checks, address and undefined-behaviour
               sanitizers.
  SOURCE_DATE_EPOCH  the time, in seconds since 1970, of all files in a source distribution or wheel; two builds with
                     the same time have the same bytes.
"""

import ast
import gzip
import os
import runpy
import sys
import tarfile
import time
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.sdist import sdist

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


class ReproducibleSdist(sdist):
    """Packs files with fixed owners and permissions, and with one time: setuptools takes those of the working tree."""

    def make_archive(self, base_name, format, root_dir=None, base_dir=None, owner=None, group=None):
        seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))

        def normalize(info: tarfile.TarInfo) -> tarfile.TarInfo:
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            info.mtime, info.mode = seconds, 0o755 if info.isdir() or info.mode & 0o100 else 0o644
            return info

        path = f"{base_name}.tar.gz"
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with (
            open(path, "wb") as file,
            gzip.GzipFile("", "wb", fileobj=file, mtime=seconds) as packed,
            tarfile.open(mode="w", fileobj=packed) as archive,
        ):
            archive.add(base_dir, filter=normalize)
        return path


write_stub(Path("mmort/ops"))
operators = runpy.run_path("mmort/build.py")["operators"]  # importing mmort needs what is built here
built = operators(
    extension="mmort._kernels.numpy_api",
    library="mmort.libmmort_ort",
    sources=sorted(path.as_posix() for kind in ("c", "pyx") for path in Path("mmort/_kernels").rglob(f"*.{kind}")),
    with_library={"1": True, "0": False}.get(FLAGS["WITH_ORT"]),
    sanitize=FLAGS["MMORT_DEBUG"] == "1",
)
built["cmdclass"]["sdist"] = ReproducibleSdist
setup(
    packages=[*find_packages(include=["mmort", "mmort.*"]), "mmort.bridge_c", "mmort.demo.web"],
    package_dir={"mmort.bridge_c": "bridge_c", "mmort.demo.web": "examples/web"},
    **built,
)
