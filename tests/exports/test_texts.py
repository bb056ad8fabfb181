"""Files of detectors of what words describe, by the command: words are constants, and the classes of the file.

`.ci/run exports` runs this; the suite does not, as an export takes most of a minute.
"""

import json

import numpy as np
import pytest
import torch

import mmort
from mmort.cli import main
from mmort.detect import build, load
from mmort.detect.export.pipeline import DEFAULT_IMAGE
from mmort.detect.network import TorchNetwork
from mmort.predict import Preprocessing
from tests.detect.text_cases import BERT, config, fill
from tests.tools.small_exports import PIPELINE

TEXTS = ["dog", "red light"]


@pytest.mark.parametrize("form", [[], ["--portable"]], ids=["mmcv", "portable"])
def test_export(form, tmp_path):
    paths = {
        name: str(tmp_path / name) for name in ("config.json", "model.pth", "texts.txt", "model.onnx", "vocab.txt")
    }
    settings = config() | {"test_pipeline": PIPELINE}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    (tmp_path / "vocab.txt").write_bytes((BERT / "vocab.txt").read_bytes())
    detector = build(settings)
    fill(detector)
    torch.save({"state_dict": detector.state_dict(), "meta": {"CLASSES": ["of the training"]}}, paths["model.pth"])
    words = ["--texts", paths["texts.txt"], "--vocabulary", paths["vocab.txt"]]
    assert (
        main(["export", paths["config.json"], paths["model.pth"], "--output", paths["model.onnx"], *words, *form]) == 0
    )
    file = mmort.Predictor(paths["model.onnx"])
    assert file.classes == tuple(TEXTS)
    network = TorchNetwork(
        load(paths["config.json"], paths["model.pth"], texts=TEXTS), Preprocessing.from_config(settings)
    )
    expected = mmort.Predictor(network, preprocessing=network.preprocessing)(str(DEFAULT_IMAGE))
    actual = file(str(DEFAULT_IMAGE))
    assert len(actual) == 12
    assert np.allclose(np.sort(actual.scores), np.sort(expected.scores), atol=1e-4)
