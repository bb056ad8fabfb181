"""Words of detectors with a language model: what is looked for, and what is refused."""

import json
import shutil

import pytest
import torch

from mmort.configs.captions import Caption, Prompt, read_texts
from mmort.configs.tokens import Tokenizer, bert_inputs
from mmort.detect import build
from mmort.detect.loading import load_trained
from mmort.detect.network import load_network
from tests.detect import query_cases, text_cases
from tests.detect.text_cases import BERT, TEXTS, config, fill


@pytest.fixture(scope="module")
def detector():
    detector = build(config())
    fill(detector)
    return detector


@pytest.fixture
def folder(tmp_path):
    """Return a language model's folder that may be changed."""
    return shutil.copytree(BERT, tmp_path / "bert")


def detect(detector, texts):
    detector.set_texts(Prompt.of(texts))
    with torch.inference_mode():
        return detector(*query_cases.batch())


def test_names_become_classes(detector):
    dets, labels = detect(detector, TEXTS)
    assert detector.classes == ("cat", "traffic light", "a man with two dogs")
    assert dets.shape == (2, 12, 5)
    assert 1 < len(set(labels.flatten().tolist()) & {0, 1, 2}) == len(set(labels.flatten().tolist()))


def test_words_decide_what_is_found(detector):
    first, second = detect(detector, "cat . dog"), detect(detector, "cat . bus")
    assert not torch.allclose(first[0], second[0], atol=1e-3)
    assert torch.equal(detect(detector, "cat . dog")[0], first[0])
    assert torch.equal(detect(detector, [" CAT ", "dog"])[0], first[0])  # the vocabulary is of small letters


def open_detector(**entries):
    """Return a detector with more queries than its captions have tokens."""
    language_model = {**text_cases.MODELS["grounding_dino"]["language_model"], "max_tokens": 30, **entries}
    detector = build(config(num_queries=40, language_model=language_model))
    fill(detector)
    return detector


@pytest.mark.parametrize("pads", [False, True])
def test_words_as_arguments(pads):
    detector = open_detector(pad_to_max=pads)
    expected = detect(detector, "dog . red light")
    encoder = detector.text_encoder()
    (input,) = bert_inputs(Prompt.of("dog . red light"), encoder.language_model.tokenizer(), encoder.limits)
    assert input.ids.shape == (1, 30 if pads else 7)
    text = [part.float() if part.is_floating_point() else part for part in encoder.text(input)]
    detector.set_texts(Prompt.of("cat"))
    with torch.inference_mode():
        actual = detector(*query_cases.batch(), *text)
    assert all(map(torch.equal, actual, expected))


def test_mixed_precision_is_of_the_training(detector):
    """`use_autocast`, which MM-Grounding-DINO's configs have in a fork, changes no result."""
    mixed = build(config(use_autocast=True))
    fill(mixed)
    for expected, actual in zip(detect(detector, TEXTS), detect(mixed, TEXTS), strict=True):
        assert torch.equal(actual, expected)


def test_words_that_must_be_constants(detector):
    with pytest.raises(ValueError, match="num_queries of at least 257, because of max_tokens, got 12"):
        detector.text_encoder()
    detector = open_detector()
    detector.max_per_image = 41
    with pytest.raises(ValueError, match="num_queries of at least 41, because of max_per_img, got 40"):
        detector.text_encoder()
    with pytest.raises(ValueError, match="open_vocabulary must be False for GLIP, whose words are constants of its"):
        build(config("glip")).text_encoder()
    with pytest.raises(ValueError, match="open_vocabulary must be False for DINO, which has no language model"):
        build({"model": query_cases.MODELS["dino"]}).text_encoder()


def test_chunks_find_what_their_names_alone_do():
    detector = build(config(test_cfg={"max_per_img": 12, "chunked_size": 1}))
    fill(detector)
    dets, labels = detect(detector, "cat . dog")
    assert dets.shape == (2, 24, 5)
    assert (dets[:, 1:, 4] <= dets[:, :-1, 4]).all()
    for label, name in enumerate(("cat", "dog")):
        alone, _ = detect(detector, name)
        assert torch.equal(dets[labels == label].reshape(2, 12, 5), alone)


