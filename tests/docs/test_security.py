"""SECURITY.md: each promise names tests, and they exist."""

import re
from pathlib import Path

import mmort

ROOT = Path(mmort.__file__).parents[1]
ROWS = re.findall(r"^\| .+ \| (.+) \|$", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)[1:]


def test_every_promise_has_a_test():
    assert len(ROWS) == 32
    for row in ROWS:
        file, text = None, None
        for name in re.findall(r"`([^`]+)`", row):
            path, _, function = name.rpartition("::")
            if name.endswith(".py") or path:
                file = ROOT / (path or name)
                text = file.read_text()
            if name.startswith("python -m "):
                assert (ROOT / name.removeprefix("python -m ").replace(".", "/")).with_suffix(".py").exists()
            elif function.startswith("test_"):
                assert f"def {function}(" in text, name
        assert file is not None
