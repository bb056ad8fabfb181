"""What is built: which symbols and libraries the module and the library need, and how they are hardened."""

import re
import shutil
import subprocess
import sys
import sysconfig

import pytest

import mmort.ort
from mmort._kernels import numpy_api

BUILT = {"module": numpy_api.__file__, "library": mmort.ort.library_path()}

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tools read ELF files")


def run_tool(*command):
    assert shutil.which(command[0]), f"{command[0]} is needed to look into the files: install binutils"
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def undefined(path):
    lines = run_tool("nm", "-D", "--undefined-only", path).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


@pytest.mark.skipif(
    sys.version_info < (3, 11) or bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="there is no stable ABI"
)
def test_module_is_for_every_python():
    """By its name; `.ci/run packages` looks at every symbol."""
    assert numpy_api.__file__.endswith("numpy_api.abi3.so")


def test_module_exports_its_initialisation_only():
    exported = run_tool("nm", "-D", "--defined-only", numpy_api.__file__).splitlines()
    assert {line.split()[-1] for line in exported} - {"mmort_describe"} == {"PyInit_numpy_api"}


@pytest.mark.parametrize("path", BUILT.values(), ids=BUILT)
def test_needs_only_the_c_library(path):
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", run_tool("readelf", "-d", path))
    assert {name.split(".")[0] for name in needed} <= {"libc", "libm", "ld-linux-x86-64", "ld-linux-aarch64"}


@pytest.mark.parametrize("path", BUILT.values(), ids=BUILT)
def test_hardened(path):
    """Addresses are resolved on loading and then read-only, no stack is executable, and buffers are guarded."""
    segments = run_tool("readelf", "-lW", path)
    assert "GNU_RELRO" in segments
    (stack,) = re.findall(r"GNU_STACK .* (\S+) +0x\w+$", segments, re.M)
    assert stack == "RW"
    assert re.search(r"\(FLAGS(_1)?\) .*NOW", run_tool("readelf", "-d", path))
    names = undefined(path)
    assert "__stack_chk_fail" in names
    assert [name for name in names if name.endswith("_chk")], "no checked function of the C library"
