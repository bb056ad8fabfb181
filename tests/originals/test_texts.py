"""Captions, tokens and those of each name are MMDetection's."""

from pathlib import Path

import pytest

from mmort.configs.captions import Prompt
from mmort.detect.parts.tokens import Tokenizer
from tests.originals.cases import CASES
from tests.originals.cases.texts import BERT
from tests.originals.original import Original

LISTS = [
    ["cat", "traffic light"],
    ["Cat_with hat (black)", "  man ", "a  b", "dog.house", "what?", "(a man"],
    ["éclair", "ÀÉ", "İ", "ﬁsh", "ß"],
    ["猫", "犬 と 猫", "кошка", "קוף", "cat\u200bdog", "a\u0301"],
    ["[SEP]", "a [CLS] b", "[MASK]", "##s", "[UNK]"],
    ["x" * 120, "cat" * 40, "1234567890", "a/b:c'd-e_f", "😀 cat", "cat😀", "\u00a0dog"],
    ["...", "cat...", "...cat", "\tcat\ndog"],
]


@pytest.fixture(scope="module")
def original():
    return Original(CASES["grounding_dino"].config()).model


@pytest.mark.parametrize("names", LISTS)
def test_lists(original, names):
    tokenized, text, spans, _ = original.get_tokens_and_prompts([name.strip() for name in names])
    of_labels, _ = original.get_positive_map(tokenized, spans)
    caption = Prompt.of(names).caption()
    assert caption.text == text
    tokens = Tokenizer(Path(BERT, "vocab.txt"))(caption)
    assert list(tokens.ids) == tokenized.input_ids[0].tolist()
    assert [list(positions) for positions in tokens.of_names] == list(of_labels.values())


@pytest.mark.parametrize("text", ["cat . traffic light . person", "cat. dog. ", "cat", " . cat . .dog.  man ."])
def test_captions(original, text):
    """MMDetection keeps the blanks around names, which are no tokens."""
    tokenized, _, spans, entities = original.get_tokens_and_prompts(text, custom_entities=True)
    of_labels, _ = original.get_positive_map(tokenized, spans)
    prompt = Prompt.of(text)
    assert list(prompt.names) == [name.strip() for name in entities]
    tokens = Tokenizer(Path(BERT, "vocab.txt"))(prompt.caption())
    assert list(tokens.ids) == tokenized.input_ids[0].tolist()
    assert [list(positions) for positions in tokens.of_names] == list(of_labels.values())


def test_wordings(original):
    names, prompts = ["cat", "traffic light", "dog"], {"cat": {"suffix": " x"}, "dog": {"prefix": "a ", "name": "man"}}
    _, text, spans, _ = original.get_tokens_and_prompts(names, True, prompts)
    caption = Prompt.of_data_set(names, prompts).caption()
    assert (caption.text, [[list(span)] for span in caption.spans]) == (text, spans)
