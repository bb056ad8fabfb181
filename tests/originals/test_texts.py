"""Captions, tokens and those of each name are MMDetection's."""

from pathlib import Path

import pytest

from mmort import Predictor
from mmort.configs.captions import Prompt
from mmort.configs.tokens import Tokenizer
from mmort.detect.network import load_network
from tests.originals.candidate import _image_result
from tests.originals.cases import CASES
from tests.originals.cases.texts import BERT
from tests.originals.compare import filled, save
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.original import Original
from tests.originals.results import BatchResult

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
    tokens = Tokenizer.read(Path(BERT, "vocab.txt"))(caption)
    assert list(tokens.ids) == tokenized.input_ids[0].tolist()
    assert [list(positions) for positions in tokens.of_names] == list(of_labels.values())


@pytest.mark.parametrize("text", ["cat . traffic light . person", "cat. dog. ", "cat", " . cat . .dog.  man ."])
def test_captions(original, text):
    """MMDetection keeps the blanks around names, which are no tokens."""
    tokenized, _, spans, entities = original.get_tokens_and_prompts(text, custom_entities=True)
    of_labels, _ = original.get_positive_map(tokenized, spans)
    prompt = Prompt.of(text)
    assert list(prompt.names) == [name.strip() for name in entities]
    tokens = Tokenizer.read(Path(BERT, "vocab.txt"))(prompt.caption())
    assert list(tokens.ids) == tokenized.input_ids[0].tolist()
    assert [list(positions) for positions in tokens.of_names] == list(of_labels.values())


def test_wordings(original):
    names, prompts = ["cat", "traffic light", "dog"], {"cat": {"suffix": " x"}, "dog": {"prefix": "a ", "name": "man"}}
    _, text, spans, _ = original.get_tokens_and_prompts(names, True, prompts)
    caption = Prompt.of_data_set(names, prompts).caption()
    assert (caption.text, [list(map(list, spans)) for spans in caption.spans]) == (text, spans)


PHRASES = [
    ("a cat on a red car", [[[0, 5]], [[11, 14], [15, 18]], [[2, 5], [11, 14]]]),
    ("A man (in red) with  two dogs.", [[[0, 5]], [[6, 14]], [[19, 29]], [[20, 26]]]),
]


@pytest.mark.parametrize(("text", "spans"), PHRASES)
@pytest.mark.parametrize("name", ["grounding_dino", "glip", "glip_chunks"])
def test_phrases(name, text, spans, tmp_path):
    """What MMDetection finds of phrases of a text."""
    case, texts = CASES[name], {"text": text, "tokens_positive": spans}
    original, _ = filled(Original, case, case.config())
    original.pipeline = _with_texts(original.pipeline, texts)
    expected = original.run(image_files()[:1])
    require_substance([expected], case.classes)
    network = load_network(case.config(), save(original, tmp_path), texts=texts)
    names = original.model.get_tokens_positive_and_prompts(text, tokens_positive=spans)[3]
    assert network.classes == tuple(names)
    prepared = [network.preprocessing(path) for path in image_files()[:1]]
    input, _ = network.preprocessing.batch(prepared)
    detections = Predictor(network, preprocessing=network.preprocessing, score_threshold=0).run(prepared)
    assert not differences(BatchResult(input, list(map(_image_result, detections))), expected)


def _with_texts(pipeline, texts):
    """Return a test pipeline whose data samples have a text and its phrases."""

    def call(results):
        item = pipeline(results)
        item["data_samples"].set_metainfo({**texts, "custom_entities": False})
        return item

    return call
