"""Files of detectors of what words describe, by the command: words are constants, and the classes of the file.

`.ci/run exports` runs this; the suite does not, as an export takes more than half a minute.
"""

import json

import numpy as np
import torch

import mmort
from mmort.cli import main
from mmort.demo import IMAGES
from mmort.detect import build, load
from mmort.detect.export.export_steps import DEFAULT_IMAGE
from mmort.detect.network import TorchNetwork
from mmort.predict import Preprocessing
from tests.detect.small_exports import PIPELINE
from tests.detect.text_cases import BERT, MODELS, config, fill

TEXTS = ["dog", "red light"]
SHALLOW = {part: {**MODELS["grounding_dino"][part], "num_layers": 1} for part in ("encoder", "decoder")}
"""One layer each: tests/exports/test_every_family.py has a file of several."""

OPEN = SHALLOW | {"num_queries": 40, "language_model": {**MODELS["grounding_dino"]["language_model"], "max_tokens": 30}}
"""More queries than tokens, which an open vocabulary needs."""


def test_export(tmp_path):
    paths = {
        name: str(tmp_path / name) for name in ("config.json", "model.pth", "texts.txt", "model.onnx", "vocab.txt")
    }
    settings = config(**SHALLOW) | {"test_pipeline": PIPELINE}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "vocab.txt").write_bytes((BERT / "vocab.txt").read_bytes())
    detector = build(settings)
    fill(detector)
    torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": ["of the training"]}}, paths["model.pth"])
    words = ["--texts", paths["texts.txt"], "--vocabulary", paths["vocab.txt"]]
    assert main(["export", paths["config.json"], paths["model.pth"], "--output", paths["model.onnx"], *words]) == 0
    file = mmort.Predictor(paths["model.onnx"], score_threshold=0)
    assert file.classes == tuple(TEXTS)
    expected = torch_predictor(paths["config.json"], paths["model.pth"], settings)(str(DEFAULT_IMAGE))
    actual = file(str(DEFAULT_IMAGE))
    assert len(actual) == 12
    assert np.allclose(np.sort(actual.scores), np.sort(expected.scores), atol=1e-4)


def torch_predictor(config_path, checkpoint, settings):
    """Return what predicts with torch for the same words."""
    network = TorchNetwork(load(config_path, checkpoint, texts=TEXTS), Preprocessing.from_config(settings))
    return mmort.Predictor(network, preprocessing=network.preprocessing, score_threshold=0)


def test_open_vocabulary(tmp_path):
    """A file that takes words, and has no operator of mmort, finds what torch does with them.

    tests/originals/test_open_vocabulary.py compares files that have mmort's operators.
    """
    settings = config(**OPEN) | {"test_pipeline": PIPELINE}
    settings["model"]["language_model"]["pad_to_max"] = True
    (tmp_path / "config.json").write_text(json.dumps(settings))
    detector = build(settings)
    fill(detector)
    torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": ["of the training"]}}, tmp_path / "model.pth")
    command = ["export", str(tmp_path / "config.json"), str(tmp_path / "model.pth"), "--portable=inlined"]
    assert main([*command, "--open-vocabulary", "--output", str(tmp_path / "open.onnx")]) == 0
    with_torch = torch_predictor(tmp_path / "config.json", tmp_path / "model.pth", settings)
    file = mmort.Predictor(tmp_path / "open.onnx", texts=TEXTS, score_threshold=0)
    for image in IMAGES[:2]:
        expected, actual = with_torch(image), file(image)
        assert np.array_equal(actual.labels, expected.labels)
        assert {*actual.names} <= {*TEXTS}
        assert len(actual) == 12
        assert np.allclose(actual.scores, expected.scores, atol=1e-4)
        assert np.allclose(actual.boxes, expected.boxes, atol=0.05)
    assert main([*command, "--open-vocabulary", "--output", str(tmp_path / "open.onnx")]) != 0  # it exists


def test_open_vocabulary_of_others(tmp_path, capsys):
    (tmp_path / "config.json").write_text(json.dumps(config("glip") | {"test_pipeline": PIPELINE}))
    torch.save({"state_dict": build(config("glip")).state_dict(), "meta": {}}, tmp_path / "model.pth")
    command = ["export", str(tmp_path / "config.json"), str(tmp_path / "model.pth"), "--open-vocabulary"]
    output = ["--output", str(tmp_path / "open.onnx")]
    assert main([*command, *output]) != 0
    assert "open_vocabulary must be False for GLIP" in capsys.readouterr().err
    for more, name in (
        (["--texts", "cat"], "texts"),
        (["--skip-postprocess"], "skip_postprocess"),
        (["--show"], "show"),
    ):
        assert main([*command, *output, *more]) != 0
        assert f"{name} must not be set with open_vocabulary" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.onnx"))
