"""All that a config lacks is listed at once."""

import copy
from pathlib import Path

import pytest

from mmort.cli import main
from mmort.detect import unsupported
from tests.detect.test_two_stage_detectors import CONFIG

PIPELINE = [
    {"type": "LoadImageFromFile"},
    {"type": "Resize", "scale": (64, 64), "keep_ratio": True},
    {"type": "PackDetInputs"},
]
COMPLETE = {**CONFIG, "test_pipeline": PIPELINE}


def test_a_supported_config_lacks_nothing():
    assert unsupported(COMPLETE) == []


def test_every_problem_is_listed_once():
    config = copy.deepcopy(COMPLETE)
    model = config["model"]
    model["backbone"]["colour"] = "red"
    model["neck"] = [model["neck"], {"type": "NoFPN"}, {"type": "NoFPN"}]
    model["rpn_head"]["anchor_generator"]["type"] = "Anchors"
    model["roi_head"]["bbox_head"]["type"] = "OtherHead"
    model["roi_head"]["mask_head"]["upsample_cfg"] = {"type": "bicubic"}
    config["test_pipeline"] = [*PIPELINE, {"type": "Blur"}]
    problems = unsupported(config)
    assert problems[:-1] == [
        "backbone 'ResNet' with colour is not supported",
        "neck 'NoFPN' is not supported",
        "prior generator 'Anchors' is not supported",
        "bbox_head 'OtherHead' is not supported",
        "mask_head.upsample_cfg 'bicubic' is not supported",
    ]
    assert "Blur" in problems[-1]


def test_what_lies_behind_an_unknown_entry_is_listed_too():
    config = copy.deepcopy(COMPLETE)
    config["model"] |= {"nope": 3}
    config["model"]["roi_head"]["bbox_head"]["type"] = "OtherHead"
    assert unsupported(config) == ["model with nope is not supported", "bbox_head 'OtherHead' is not supported"]


@pytest.mark.parametrize(
    ("model", "problem"),
    [
        ({"type": "SOLO", "mask_head": {"type": "MadeUpHead"}}, "mask_head 'MadeUpHead' of model.type 'SOLO' is not"),
        (
            {"type": "MadeUpTracker"},
            "model.type 'MadeUpTracker' without a head, such as bbox_head or roi_head, is",
        ),
        (None, "the config must have a dict 'model'"),
    ],
)
def test_heads_that_nobody_has(model, problem):
    if model is not None:
        model["backbone"] = {"type": "MadeUpNet"}
    problems = unsupported({"model": model, "test_pipeline": PIPELINE})
    assert problems[0].startswith(problem)
    assert problems[1:] == ([] if model is None else ["backbone 'MadeUpNet' is not supported"])


def test_command(tmp_path, capsys):
    path = tmp_path / "config.py"
    path.write_text(f"model = {COMPLETE['model']!r}\ntest_pipeline = {PIPELINE!r}")
    assert main(["export", str(path), "--check"]) == 0
    assert capsys.readouterr().out == f"{path}: supported\n"
    path.write_text(path.read_text() + "\ntta_model = dict(type='DetTTAModel')\n")
    assert main(["export", str(path), "--check"]) == 0
    note = "left out: test-time augmentation (tta_model): the file detects in one view, at one scale"
    assert capsys.readouterr().out == f"{path}: supported\n{note}\n"
    options = ["model.backbone.depth=7", "model.neck.type=NoFPN"]
    assert main(["export", str(path), "--check", "--cfg-options", *options]) == 1
    expected = f"mmort: error: {path}: not supported:\n  backbone.depth must be one of 18, 34, 50, 101, 152, got 7\n"
    assert capsys.readouterr().err == (
        f"{expected}  neck 'NoFPN' is not supported\n"
        "  one of your own: --import FILE.py registers it; docs/own_detectors.md has an example\n"
    )
    assert main(["export", str(path), "--check", "--cfg-options", "data.tset=1"]) == 1
    assert "cfg_options must name entries of the config, got data.tset: it has no data" in capsys.readouterr().err
    assert main(["export", str(path)]) == 2
    assert "CHECKPOINT is required, unless --check is given" in capsys.readouterr().err


def test_command_of_several_configs(tmp_path, capsys):
    good, bad, missing = (str(tmp_path / name) for name in ("good.py", "bad.py", "missing.py"))
    Path(good).write_text(f"model = {COMPLETE['model']!r}\ntest_pipeline = {PIPELINE!r}")
    Path(bad).write_text("model = dict(type='Foo')")
    assert main(["export", good, good, "--check", good]) == 0
    assert capsys.readouterr().out == f"{good}  supported\n" * 3
    assert main(["export", "--check", good, bad, missing]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{good}     supported",
        f"{bad}      model.type 'Foo' without a head, such as bbox_head or roi_head, is not supported",
        f"{'':{len(missing)}}  preprocessing: the config has no test pipeline",
        f"{missing}  {missing}: no such file or directory",
    ]
    assert err == "mmort: error: 2 of 3 configs are not supported\n"
    assert main(["export", good, "a.pth", "b.pth"]) == 2
    assert capsys.readouterr().err == (
        f"mmort: error: export: there must be one CONFIG and one CHECKPOINT, got {good}, a.pth, b.pth; a deploy config "
        "of MMDeploy is not needed\n"
    )
