"""Files whose words are chosen when they run detect what MMDetection detects for the same words."""

import copy
import json
from dataclasses import replace

import pytest
import torch

from mmort import Predictor
from mmort.detect.export import ExportOptions, export
from mmort.predict import OnnxRuntime
from tests.originals.candidate import Candidate, _image_result
from tests.originals.cases import CASES
from tests.originals.cases.texts import CLASSES
from tests.originals.compare import batches_of, filled, save
from tests.originals.comparison import differences, require_substance
from tests.originals.images import image_files
from tests.originals.original import Original
from tests.originals.results import BatchResult

SENTENCE = "a cat on a red car"
PROMPTS = {
    "names": (list(CLASSES), {"text": CLASSES, "custom_entities": True}),
    "caption": ("traffic light. dog ", {"text": "traffic light. dog ", "custom_entities": True}),
    "one": (["кошка [SEP]"], {"text": ["кошка [SEP]"], "custom_entities": True}),
    "phrases": (
        {"text": SENTENCE, "tokens_positive": [[[0, 5]], [[11, 14], [15, 18]]]},
        {"text": SENTENCE, "tokens_positive": [[[0, 5]], [[11, 14], [15, 18]]], "custom_entities": False},
    ),
}
"""What mmort is given, and what MMDetection's data samples have."""


@pytest.mark.parametrize(("name", "chunked_size"), [("grounding_dino", -1), ("mm_grounding_dino", 2)])
def test_equal(name, chunked_size, tmp_path):
    case = CASES[name]
    model = copy.deepcopy(case.model)
    model["num_queries"], model["language_model"]["max_tokens"] = 70, 60
    for part in ("encoder", "decoder"):  # of more layers, the export takes longer; other tests have them
        model[part]["num_layers"] = 1
    model["test_cfg"]["chunked_size"] = chunked_size
    batches = chunked_size < 1  # MMDetection takes one image at a time with chunks
    case = replace(case, model=model, batches=batches, data_set={**case.data_set, "caption_prompt": {}})
    original, _ = filled(Original, case, case.config())
    settings, file, checkpoint = tmp_path / "config.json", tmp_path / "detector.onnx", save(original, tmp_path)
    settings.write_text(json.dumps(case.config()))
    options = ExportOptions(input_img=image_files()[0], dynamic_export=True, open_vocabulary=True)
    export(settings, checkpoint, file, options, progress=lambda line: None)
    predictor, pipeline = Predictor(OnnxRuntime(file, threads=1), texts="dog", score_threshold=0), original.pipeline
    for kind, (texts, of_samples) in PROMPTS.items():
        if kind == "caption" and chunked_size > 0:
            continue  # MMDetection takes its characters for names
        original.pipeline = _with_texts(pipeline, of_samples)
        words = predictor.with_texts(texts)
        exact = Candidate(case.config(), checkpoint, texts=texts)
        expected = [original.run(batch) for batch in batches_of(case)]
        require_substance(expected, min(case.classes, len(words.classes)))
        for batch, result in zip(batches_of(case), expected, strict=True):
            prepared = [words.preprocessing(path) for path in batch]
            input, _ = words.preprocessing.batch(prepared)
            actual = BatchResult(input, list(map(_image_result, words.run(prepared))))
            if differences(actual, result):  # rounding may decide: ask float64
                truth = exact.run(batch, torch.float64)
                assert not differences(truth, original.run(batch, torch.float64), "float64")
                assert not differences(actual, truth)


def _with_texts(pipeline, entries):
    """Return a test pipeline whose data samples have further entries."""

    def call(results):
        item = pipeline(results)
        item["data_samples"].set_metainfo(entries)
        return item

    return call