@pytest.mark.parametrize("name", ["grounding_dino", "glip"])
def test_chunks_share_the_features_of_images(name):
    detector = build(config(name, test_cfg={**text_cases.MODELS[name]["test_cfg"], "chunked_size": 1}))
    fill(detector)
    calls = []
    for part in (detector.backbone, detector.neck):
        part.register_forward_hook(lambda module, *_: calls.append(module))
    detect(detector, "cat . dog . red light")
    assert len(detector.words) == 3
    assert calls == [detector.backbone, detector.neck]


def test_words_change_what_glip_finds():
    detector = build(config("glip"))
    fill(detector)
    first, second = detect(detector, "cat . dog"), detect(detector, "cat . red light")
    assert detector.classes == ("cat", "red light")
    assert first[0].shape == (2, 4, 5)
    assert not torch.allclose(first[0], second[0], atol=1e-3)
    assert torch.equal(detect(detector, ["cat", "dog"])[0], first[0])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ({"feat_channels": 32}, "in_channels of bbox_head 'ATSSVLFusionHead' must be feat_channels, got 256 and 32"),
        ({"in_channels": 32, "feat_channels": 32}, "feat_channels of .* with early_fuse must be 256, got 32"),
        ({"lang_model_name": str(BERT)}, "the language model of bbox_head with early_fuse must have 768 channels, got"),
        ({"lang_model_name": str(BERT), "early_fuse": False}, "must have the same channels, got 768 and 32"),
    ],
)
def test_glip_whose_parts_do_not_fit(head, message):
    glip = text_cases.MODELS["glip"]
    with pytest.raises(ValueError, match=message):
        build(config("glip", bbox_head={**glip["bbox_head"], **head}))


def test_anchors_of_glip():
    head = text_cases.MODELS["glip"]["bbox_head"]
    anchors = {**head["anchor_generator"], "ratios": [0.5, 1.0]}
    with pytest.raises(ValueError, match="must have one anchor on each of 5 levels, got 2, 2, 2, 2, 2"):
        build(config("glip", bbox_head={**head, "anchor_generator": anchors}))


@pytest.mark.parametrize(("name", "needed"), [("glip", False), ("grounding_dino", True)])
def test_sub_sentences(name, needed):
    language_model = {**text_cases.MODELS[name]["language_model"], "use_sub_sentence_represent": not needed}
    with pytest.raises(ValueError, match=f"use_sub_sentence_represent of model.language_model must be {needed}"):
        build(config(name, language_model={"special_tokens_list": ["."], **language_model}))
    with pytest.raises(ValueError, match="with use_sub_sentence_represent must have special_tokens_list"):
        build(config(name, language_model={"type": "BertModel", "use_sub_sentence_represent": True}))


def test_tokens_of_names():
    tokens = Tokenizer.read(BERT / "vocab.txt")(Caption("Traffic  lights. ééx?", (((0, 15),), ((17, 20),))))
    vocabulary = (BERT / "vocab.txt").read_text().splitlines()
    texts = [vocabulary[index] for index in tokens.ids]
    assert texts == ["[CLS]", "traffic", "light", "##s", ".", "e", "##e", "##x", "?", "[SEP]"]
    assert tokens.of_names == ((1, 2, 3), (5, 6, 7))


