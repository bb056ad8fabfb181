"""A seeded sample of the generators of hostile files, texts and signals, whose long runs are in docs/reliability.md."""

import os
import subprocess
import sys

import pytest

SAMPLES = {"archives": 300, "layouts": 50, "texts": 40, "videos": 150, "signals": 15}


@pytest.mark.parametrize("name", SAMPLES)
def test_sample(name, tmp_path):
    command = [sys.executable, "-m", f"tests.fuzz.{name}", "--count", str(SAMPLES[name]), "--seed", "7"]
    environment = os.environ | {"TMPDIR": os.fspath(tmp_path)}
    result = subprocess.run([*command, "--max-seconds", "8"], capture_output=True, text=True, env=environment)
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    assert f"{SAMPLES[name]} {name}, " in result.stdout
