"""Detectors of one's own: the file in docs/own_detectors.md, by the commands and in Python."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mmort.detect import build
from mmort.detect.entries import OF_YOUR_OWN, PARTS
from mmort.detect.extension import run_extension
from tests.cli.running import misused
from tests.detect import dense_cases

DOCUMENT = (Path(__file__).parents[2] / "docs" / "own_detectors.md").read_text(encoding="utf-8")
NAME = "ScaledRetinaHead"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "my_heads.py"
    path.write_text(re.search(r"```python\n(.*?)```", DOCUMENT, re.S)[1], encoding="utf-8")
    PARTS.types["detector"].pop(NAME, None)  # of the document's own test, if this process ran it
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


def test_a_train_that_returns_nothing(file):
    """As the backbones of MMDetection have it, which freeze stages."""
    text = file.read_text(encoding="utf-8")
    file.write_text(text + "\n    def train(self, mode=True):\n        super().train(mode)\n", encoding="utf-8")
    run_extension(file)
    detector = build(config(type=NAME, delta_scale=0.5))
    assert not detector.training
    assert not any(parameter.requires_grad for parameter in detector.parameters())


def test_a_name_that_is_taken_is_refused(file):
    file.write_text(file.read_text().replace('"detector", "ScaledRetinaHead"', '"detector", "RetinaHead"'))
    line = file.read_text()[: file.read_text().index("@register")].count("\n") + 1
    with pytest.raises(
        ValueError, match=rf"my_heads\.py, line {line}: ValueError: .*'RetinaHead' is registered already, as RetinaNet"
    ):
        run_extension(file)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import math\nimport no_such_module\n", ", line 2: ModuleNotFoundError: No module named 'no_such_module'"),
        ("x = 1\ndef f():\n    return 1 / 0\nf()\n", ", line 3: ZeroDivisionError: division by zero"),
        ("x = (\n", ", line 1: SyntaxError: '\\(' was never closed$"),
        ("import sys\nsys.exit(3)\n", ", line 2: SystemExit: 3$"),
        ("x = '\0'\n", ": (ValueError|SyntaxError): source code string cannot contain null bytes"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "wrong.py").write_text(text)
    with pytest.raises(ValueError, match=rf"wrong\.py{message}"):
        run_extension(tmp_path / "wrong.py")


@pytest.mark.parametrize("name", ["missing.py", "my_heads.txt", "folder"])
def test_files_that_are_no_python_files(tmp_path, name):
    if name == "folder":
        (tmp_path / name).mkdir()
    elif name != "missing.py":
        (tmp_path / name).write_text("")
    with pytest.raises((OSError, ValueError), match=r"file of own detectors (does not exist|must be)"):
        run_extension(tmp_path / name)


def test_both_refusals_name_the_guide():
    for unknown in (config(type="Other"), config() | {"model": config()["model"] | {"backbone": {"type": "Other"}}}):
        with pytest.raises(
            ValueError,
            match=rf"'Other' .*is not supported; .*; {re.escape(OF_YOUR_OWN)}$",
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
    assert unknown.stderr.endswith(f"  {OF_YOUR_OWN}\n")
    accepted = subprocess.run([*command, "--import", str(file)], capture_output=True, text=True)
    assert (accepted.returncode, accepted.stdout.strip()) == (0, f"{settings}: supported")
    assert "--import is for checkpoints" in misused("test", settings, "model.onnx", "--eval", "bbox", "--import", file)
