"""The walk-through of CONTRIBUTING.md: its four files, added to a copy of the sources, make an operator everywhere."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^`([\w/.]+)`:\n\n```\w+\n(.*?)^```$", TEXT, re.M | re.S))
((TABLE, ROW),) = re.findall(r"^In `([\w/.]+\.c)`, .*?:\n\n```c\n(.*?)^```$", TEXT, re.M | re.S)
END = "\n    {.kernel = NULL},\n"

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "data", "*.egg-info", "benchmarks", "examples", "demo")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the sources with the operator, built; objects of the other kernels are reused where there are any."""
    tree = tmp_path_factory.mktemp("sources") / "mmort"
    shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
    for name, text in FILES.items():
        assert not (tree / name).exists()
        (tree / name).write_text(text, encoding="utf-8")
    table = (tree / TABLE).read_text(encoding="utf-8")
    assert table.count(END) == 1
    (tree / TABLE).write_text(table.replace(END, f"\n{ROW}{END}"), encoding="utf-8")
    run(tree, "setup.py", "-q", "build_ext", "--inplace", WITH_ORT="1")
    return tree


def run(tree, *arguments, **environment):
    environment = os.environ | {"PYTHONPATH": str(tree)} | environment
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_four_files():
    assert len({*FILES, TABLE}) == 4


def test_operator_everywhere(tree):
    """The operator's tests, and those that compare the lists of operators, in a process that imports the copy."""
    assert str(tree) in run(tree, "-c", "import mmort; print(mmort.__file__)")
    folders = {"operators": ("operators", "errors", "parity"), "ort": ("library",), "torch": ("custom_operators",)}
    files = {name: f"tests/{folder}/test_{name}.py" for folder, names in folders.items() for name in names}
    options = "-k", "clip_boxes or ClipBoxes or test_parity", "-rA"
    passed = run(tree, "-m", "pytest", "-q", "-n0", *files.values(), *options)
    counts = {name: passed.count(f"PASSED {file}::") for name, file in files.items()}
    assert counts["operators"] + counts["errors"] > 50
    assert counts["custom_operators"] > 10
    assert all(counts.values()), counts
