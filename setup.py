"""The build: Cython kernels -> one archive, linked into the extension module and into the ONNX Runtime library.

Flags, from the environment:
  WITH_ORT     1: build the ONNX Runtime library or fail; 0: leave it out; unset: build it where possible.
  MMORT_DEBUG  1: little optimisation, debug information, Cython's bounds checks, address and undefined-behaviour
               sanitizers.
"""

import contextlib
import os
import sys
import sysconfig
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

FLAGS = {name: os.environ.get(name, "") for name in ("WITH_ORT", "MMORT_DEBUG")}
for name, value in FLAGS.items():
    if value not in ("", "0", "1"):
        sys.exit(f"setup.py: {name} must be 0, 1 or unset, got {value!r}")
    print(f"setup.py: {name}={value or '(unset)'}")
WITH_ORT, DEBUG = FLAGS["WITH_ORT"], FLAGS["MMORT_DEBUG"] == "1"
MSVC, MAC = sys.platform == "win32", sys.platform == "darwin"
DOOR, BRIDGE = "mmort._kernels.door", "mmort.libmmort_ort"  # the second is a plain shared library

SANITIZE = ["-fsanitize=address,undefined"] if DEBUG else []
if MSVC:
    cflags, link_bridge = ["/O2", "/std:c11"], ["/OPT:REF"]
else:
    # Fused multiply-add would give other last bits on machines that have it.
    cflags = ["-std=gnu11", "-ffp-contract=off", "-fvisibility=hidden", "-ffunction-sections", "-fdata-sections"]
    cflags += ["-fno-trapping-math"]  # else gcc keeps branches, for floating-point flags that nobody reads
    cflags += ["-Wno-tautological-compare"]  # x != x asks for NaN, also where a number of that type has none
    cflags += ["-O1", "-g", "-fno-omit-frame-pointer", "-DMMK_NO_CLONES", *SANITIZE] if DEBUG else ["-O3", "-g0"]
    # Of the kernels' objects the bridge keeps the functions it calls: none of them knows Python, and `defs` proves it.
    link_bridge = ["-Wl,-dead_strip", "-Wl,-exported_symbol,_RegisterCustomOps", "-Wl,-exported_symbol,_mmort_describe"]
    if not MAC:
        defs = [] if DEBUG else ["-Wl,-z,defs"]  # the sanitizers' own symbols come with the process
        link_bridge = ["-Wl,--gc-sections", *defs, "-Wl,--version-script=bridge_c/exports.map", "-lm"]

BUILD = "build/debug" if DEBUG else "build"  # objects do not tell by which flags they were made
HEADERS = glob("mmort/_kernels/*.h") + glob("bridge_c/*.h")
directives = {"language_level": 3, "cdivision": True, "wraparound": False}
directives |= dict.fromkeys(("boundscheck", "initializedcheck"), DEBUG)
sources = {f"mmort._kernels.{os.path.basename(path)[:-4]}": path for path in sorted(glob("mmort/_kernels/*.pyx"))}
modules = {
    module.name: module
    for module in cythonize(
        [Extension(name, [path]) for name, path in sources.items()],
        build_dir=f"{BUILD}/cython",
        compiler_directives=directives,
    )
}
door = modules.pop(DOOR)
door.sources += ["bridge_c/operators.c", "bridge_c/describe.c"]  # the table of operators, for the torch door and export
door.include_dirs, door.extra_compile_args = ["bridge_c", "mmort/_kernels"], cflags
door.extra_link_args = SANITIZE if MSVC or MAC else ["-Wl,--gc-sections", *SANITIZE]
kernels = {
    "sources": [*sorted(glob("mmort/_kernels/*.c")), *(module.sources[0] for module in modules.values())],
    "include_dirs": ["mmort/_kernels", sysconfig.get_path("include")],  # Cython's boilerplate wants Python.h
    "cflags": cflags,
    "obj_deps": {"": HEADERS},
}
door.depends = [*HEADERS, *kernels["sources"], "bridge_c/operators.c", "bridge_c/describe.c"]
bridge = Extension(
    BRIDGE,
    sorted(glob("bridge_c/*.c")),
    include_dirs=["bridge_c", "mmort/_kernels"],
    extra_compile_args=cflags,
    extra_link_args=link_bridge + SANITIZE,
    depends=[*door.depends, "bridge_c/exports.map"],
    export_symbols=["RegisterCustomOps", "mmort_describe"],
    optional=WITH_ORT != "1",
)


class BuildExt(build_ext):
    """Adds a shared library that is no Python module."""

    def run(self):
        self.run_command("build_clib")
        version = self.distribution.get_version()
        for extension in (door, bridge):
            extension.define_macros = [("MMORT_VERSION", f'"{version}"')]
        # What an earlier build left, with other flags perhaps, must not be taken for what this one makes.
        for folder in [self.build_lib, *(["."] if self.inplace else [])]:
            for name in (DOOR, BRIDGE):
                with contextlib.suppress(FileNotFoundError):
                    os.remove(os.path.join(folder, self.get_ext_filename(name)))
        super().run()

    def get_ext_filename(self, fullname):
        if fullname.rpartition(".")[2] != BRIDGE.rpartition(".")[2]:
            return super().get_ext_filename(fullname)
        suffix = ".dll" if MSVC else ".dylib" if MAC else ".so"
        return os.path.join(*fullname.split(".")) + suffix

    def get_export_symbols(self, ext):
        return ext.export_symbols if ext is bridge else super().get_export_symbols(ext)


setup(
    ext_modules=[door] + ([bridge] if WITH_ORT != "0" else []),
    libraries=[("mmort_kernels", kernels)],
    options={"build": {"build_base": BUILD}},
    cmdclass={"build_ext": BuildExt},
)