def test_tokens_of_phrases():
    texts = {"text": "a cat, red car", "tokens_positive": [[[11, 14], [0, 1]], [[2, 5]]]}
    prompt = Prompt.of(texts)
    assert prompt.names == ("car / a", "cat")
    assert prompt.chunks(1) == (prompt,)
    tokens = Tokenizer.read(BERT / "vocab.txt")(prompt.caption(closed=False))
    assert len(tokens.ids) == 8  # with [CLS], the dot that is added, and [SEP]
    assert tokens.of_names == ((1, 5), (2,))


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"text": "cat"}, "captions: texts must have tokens_positive"),
        ({"text": "cat", "tokens_positive": -1}, "tokens_positive must be a list of spans for each label, got -1"),
        ({"text": "cat", "tokens_positive": [[0, 3]]}, r"tokens_positive must have \[begin, end\] .* got 0"),
        (
            {"text": "cat", "tokens_positive": [[[0, 4]]]},
            r"0 <= begin < end <= 3, the length of the text, got \[0, 4\]",
        ),
        ({"text": "cat", "tokens_positive": [[[2, 2]]]}, r"got \[2, 2\]"),
        ({"text": "cat", "tokens_positive": []}, "texts must have at least one name, got none"),
        ({"text": "a  b", "tokens_positive": [[[1, 3]]]}, "texts must be names, got '  '"),
        ({"text": "cat", "tokens_positive": [[]]}, "texts must be names, got ''"),
        ({"text": 3, "tokens_positive": [[[0, 1]]]}, "text of texts must be a string, got 3"),
        ({"text": "cat", "tokens_positive": [[[0, 3]]], "more": 1}, "more"),
    ],
)
def test_phrases_that_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        Prompt.of(texts)


@pytest.mark.parametrize(
    ("content", "message"), [("[1]", "must have text and tokens_positive, got a list"), ("{", "must be JSON: ")]
)
def test_files_of_phrases(tmp_path, content, message):
    phrases = {"text": "a cat", "tokens_positive": [[[0, 5]]]}
    (tmp_path / "phrases.json").write_text(json.dumps(phrases))
    assert read_texts(str(tmp_path / "phrases.json")) == phrases
    (tmp_path / "wrong.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        read_texts(str(tmp_path / "wrong.json"))


def test_case_matters_if_the_folder_says_so(folder):
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False}))
    tokenizer = Tokenizer.read(folder / "vocab.txt")
    assert tokenizer(Caption("CAT", (((0, 3),),))).ids[1] == tokenizer.id_of("[UNK]")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": 1}))
    with pytest.raises(ValueError, match=r"^vocabulary: do_lower_case of .* must be True or False, got 1"):
        Tokenizer.read(folder / "vocab.txt")
    for text in ("[" * 100_000, "9" * 5000, "{"):
        (folder / "tokenizer_config.json").write_text(text)
        with pytest.raises(ValueError, match=r"^vocabulary: .*tokenizer_config\.json must be JSON: "):
            Tokenizer.read(folder / "vocab.txt")


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("cat . " * 150, r"texts must have at most 256 tokens together \(max_tokens of language_model\), got 302"),
        ("cat " * 70, r"texts must have names of less than 64 tokens, got one of 70"),
        ("cat . \u0007", r"texts must be names of which the vocabulary has tokens, got '\\x07'"),
    ],
)
def test_texts_that_are_refused(detector, texts, message):
    with pytest.raises(ValueError, match=message):
        detector.set_texts(Prompt.of(texts))


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (299, r"at most 300 tokens together \(max_tokens of language_model\), got 301"),
        (255, r"at most 256 tokens together \(GLIP looks for no more\), got 257"),
        (289, r"at most 290 tokens together \(max_position_embeddings of language_model\), got 291"),
    ],
)
def test_texts_longer_than_glip_takes(tmp_path, names, message):
    folder = shutil.copytree(f"{BERT}_768", tmp_path / "bert")
    sizes = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**sizes, "max_position_embeddings": 290}))
    made = config("glip", language_model={"type": "BertModel", "name": str(folder), "max_tokens": 300})
    with pytest.raises(ValueError, match=message):
        build(made).set_texts(Prompt.of("cat " * names))


def test_texts_longer_than_the_head_takes():
    head = {**text_cases.MODELS["grounding_dino"]["bbox_head"], "contrastive_cfg": {"max_text_len": 5}}
    detector = build(config(bbox_head=head))
    with pytest.raises(ValueError, match=r"at most 5 tokens together \(max_text_len of contrastive_cfg\), got 6"):
        detector.set_texts(Prompt.of("cat . dog"))


