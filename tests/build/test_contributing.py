"""The walk-throughs of CONTRIBUTING.md, in copies of the sources: an operator and a family of detectors."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import mmort

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


def run(tree, *arguments, code=0, **environment):
    environment = os.environ | {"PYTHONPATH": str(tree)} | environment
    done = subprocess.run([sys.executable, *arguments], cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
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


def test_documents(tree):
    """What is missing is named as the table says."""
    command = "-m", "pytest", "-q", "-n0", "tests/docs/test_reference.py", "-k", "lists_every_function"
    failed = run(tree, *command, code=1)
    messages = re.findall(r"^\| the r\w+ .*?\| `(AssertionError: docs/.*)` \|$", TEXT, re.M)
    assert len(messages) == 2
    for message in messages:
        assert f"E       {message}\n" in failed
    (row,) = re.findall(r"^```text\n(\| `clip_boxes` .*\n)```$", TEXT, re.M)
    insert(tree / "docs" / "operators.md", "| function | ONNX node | |\n|-|-|-|\n", row)
    insert(tree / "docs" / "reference" / "numpy.md", "   box_iou\n", "   clip_boxes\n")
    insert(tree / "docs" / "reference" / "numpy.md", ".. autofunction:: box_iou\n", ".. autofunction:: clip_boxes\n")
    assert "2 passed" in run(tree, *command)


def test_a_family(tmp_path):
    """The head of docs/own_detectors.md, inside the tree; what is missing is named."""
    for package in (pathlib.Path(mmort.__file__).parent, ROOT / "tests"):
        shutil.copytree(package, tmp_path / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    section = TEXT[TEXT.index("## Add a detector family") :]
    (small_config,) = re.findall(r'^   ("ScaledRetinaHead": .*,)$', section, re.M)
    document = (ROOT / "docs" / "own_detectors.md").read_text(encoding="utf-8")
    source = re.search(r"```python\n(.*?)```", document, re.S)[1]
    families = tmp_path / "mmort" / "detect" / "families" / "dense"
    (families / "scaled_retinanet.py").write_text(
        source.replace("from mmort.detect import register", "from mmort.detect.entries import register"),
        encoding="utf-8",
    )
    insert(tmp_path / "tests" / "detect" / "dense_cases.py", "HEADS = {\n", f"    {small_config}\n")
    tests = ("-m", "pytest", "-q", "-n0", "-o", "addopts=", "-rA")
    heads, exports = "tests/detect/test_dense_heads.py", "tests/exports/test_every_family.py"
    failed = run(tmp_path, *tests, heads, "-k", "ScaledRetinaHead", code=1)
    assert "bbox_head 'ScaledRetinaHead' of model.type None is not supported" in failed
    insert(families / "__init__.py", "import (\n", "    scaled_retinanet,\n")
    assert str(tmp_path) in run(tmp_path, "-c", "import mmort; print(mmort.__file__)")
    passed = run(tmp_path, *tests, exports, heads, "tests/detect/test_registry.py", "-k", "has_a_case or Scaled")
    for name in ("every_family_has_a_case", "export[ScaledRetinaNet]", "maps_of_networks[ScaledRetinaHead]"):
        assert f"::test_{name}\n" in passed
    cases = tmp_path / "tests" / "detect" / "dense_cases.py"
    cases.write_text(cases.read_text(encoding="utf-8").replace(small_config, ""), encoding="utf-8")
    failed = run(tmp_path, *tests, exports, "-k", "has_a_case", code=1)
    (message,) = re.findall(r"^\| the small config \| .*?: `(.*)` \|$", section, re.M)
    assert message in failed


def insert(path, mark, text):
    """Insert a text after a mark that is in the file once."""
    content = path.read_text(encoding="utf-8")
    assert content.count(mark) == 1
    path.write_text(content.replace(mark, mark + text), encoding="utf-8")
