"""``mmort demo --texts``, with its export: the file finds what MMDetection found of the words that it is asked for."""

from mmort import Predictor, demo
from mmort.demo import walkthrough
from tests.cli.running import run
from tests.cli.test_demo import MMDETECTION_WORDS, assert_equal


def test_words_at_run_time(tmp_path):
    first, *_ = MMDETECTION_WORDS
    code, out, err = run("demo", "--texts", first, "--output", tmp_path)
    assert (code, err) == (0, "")
    for name, expected in MMDETECTION_WORDS[first].items():
        assert f"\n  {name}: {' '.join(name for name, *_ in expected)}\n" in out
    model = tmp_path / "grounding_dino.onnx"
    predictor = Predictor(model, texts=first, score_threshold=walkthrough.WORDS_SCORE_THRESHOLD)
    for texts, by_image in MMDETECTION_WORDS.items():
        predict = predictor.with_texts(texts)
        for name, expected in by_image.items():
            assert_equal(predict(demo.IMAGES[0].with_name(name)), expected)
