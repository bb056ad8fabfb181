"""Captions are worded as MMDetection words them; what is no name is refused."""

import time

import pytest

from mmort.configs.captions import Prompt, cleaned, read_texts
from mmort.configs.layout import DetectorConfig


@pytest.mark.parametrize(
    ("texts", "names"),
    [
        ("cat . traffic light . person", ("cat", "traffic light", "person")),
        ("cat. dog.", ("cat", "dog")),
        ("cat", ("cat",)),
        (" . cat .  . U.S. flag", ("cat", "U.S", "flag")),
        (["cat ", "a. b"], ("cat", "a. b")),
    ],
)
def test_names(texts, names):
    assert Prompt.of(texts).names == names


@pytest.mark.parametrize("texts", ["cat . " * 16_385, ["cat"] * 16_385])
def test_more_names_than_any_data_set(texts):
    """Each of them took a run of the detector where the file takes them in chunks."""
    with pytest.raises(ValueError, match=r"^texts must have at most 16384 names, got 16385$"):
        Prompt.of(texts)


def test_caption_has_cleaned_names():
    caption = Prompt.of(["traffic_light", "bird (flying)", "a  b"]).caption()
    assert caption.text == "traffic light. bird . a b. "
    assert [caption.text[slice(*span)] for (span,) in caption.spans] == ["traffic light", "bird ", "a b"]


def test_caption_words_a_name_otherwise():
    prompts = {"cat": {"prefix": "a ", "suffix": " in the house"}, "traffic light": {"name": "red light"}}
    caption = Prompt.of_data_set(["cat", "traffic_light", "dog"], prompts).caption()
    assert caption.text == "a cat in the house. red light. dog. "
    assert [caption.text[slice(*span)] for (span,) in caption.spans] == ["cat", "red light", "dog"]


def test_chunks_have_all_names_and_their_wordings():
    prompt = Prompt.of_data_set(["a", "b", "c"], {"c": {"name": "d"}})
    assert [chunk.caption().text for chunk in prompt.chunks(2)] == ["a. b. ", "d. "]


@pytest.mark.parametrize("texts", ["", " . ", [], ["cat", " "], ["(cat)"], ["_"]])
def test_what_is_no_name_is_refused(texts):
    with pytest.raises(ValueError, match=r"^texts must "):
        Prompt.of(texts)


def test_parentheses_are_left_out_of_each_line():
    names = ["bird (a) b (c) d", "e) f (g", "h (i\nj) k", ")(l)"]
    assert [cleaned(name) for name in names] == ["bird d", "e) f (g", "h (i\nj) k", ")"]
    start = time.process_time()
    cleaned("(" * 300_000)
    assert time.process_time() - start < 1


def test_names_that_are_no_unicode_are_refused():
    for texts in ("cat . \ud800", ["cat", "\udcff"], {"text": "a \ud800", "tokens_positive": [[[0, 1]]]}):
        with pytest.raises(ValueError, match=r"^texts must be Unicode text without surrogates, got '.*\\ud"):
            Prompt.of(texts).caption()
    with pytest.raises(ValueError, match=r"^texts must be Unicode text without surrogates, got '\\ud800"):
        Prompt.of_data_set(["cat"], {"cat": {"prefix": "\ud800"}}).caption()


def test_names_that_are_no_text_are_refused():
    with pytest.raises(TypeError, match=r"^texts must be a caption or names, got \[1\]$"):
        Prompt.of([1])


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        ({"cat": {"sufix": " x"}}, r"caption_prompt of 'cat' with sufix \(did you mean suffix\?\) is not supported"),
        (["cat"], "caption_prompt must be a dict, got list"),
        ({"cat": {"suffix": 3}}, "suffix of caption_prompt of 'cat' must be a string, got 3"),
    ],
)
def test_wrong_wordings_are_refused(prompts, message):
    with pytest.raises(ValueError, match=f"^captions: {message}"):
        Prompt.of_data_set(["cat"], prompts)


def test_names_of_a_file(tmp_path):
    path = tmp_path / "classes.txt"
    path.write_text("cat\n\ntraffic light\n")
    assert read_texts(str(path)) == ["cat", "traffic light"]
    assert read_texts("cat . dog") == "cat . dog"
    with pytest.raises(OSError, match=r"no\.txt"):
        read_texts(str(tmp_path / "no.txt"))


def _config(*data_sets):
    data_set = data_sets[0] if len(data_sets) == 1 else {"type": "ConcatDataset", "datasets": list(data_sets)}
    return DetectorConfig({"model": {}, "test_dataloader": {"dataset": data_set}})


def test_classes_of_the_test_data_set():
    named = {"type": "CocoDataset", "metainfo": {"classes": ("cat", "dog")}, "caption_prompt": {"cat": {"name": "x"}}}
    assert _config(named).prompt.caption().text == "x. dog. "
    assert _config({"type": "RepeatDataset", "dataset": named}).prompt.names == ("cat", "dog")
    assert len(_config({"type": "mmdet.CocoDataset"}).prompt.names) == 80
    assert _config({"type": "CocoDataset", "metainfo": {"classes": "cat"}}).prompt.names == ("cat",)


@pytest.mark.parametrize(
    ("data_sets", "message"),
    [
        ([{"type": "LVISV1Dataset"}], r"texts must be set \(--texts\): .* a LVISV1Dataset, names no classes"),
        ([{"type": "CocoDataset"}] * 2, r"texts must be set \(--texts\): the config has 2 test data sets"),
        ([{"type": "CocoDataset", "metainfo": {"classes": [1]}}], r"must be names, got \[1\]"),
    ],
)
def test_data_sets_without_classes(data_sets, message):
    with pytest.raises(ValueError, match=message):
        _ = _config(*data_sets).prompt
