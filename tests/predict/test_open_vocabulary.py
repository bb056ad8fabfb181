"""Words at run time: a detector's file and that of its text encoder."""

import json
import pickle
import sys
import time

import numpy as np
import onnx
import pytest

from mmort import Predictor
from mmort.cli import main
from mmort.predict import OnnxRuntime, write_image
from tests.predict import tiny_detector
from tests.predict.tiny_open_vocabulary import VOCABULARY, save_detector, save_encoder

IMAGE = np.zeros((32, 32, 3), np.uint8)


@pytest.fixture
def file(tmp_path):
    save_detector(tmp_path / "detector.onnx")
    save_encoder(tmp_path / "detector.texts.onnx")
    return tmp_path / "detector.onnx"


def scores(*names):
    """Return the score of each name, a list of its tokens."""
    return [np.mean([VOCABULARY.index(token) / 1e3 + index for index, token in enumerate(name)]) for name in names]


def test_texts(file):
    predict = Predictor(file, texts="cat . traffic lights", score_threshold=0)
    assert predict.classes == ("cat", "traffic lights")
    detections = predict(IMAGE)
    assert detections.names == ("traffic lights", "cat")
    assert detections.labels.tolist() == [1, 0]
    assert np.allclose(detections.scores, scores(["traffic", "light", "##s"], ["cat"]))
    again = pickle.loads(pickle.dumps(predict))
    assert again.classes == predict.classes
    assert np.array_equal(again(IMAGE).scores, detections.scores)


def test_other_texts(file):
    predict = Predictor(file, texts=["cat"], score_threshold=0)
    other = predict.with_texts(["dog", "a CAT"])
    assert other.network.session is predict.network.session
    assert (predict.classes, other.classes) == (("cat",), ("dog", "a CAT"))
    assert np.allclose(other(IMAGE).scores, scores(["a", "cat"], ["dog"]))
    assert np.allclose(predict(IMAGE).scores, scores(["cat"]))


def test_chunks(file):
    save_encoder(file.with_name("detector.texts.onnx"), chunked_size=2)
    names = ["cat", "red light", "dog", "man", "a tree"]
    detections = Predictor(file, texts=names, score_threshold=0)(IMAGE)
    expected = dict(zip(names, scores(["cat"], ["red", "light"], ["dog"], ["man"], ["a", "tree"]), strict=True))
    assert detections.names == tuple(sorted(names, key=lambda name: -expected[name]))
    assert np.allclose(detections.scores, [expected[name] for name in detections.names])
    assert [names[label] for label in detections.labels] == list(detections.names)


CHUNKED = ["cat", "red light", "dog", "man", "a tree"]


def points(predict):
    """Return the boxes that a detector of `tiny_open_vocabulary` finds in two images, (2, names, 4)."""
    return np.stack([detections.boxes for detections in predict([IMAGE, IMAGE])])


@pytest.fixture
def chunked(file):
    save_encoder(file.with_name("detector.texts.onnx"), chunked_size=2)
    return Predictor(file, texts=CHUNKED, score_threshold=0)


def test_what_words_do_not_reach_runs_once(chunked):
    for predict in (chunked, pickle.loads(pickle.dumps(chunked)), chunked.with_texts(["cat"])):
        first, second = points(predict), points(predict)
        for boxes in (first, second):
            assert boxes.shape == (2, len(predict.classes), 4)
            assert (boxes == boxes[:, :1, :1]).all()
        assert (first != second).any()


@pytest.mark.parametrize("settings", [{"io_binding": True}, {}], ids=["io_binding", "without_onnx"])
def test_chunks_of_a_whole_file(file, chunked, settings, monkeypatch):
    if not settings:
        monkeypatch.setitem(sys.modules, "onnx", None)
    whole = Predictor(OnnxRuntime(file, **settings), texts=CHUNKED, score_threshold=0)
    boxes = points(whole)
    assert (boxes != boxes[:, :1, :1]).any()
    expected, actual = chunked(IMAGE), whole(IMAGE)
    assert actual.names == expected.names
    assert np.array_equal(actual.scores, expected.scores)


def test_padding(file):
    save_encoder(file.with_name("detector.texts.onnx"), pad_to_max=True)
    (words,) = Predictor(file, texts="cat", score_threshold=0).network._words
    ids = [VOCABULARY.index(token) for token in ("[CLS]", "cat", ".", "[SEP]", *["[PAD]"] * 8)]
    positions = [0, 0, 1, *[0] * 9]
    assert np.allclose(words.feeds["text"].ravel(), np.array(ids) / 1e3 + positions)
    assert words.feeds["text_positions"].tolist() == [positions]
    assert words.feeds["text_shares"].tolist() == [[0], [1], [0], [0]]