def test_vocabularies_that_are_refused(detector, folder):
    vocabulary = folder / "vocab.txt"
    lines = vocabulary.read_text()
    vocabulary.write_text(lines + "more\n")
    with pytest.raises(ValueError, match=r"vocabulary must have as many tokens as the language model, (\d+), got"):
        detector.set_texts(Prompt.of(TEXTS), vocabulary)
    vocabulary.write_text(lines.replace("[CLS]", "[X]"))
    with pytest.raises(ValueError, match=r"vocabulary must be BERT's, .* has no \[CLS\]"):
        detector.set_texts(Prompt.of(TEXTS), vocabulary)
    vocabulary.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match="vocabulary must be UTF-8 text"):
        detector.set_texts(Prompt.of(TEXTS), vocabulary)


def test_a_vocabulary_is_not_downloaded():
    language_model = {**text_cases.MODELS["grounding_dino"]["language_model"], "name": "bert-base-uncased"}
    with torch.device("meta"):
        detector = build(config(language_model=language_model))
    assert detector.language_model.word_embeddings.num_embeddings == 30522
    with pytest.raises(ValueError, match=r"vocabulary must be set \(--vocabulary vocab\.txt\): the file of bert-base"):
        detector.set_texts(Prompt.of(TEXTS))


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"model_type": "roberta"}, "model_type of .*config.json must be 'bert', got 'roberta'"),
        ({"hidden_act": "relu"}, "hidden_act of .*config.json must be 'gelu', got 'relu'"),
        ({"num_attention_heads": 5}, "hidden_size of .* must be a multiple of num_attention_heads, got 32 and 5"),
        ({"is_decoder": True}, "is_decoder of .* must be False, got True"),
    ],
)
def test_language_models_that_are_refused(folder, sizes, message):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **sizes}))
    language_model = {**text_cases.MODELS["grounding_dino"]["language_model"], "name": str(folder)}
    with pytest.raises(ValueError, match=message):
        build(config(language_model=language_model))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "bert-huge",
            "name of language_model must be bert-base-uncased or a folder with config.json and vocab.txt, got",
        ),
        ("https://huggingface.co/bert", "name of language_model must be a file, download it first"),
    ],
)
def test_names_of_language_models(name, message):
    language_model = {**text_cases.MODELS["grounding_dino"]["language_model"], "name": name}
    with pytest.raises(ValueError, match=message):
        build(config(language_model=language_model))


@pytest.mark.parametrize(("name", "family"), [("grounding_dino", "Grounding DINO"), ("glip", "GLIP")])
def test_detection_without_texts(name, family):
    with pytest.raises(ValueError, match=f"texts must be set before {family} detects"):
        build(config(name))(*query_cases.batch())


@pytest.mark.parametrize(("name", "inclusive"), [("grounding_dino", False), ("glip", True)])
def test_boxes_of_glip_end_with_their_last_pixel(name, inclusive, tmp_path):
    settings = config(name) | {"test_pipeline": [{"type": "LoadImageFromFile"}, {"type": "PackDetInputs"}]}
    torch.save({"state_dict": build(settings).state_dict()}, tmp_path / "model.pth")
    network = load_network(settings, tmp_path / "model.pth", texts=TEXTS)
    assert network.preprocessing.inclusive_boxes is inclusive


@pytest.mark.parametrize(("texts", "vocabulary", "name"), [("cat", None, "texts"), (None, "vocab.txt", "vocabulary")])
def test_detectors_without_a_language_model(tmp_path, texts, vocabulary, name):
    settings = {"model": query_cases.MODELS["dino"]}
    detector = build(settings)
    torch.save({"state_dict": detector.state_dict()}, tmp_path / "dino.pth")
    with pytest.raises(ValueError, match=f"detect: {name} must not be set for DINO, which has no language model"):
        load_trained(detector, tmp_path / "dino.pth", settings, texts, vocabulary)
