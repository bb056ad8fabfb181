"""Texts of a recognition's probabilities: cases written out by hand, by the definition of each decoding."""

import json

import numpy as np
import onnx
import onnx.helper as oh
import pytest

from mmort import Predictor
from mmort.cli import main
from mmort.contract import TEXT_RECOGNITION, LineHeight, Metadata, Preprocessing, RecognitionFormat, write_entries
from mmort.evaluate import WordDataset, evaluate
from mmort.images import write_image
from mmort.predict import RecognizedText
from mmort.predict.recognition import TextPostprocessing

SIGNS = ("a", "b", "<EOS>", "<PAD>")
PREPARE = Preprocessing(size=(8, 4), keep_ratio=False)


def text_of(steps, format, width=8, padded=8):
    """Return the text of the indices of steps, for an image that is so wide in a padded one."""
    probabilities = np.full((len(steps), 4), 0.1, np.float32)
    probabilities[np.arange(len(steps)), steps] = np.linspace(0.5, 0.9, len(steps), dtype=np.float32)
    prepare = Preprocessing(line=LineHeight(4), padding=None)
    image = prepare(np.zeros((4, width, 3), np.uint8))
    object.__setattr__(image, "pad_shape", (4, padded))
    result = TextPostprocessing((), 0.3, format)(image, (4, padded), [probabilities], None)
    return result.text, result.character_scores.tolist()


@pytest.mark.parametrize(
    ("steps", "text", "kept"),
    [
        ([0, 0, 1, 1, 1], "ab", [0, 2]),
        ([0, 3, 0, 1], "aab", [0, 2, 3]),
        ([3, 3, 3], "", []),
        ([0, 2, 0], "aa", [0, 2]),  # a sign that is left out ends a row of equal ones, too
        ([], "", []),
    ],
)
def test_rows_of_equal_characters_are_one(steps, text, kept):
    format = RecognitionFormat("ctc", SIGNS, padding=3, ignored=(3, 2))
    scores = np.linspace(0.5, 0.9, len(steps), dtype=np.float32)
    assert text_of(steps, format) == (text, scores[kept].tolist())


@pytest.mark.parametrize(
    ("width", "text"), [(8, "abab"), (7, "abab"), (6, "aba"), (4, "ab"), (3, "ab"), (2, "a"), (1, "a")]
)
def test_steps_of_the_padding_are_left_out(width, text):
    assert text_of([0, 1, 0, 1], RecognitionFormat("ctc", SIGNS, padding=3), width)[0] == text
    whole = RecognitionFormat("attention", SIGNS, end=2)
    assert text_of([0, 1, 0, 1], whole, width)[0] == "abab"


@pytest.mark.parametrize(
    ("steps", "ignored", "text"),
    [
        ([0, 0, 2, 1], (), "aa"),
        ([0, 3, 1, 1], (3,), "abb"),
        ([0, 3, 1, 1], (), "a<PAD>bb"),
        ([0, 2, 1], (2,), "ab"),  # an end that is left out is none
        ([2, 1], (), ""),
    ],
)
def test_characters_up_to_the_end(steps, ignored, text):
    assert text_of(steps, RecognitionFormat("attention", SIGNS, end=2, ignored=ignored))[0] == text


def test_another_number_of_characters():
    with pytest.raises(ValueError, match="the model has 4 characters, but its dictionary 3"):
        text_of([0], RecognitionFormat("ctc", SIGNS[:3]))


@pytest.mark.parametrize(
    ("line", "image", "size"),
    [
        (LineHeight(32), (101, 31), (105, 32)),  # 104.3, rounded up
        (LineHeight(32, 32), (10, 30), (32, 32)),
        (LineHeight(32, 32, 64), (100, 30), (64, 32)),
        (LineHeight(32, width_divisor=16), (104, 32), (96, 32)),  # six and a half: to the even number
        (LineHeight(32, width_divisor=16), (120, 32), (128, 32)),
    ],
)
def test_images_of_one_height(line, image, size):
    assert Preprocessing(line=line).resized_size(*image) == size


def test_images_that_cannot_have_the_height():
    with pytest.raises(ValueError, match="2 x 32 pixels is too narrow"):
        LineHeight(32, width_divisor=16).size(2, 32)
    with pytest.raises(ValueError, match="60000 x 1 pixels is too wide"):
        LineHeight(64).size(60_000, 1)
    with pytest.raises(ValueError, match="max_width must be at least its min_width"):
        LineHeight(32, 40, 39)
    with pytest.raises(ValueError, match="line must be without size"):
        Preprocessing(line=LineHeight(32), size=(3, 4))


