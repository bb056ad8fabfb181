"""Detectors of one's own: the file in docs/own_detectors.md, by the commands and in Python."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmort.detect import build
from mmort.detect.entries import PARTS
from mmort.detect.extension import run_extension
from tests.cli.running import refused
from tests.detect import dense_cases

DOCUMENT = (Path(__file__).parents[2] / "docs" / "own_detectors.md").read_text(encoding="utf-8")
NAME = "ScaledRetinaHead"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_heads.py"
    path.write_text(re.search(r"```python\n(.*?)```", DOCUMENT, re.S)[1], encoding="utf-8")
    yield path
    PARTS.types["detector"].pop(NAME, None)


def config(**head):
    made = dense_cases.config("FreeAnchorRetinaHead", **{"type": "RetinaHead", **head})
    del made["model"]["bbox_head"]["bbox_thr"]  # FreeAnchor's
    return made


def test_the_documents_file_makes_its_detector(file):
    with pytest.raises(ValueError, match=f"{NAME}.* is not supported; supported heads like it: .*RetinaHead; one of "):
        build(config(type=NAME))
    run_extension(file)
    detector, plain = build(config(type=NAME, delta_scale=0.5)), build(config())
    detector.load_state_dict(plain.state_dict())
    assert detector.family == "Scaled RetinaNet"
    input = torch.randn(1, 3, 64, 64)
    levels = len(plain.bbox_head.priors.strides)
    for mine, theirs in zip(detector.raw(input)[levels:], plain.raw(input)[levels:], strict=True):
        assert torch.equal(mine, theirs * 0.5)
    with pytest.raises(ValueError, match="delta_scales"):
        build(config(type=NAME, delta_scales=0.5))


def test_a_name_that_is_taken_is_refused(file):
    file.write_text(file.read_text().replace('"detector", "ScaledRetinaHead"', '"detector", "RetinaHead"'))
    with pytest.raises(ValueError, match="'RetinaHead' is registered already, as RetinaNet"):
        run_extension(file)


@pytest.mark.parametrize("name", ["missing.py", "my_heads.txt"])
def test_files_that_are_no_python_files(tmp_path, name):
    if name != "missing.py":
        (tmp_path / name).write_text("")
    with pytest.raises((FileNotFoundError, ValueError), match="file of own detectors"):
        run_extension(tmp_path / name)


def test_both_refusals_name_the_guide():
    for unknown in (config(type="Other"), config() | {"model": config()["model"] | {"backbone": {"type": "Other"}}}):
        with pytest.raises(
            ValueError, match=r"'Other' .*is not supported; .*; one of your own: docs/own_detectors\.md$"
        ):
            build(unknown)


def test_without_torch(file):
    code = (
        "import sys; sys.modules['torch'] = None; import mmort.cli; "
        f"sys.exit(mmort.cli.main(['export', 'x.py', '--check', '--import', {str(file)!r}]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr == "mmort: error: --import needs torch: pip install 'mmort[detect]'\n"


def test_commands(file, tmp_path):
    settings = tmp_path / "config.json"
    pipeline = [{"type": "LoadImageFromFile"}, {"type": "Resize", "scale": (64, 64)}, {"type": "PackDetInputs"}]
    settings.write_text(json.dumps(config(type=NAME) | {"test_dataloader": {"dataset": {"pipeline": pipeline}}}))
    command = [sys.executable, "-m", "mmort", "export", "--check", str(settings)]
    unknown = subprocess.run(command, capture_output=True, text=True)
    assert unknown.returncode == 1
    assert NAME in unknown.stderr
    assert unknown.stderr.endswith("docs/own_detectors.md says how to register a head or part of your own\n")
    accepted = subprocess.run([*command, "--import", str(file)], capture_output=True, text=True)
    assert (accepted.returncode, accepted.stdout.strip()) == (0, f"{settings}: supported")
    assert "--import is for checkpoints" in refused("test", settings, "model.onnx", "--eval", "bbox", "--import", file)
