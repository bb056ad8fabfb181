"""Text recognitions exported from MMOCR's own code: texts and word accuracies are MMOCR's."""

import json

import numpy as np
import pytest
import torch

from mmort import Predictor
from mmort.cli import main
from mmort.original import export
from mmort.predict import RecognizedText
from tests.originals_mmocr import original, words

pytestmark = pytest.mark.filterwarnings("ignore")  # of MMOCR and what it imports


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    words.write(folder / "train", 120, seed=1)
    words.write(folder / "test", 40, seed=2)
    return folder


@pytest.fixture(scope="module")
def trained(tmp_path_factory, images):
    """Return the checkpoint and MMOCR's model of a text recognition that was trained on digits."""
    folder = tmp_path_factory.mktemp("trained")
    model, _ = original.train(words.config(folder, images / "train"), (64, 32), steps=700)
    original.save(model, folder / "digits.pth")
    return folder / "digits.pth", model


def same_texts(file, model, config):
    """Check that texts and probabilities are MMOCR's; return MMOCR's figures."""
    samples, paths, figures = original.results(model, original.Config.fromfile(config))
    for result, sample in zip(Predictor(file).predict(paths, batch_size=8), samples, strict=True):
        assert isinstance(result, RecognizedText)
        assert result.text == sample.pred_text.item
        np.testing.assert_allclose(result.character_scores, sample.pred_text.score, rtol=1e-4, atol=1e-6)
    return figures


def test_a_trained_recognition(trained, images, tmp_path, capsys):
    checkpoint, model = trained
    config, file = words.config(tmp_path, images / "test"), tmp_path / "digits.onnx"
    assert main(["export", str(config), str(checkpoint), "--original", "--output", str(file)]) == 0
    printed = capsys.readouterr().out
    assert "building the model with MMOCR's own code" in printed
    assert "for inputs of a height of 32 and all widths" in printed
    assert "names classes" not in printed
    figures = same_texts(file, model, config)
    assert figures["recog/word_acc"] > 0.7  # it has learnt to read: one that has not is at 0
    command = ["test", str(config), str(file), "--eval", "word_acc", "--metrics-json", str(tmp_path / "f.json")]
    assert main(command) == 0
    mine = json.loads((tmp_path / "f.json").read_text())
    assert {f"recog/{name}": round(value, 4) for name, value in mine.items()} == figures
    capsys.readouterr()
    assert main(["predict", str(file), str(images / "test" / "words" / "000.png"), "--json"]) == 0
    truth = json.loads((images / "test" / "words.json").read_text())["data_list"][0]["instances"][0]["text"]
    assert json.loads(capsys.readouterr().out)["text"] == truth
    metadata = Predictor(file).network.contract.metadata.recognition
    assert (metadata.decoding, metadata.padding, metadata.ignored) == ("ctc", 10, (10,))
    assert metadata.dictionary == (*words.DICTIONARY, "<PAD>")


def test_padded_images(images, tmp_path):
    """The steps of the padding are no characters, although the network has some there."""
    config, file = words.config(tmp_path, images / "test", resize="padded"), tmp_path / "x.onnx"
    model, settings = original.build(config)
    original.save(model, tmp_path / "x.pth")
    export(config, tmp_path / "x.pth", file, progress=lambda line: None)
    assert Predictor(file).network.input_shape == (None, 32, 128)
    same_texts(file, model, config)
    samples, _, _ = original.results(model, settings)
    whole = []
    for sample in original.dataset_of(settings):
        data = model.data_preprocessor(original.pseudo_collate([sample]), False)
        data["data_samples"][0].set_metainfo({"valid_ratio": 1.0})
        with torch.no_grad():
            whole.append(model.predict(**data)[0].pred_text.item)
    assert whole != [sample.pred_text.item for sample in samples]


@pytest.mark.parametrize(
    ("network", "resize", "further"),
    [
        ("CTC", "one size", {"color": "grayscale"}),
        ("CTC", "any width", {"recurrent": True, "color": "grayscale", "more": ", with_unknown=True"}),
        ("SVTR", "one size", {}),
        ("ASTER", "one size", {"more": ", with_padding=True, with_unknown=True"}),
        ("ABINet", "one size", {"more": ", same_start_end=True, with_padding=False"}),
    ],
)
def test_networks(images, tmp_path, network, resize, further):
    """With random weights: each is proven, and its texts are MMOCR's."""
    config = words.config(tmp_path, images / "test", network=network, resize=resize, **further)
    model, _ = original.build(config)
    original.save(model, tmp_path / "x.pth")
    export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)
    same_texts(tmp_path / "x.onnx", model, config)


def test_what_the_original_reads_of_images(images, tmp_path):
    """A network that asks how wide an image is without its padding has no file, as that would be a constant."""
    config = words.config(tmp_path, images / "test", network="SAR", resize="padded")
    original.save(original.build(config)[0], tmp_path / "x.pth")
    with pytest.raises(ValueError, match="the original reads data_samples, the annotations and meta information"):
        export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)
    assert not (tmp_path / "x.onnx").exists()


def test_other_postprocessors_are_refused(images, tmp_path):
    config = words.config(tmp_path, images / "test")
    config.write_text(config.read_text().replace("CTCPostProcessor", "BeamSearch"))
    base = original.registry.MODELS.get("CTCPostProcessor")
    original.registry.MODELS.register_module("BeamSearch", module=type("BeamSearch", (base,), {}), force=True)
    original.save(original.build(config)[0], tmp_path / "x.pth")
    with pytest.raises(ValueError, match=r"must be one of CTCPostProcessor, AttentionPostprocessor, got BeamSearch"):
        export(config, tmp_path / "x.pth", tmp_path / "x.onnx", progress=lambda line: None)