@pytest.mark.parametrize(
    ("texts", "error", "message"),
    [
        ("", ValueError, "texts must have at least one name, got none"),
        (["cat", " "], ValueError, "texts must be names, got '', of which a caption would have nothing"),
        ("\x07", ValueError, "texts must be names of which the vocabulary has tokens, got '\\x07'"),
        ("\ud800", ValueError, "texts must be Unicode text without surrogates, got '\\ud800"),
        (
            "cat . " * 5000,
            ValueError,
            "texts must have at most 12 tokens together (max_tokens of language_model), got 5000 names",
        ),
        (["cat"] * 80_000, ValueError, "texts must have at most 16384 names, got 80000"),
        ("c" * 2**22, ValueError, "texts must have at most 1200 characters together, got 4194306"),
        ("cat " * 5, ValueError, "texts must have names of less than 5 tokens, got one of 5"),
        (3, TypeError, "texts must be a caption or names, got 3"),
        ([3], TypeError, "texts must be a caption or names, got [3]"),
    ],
)
def test_texts_that_are_refused(file, texts, error, message):
    begin = time.process_time()
    with pytest.raises(error) as caught:
        Predictor(file, texts=texts, score_threshold=0)
    assert str(caught.value).startswith(message)
    assert time.process_time() - begin < 2


def test_without_texts(file):
    with pytest.raises(ValueError, match=r"detector\.onnx: texts must be set, .*: --texts 'cat \. traffic light', or"):
        Predictor(file, score_threshold=0)
    with pytest.raises(ValueError, match="texts must be set"):
        OnnxRuntime(file)(np.zeros((1, 3, 32, 32), np.float32), np.array([[32, 32]]))


def test_files_that_do_not_belong_together(file):
    encoder = file.with_name("detector.texts.onnx")
    save_encoder(encoder, digest="two")
    with pytest.raises(ValueError, match=r"detector\.texts\.onnx: the text encoder of another detector"):
        Predictor(file, texts="cat", score_threshold=0)
    encoder.unlink()
    with pytest.raises(FileNotFoundError, match=r"text encoder does not exist: .*detector\.texts\.onnx"):
        Predictor(file, texts="cat", score_threshold=0)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"encoder": "../detector.texts.onnx", "digest": "one"}, "texts.encoder must be the name of an ONNX file, got"),
        ({"encoder": "detector.texts.onnx", "digest": 1}, "texts.digest must be a text, got 1"),
        ({"encoder": "detector.texts.onnx"}, "texts must have digest"),
        ([], "texts must be an object"),
    ],
)
def test_metadata_of_detectors(file, texts, message):
    save_detector(file, texts=texts)
    with pytest.raises(ValueError, match=message):
        Predictor(file, texts="cat", score_threshold=0)


def test_metadata_without_inputs(tmp_path):
    texts = json.dumps({"encoder": "detector.texts.onnx", "digest": "one"})
    tiny_detector.write(tmp_path / "tiny.onnx", metadata={**tiny_detector.METADATA, "texts": texts})
    with pytest.raises(ValueError, match="a detector whose metadata has texts must have the input text"):
        Predictor(tmp_path / "tiny.onnx", texts="cat", score_threshold=0)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer", "[" * 100_000, "maximum recursion depth"),
        ("tokenizer", "{}", "it has no limits"),
        ("other", "", "it has no tokenizer"),
    ],
)
def test_tokenizers_that_cannot_be_read(file, key, value, message):
    path = file.with_name("detector.texts.onnx")
    model = onnx.load(path)
    (entry,) = (entry for entry in model.metadata_props if entry.key == "tokenizer")
    entry.key, entry.value = key, value
    onnx.save(model, path)
    with pytest.raises(ValueError, match=f"detector.texts.onnx: metadata that mmort cannot read: {message}"):
        Predictor(file, texts="cat", score_threshold=0)


@pytest.mark.parametrize("limits", [{"max_tokens": "12"}, {"pad_to_max": 1}, {"sub_sentence_ends": [1]}])
def test_metadata_of_encoders(file, limits):
    save_encoder(file.with_name("detector.texts.onnx"), **limits)
    with pytest.raises(
        ValueError, match=f"detector.texts.onnx: metadata that mmort cannot read: .*{next(iter(limits))} of limits"
    ):
        Predictor(file, texts="cat", score_threshold=0)


def test_command(file, tmp_path, capsys):
    write_image(tmp_path / "image.png", IMAGE)
    command = ["predict", str(file), str(tmp_path / "image.png"), "--score-thr", "0.01"]
    (tmp_path / "names.txt").write_text("cat\ntraffic light\n")
    for texts in ("cat . traffic light", str(tmp_path / "names.txt")):
        assert main([*command, "--texts", texts]) == 0
        assert "traffic light 0.59, cat 0.09" in capsys.readouterr().out
    assert main(command) != 0
    assert "texts must be set" in capsys.readouterr().err
    output = ["--output", str(tmp_path / "found")]
    assert main([*command, *output, "--texts", "cat"]) == 0
    assert main([*command, *output, "--texts", "dog"]) != 0
