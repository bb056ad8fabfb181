"""Write docs/versions.md: the ONNX Runtimes, Pythons and versions of numpy that mmort was run on.

    python -m tests.tools.tabulate_versions PYTHON...

PYTHON are interpreters with venv, such as ~/.pyenv/versions/3.1?.*/bin/python: those of PYTHONS that are not named are
marked as not run.  3.10 and 3.11 are required, which build the wheels; 3.11 runs every ONNX Runtime.  Takes 10 minutes.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from tqdm import tqdm

import mmort
from tests.tools import run_on_runtimes

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "versions.md"

RUNTIMES = (
    *("1.16.3", "1.17.3", "1.18.1", "1.19.2", "1.20.1", "1.21.1", "1.22.1", "1.23.2", "1.24.4", "1.25.1"),
    *("1.26.0", "1.27.0", "1.28.0", "1.29.0", "1.30.0", "1.31.1", "1.32.0"),
)
"""The last patch of every minor version, from the oldest that the library supports."""

PYTHONS = ("3.10", "3.11", "3.12", "3.13", "3.14")
NUMPYS = ("1.26.*", "2.0.*", "2.*")
TESTS = ("tests/operators/test_golden.py", "tests/operators/test_errors.py", "tests/operators/test_threads.py")
NEEDED = ("hypothesis", "onnx", "onnxruntime", "pillow", "pytest")

HEAD = """# Versions

Which versions mmort {version} was run on, on Linux on x86-64. This page is written by

```sh
python -m tests.tools.tabulate_versions ~/.pyenv/versions/3.1?.*/bin/python
```

## ONNX Runtime

One library, compiled once, on the last patch of every minor version. The checks of an operator are results, which must
be equal to the last bit, inferred shapes, and refusals, with 1 and 2 threads: `all` passed, or as many as the cell
says. The C program loads the library and runs a model in a process without Python, if the wheel has ONNX Runtime's C
library.

"""

MIDDLE = """
## Python and numpy

One wheel, `cp311-abi3`, for all Pythons from 3.11 on, and one for 3.10. For each cell the wheel was installed in an
empty environment, and the tests of recorded results, of refusals and of threads were run there. numpy has no wheels for
some of the pairs.

"""


def tabulate_runtimes(folder: pathlib.Path) -> list[str]:
    """Return the table of ONNX Runtimes and operators."""
    python = run_on_runtimes.find_python()
    expected = run_on_runtimes.record(folder)
    results = {version: run_on_runtimes.replay(python, version, folder) for version in tqdm(RUNTIMES)}

    def cell(version: str, operator: str) -> str:
        passed = results[version][0].get(operator, 0)
        return "all" if passed == expected[operator] else f"**{passed}**"

    rows = [["operator", "checks", *RUNTIMES], ["-"] * (len(RUNTIMES) + 2)]
    rows += [
        [f"`{name}`", str(count), *(cell(version, name) for version in RUNTIMES)] for name, count in expected.items()
    ]
    rows.append(
        ["C program", "", *("-" if " " in results[version][1] else results[version][1] for version in RUNTIMES)]
    )
    return [f"| {' | '.join(row)} |" for row in rows]


def build_wheels(pythons: dict[str, str], folder: pathlib.Path) -> dict[str, pathlib.Path]:
    """Build a wheel with Python 3.10 and one with 3.11; return the wheel of each Python."""
    wheels, sources = {}, folder / "build"
    shutil.copytree(ROOT, sources, ignore=shutil.ignore_patterns("build", ".*"))
    for version in ("3.10", "3.11"):
        environment, output = folder / f"build{version}", folder / f"wheel{version}"
        subprocess.run([pythons[version], "-m", "venv", environment], check=True)
        command = [environment / "bin/pip", "wheel", "-q", "--no-deps", "-w", output, sources]
        subprocess.run(command, check=True, env={"WITH_ORT": "1", "PATH": "/usr/bin:/bin"})
        (wheels[version],) = output.glob("*.whl")
    return {version: wheels.get(version, wheels["3.11"]) for version in PYTHONS}


def test_numpy(python: str, wheel: pathlib.Path, numpy_version: str, folder: pathlib.Path) -> str:
    """Install a wheel with a version of numpy, and run the tests; return the cell of the table."""
    environment = folder / "environment"
    shutil.rmtree(environment, ignore_errors=True)
    subprocess.run([python, "-m", "venv", "--without-pip", environment], check=True)
    pip = [sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "-qq"]
    if subprocess.run([*pip, "--only-binary", ":all:", f"numpy=={numpy_version}"], capture_output=True).returncode:
        return "no wheel"
    subprocess.run([*pip, wheel, f"numpy=={numpy_version}", *NEEDED], check=True)
    command = [environment / "bin/python", "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", *TESTS]
    done = subprocess.run(command, cwd=folder / "sources", capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-3000:], done.stderr[-3000:])
    code = "import json, numpy, platform; print(json.dumps([platform.python_version(), numpy.__version__]))"
    versions = json.loads(subprocess.check_output([environment / "bin/python", "-c", code]))
    return f"{versions[0]}, {versions[1]}: {done.stdout.strip().splitlines()[-1].partition(' in ')[0]}"


def tabulate_pythons(pythons: dict[str, str], folder: pathlib.Path) -> list[str]:
    """Return the table of Pythons and versions of numpy."""
    wheels = build_wheels(pythons, folder)
    shutil.copytree(
        ROOT / "tests", folder / "sources" / "tests"
    )  # without mmort's sources, so that the wheel is tested
    shutil.copy(ROOT / "pyproject.toml", folder / "sources")
    lines = [f"| Python | {' | '.join(f'numpy {version}' for version in NUMPYS)} |", "|-|" + "-|" * len(NUMPYS)]
    for version in tqdm(PYTHONS):
        if version in pythons:
            cells = [test_numpy(pythons[version], wheels[version], numpy, folder) for numpy in NUMPYS]
        else:
            cells = ["not run"] * len(NUMPYS)
        lines.append(f"| {version} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Write the page."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    pythons = {subprocess.check_output([path, "-c", code], text=True).strip(): path for path in sys.argv[1:]}
    if not {"3.10", "3.11"} <= pythons.keys():
        sys.exit(f"tabulate_versions.py: needs Python 3.10 and 3.11, got {sorted(pythons)}")
    with tempfile.TemporaryDirectory() as name:
        pages = []
        for part, tabulate in (("runtimes", tabulate_runtimes), ("pythons", lambda f: tabulate_pythons(pythons, f))):
            folder = pathlib.Path(name) / part
            folder.mkdir()
            pages.append(tabulate(folder))
    text = HEAD.format(version=mmort.__version__) + "\n".join(pages[0]) + "\n" + MIDDLE + "\n".join(pages[1]) + "\n"
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