@pytest.fixture
def file(tmp_path):
    """Write a file whose characters are read off the columns: dark ones are "a", light ones are "b"."""
    format = RecognitionFormat("ctc", ("a", "b", " "), padding=2, ignored=(2,))
    nodes = [
        oh.make_node("ReduceMean", ["input"], ["mean"], axes=[1, 2], keepdims=0),
        oh.make_node("Div", ["mean", "levels"], ["light"]),
        oh.make_node("Sub", ["one", "light"], ["dark"]),
        oh.make_node("Mul", ["light", "zero"], ["blank"]),
        oh.make_node("Unsqueeze", ["dark", "axis"], ["a"]),
        oh.make_node("Unsqueeze", ["light", "axis"], ["b"]),
        oh.make_node("Unsqueeze", ["blank", "axis"], ["c"]),
        oh.make_node("Concat", ["a", "b", "c"], ["characters"], axis=2),
    ]
    numbers = {"levels": np.float32(255), "one": np.float32(1), "zero": np.float32(0), "axis": np.array([2])}
    graph = oh.make_graph(
        nodes,
        "columns",
        [oh.make_tensor_value_info("input", 1, ["batch", 3, 4, "width"])],
        [oh.make_tensor_value_info("characters", 1, ["batch", "width", 3])],
        [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in numbers.items()],
    )
    model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
    metadata = Metadata(task=TEXT_RECOGNITION.name, preprocessing=Preprocessing(line=LineHeight(4)), recognition=format)
    oh.set_model_props(model, write_entries(metadata))
    onnx.save(model, tmp_path / "columns.onnx")
    for name, levels in (("ab", [0, 0, 255]), ("ba", [255, 51]), ("b", [255] * 5)):
        write_image(tmp_path / f"{name}.png", np.tile(np.array(levels, np.uint8)[None, :, None], (4, 1, 3)))
    return tmp_path / "columns.onnx"


def test_a_file(file, capsys):
    predictor, folder = Predictor(file), file.parent
    paths = [folder / f"{name}.png" for name in ("ab", "ba", "b")]
    results = list(predictor.predict(paths, batch_size=3))  # of three widths, of which none is padded
    assert [result.text for result in results] == ["ab", "ba", "b"]
    assert repr(results[1]) == "<RecognizedText: 'ba' 0.90>"
    assert results[1].to_dict() == {"image_size": [4, 2], "text": "ba", "score": 0.9}
    assert main(["predict", str(file), str(paths[1]), "--show-dir", str(folder / "shown")]) == 0
    assert main(["predict", str(file), str(paths[1])]) == 0
    assert "ba.png: 'ba' 0.90" in capsys.readouterr().out
    assert results[1].plot(np.zeros((4, 2, 3), np.uint8)).shape[1] == 2
    with pytest.raises(ValueError, match="but the text is for"):
        results[1].plot(np.zeros((5, 2, 3), np.uint8))


def test_metadata_that_is_wrong(file):
    model = onnx.load(file)
    entry = next(entry for entry in model.metadata_props if entry.key == "recognition")
    right = json.loads(entry.value)
    for change, problem in (
        ({"end": 3}, "must be indices of the dictionary, which has 3 characters"),
        ({"decoding": "beam"}, "recognition.decoding must be 'ctc' or 'attention'"),
        ({"ignored": [True]}, "recognition.ignored must be a list"),
    ):
        entry.value = json.dumps(right | change)
        onnx.save(model, file)
        with pytest.raises(ValueError, match=problem):
            Predictor(file)
    model.metadata_props.remove(entry)
    onnx.save(model, file)
    with pytest.raises(ValueError, match="has no recognition in its metadata"):
        Predictor(file)


def test_word_accuracy(file):
    truths = {"ab": "AB", "ba": "b-a", "b": "a"}
    entries = [{"img_path": f"{name}.png", "instances": [{"text": text}]} for name, text in truths.items()]
    listed = file.parent / "words.json"
    listed.write_text(json.dumps({"metainfo": {}, "data_list": entries}))
    dataset = WordDataset(file.parent, listed)
    modes = ["exact", "ignore_case", "ignore_case_symbol"]
    figures = evaluate(dataset, Predictor(file, score_threshold=0), ["word_acc"], progress=False, mode=modes).figures
    assert figures == {
        "word_acc": 0,
        "word_acc_ignore_case": pytest.approx(1 / 3),
        "word_acc_ignore_case_symbol": pytest.approx(2 / 3),
    }
    with pytest.raises(ValueError, match="mode must be of exact"):
        dataset.check(["word_acc"], {"mode": "nearly"})
    with pytest.raises(ValueError, match="must be a regular expression"):
        dataset.check(["word_acc"], {"valid_symbol": "["})
    for wrong in ({"data_list": [{}]}, {"data_list": [{"img_path": "x", "instances": [3]}]}, []):
        listed.write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match="is not a JSON file with a data_list"):
            WordDataset(file.parent, listed)
    listed.write_text(json.dumps({"data_list": [{"img_path": "x.png", "instances": []}]}))
    with pytest.raises(ValueError, match=r"x\.png must have one instance with a text"):
        WordDataset(file.parent, listed)
    assert isinstance(Predictor(file)(file.parent / "b.png"), RecognizedText)
