"""`mmort.predict.predict`, what ``mmort predict`` calls: records, resumed runs, and images that cannot be processed."""

import json
import pickle
import shutil

import cv2
import numpy as np
import pytest

from mmort import Predictor
from mmort.demo import IMAGES
from mmort.predict import OnnxRuntime, PredictOptions, Preprocessing, Windows, predict
from tests.predict import tiny_detector
from tests.predict.tiny_open_vocabulary import save_detector, save_encoder


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos").mkdir()
    for path in IMAGES[:3]:
        shutil.copy(path, tmp_path / "photos")
    return tmp_path / "photos"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return Predictor(tiny_detector.write(tmp_path_factory.mktemp("model") / "tiny.onnx"))


def test_a_second_run_has_nothing_to_do(tiny, photos, tmp_path):
    options, outcomes = PredictOptions(output=tmp_path / "out", show_dir=tmp_path / "shown"), []
    for done in (3, 0):
        result = predict(tiny, photos, options, each=outcomes.append)
        assert len(outcomes) == done
        assert all(outcome.problem is None and len(outcome.detections) == 1 for outcome in outcomes)
        assert (result.total, result.processed, result.failures) == (3, 3, 0)
        outcomes.clear()
    assert result.written == {
        tmp_path / "out" / "detections.jsonl": "3 images, 3 of them by an earlier run",
        tmp_path / "shown": "3 annotated images, 3 of them by an earlier run",
    }


def test_an_error_at_the_start_leaves_no_record(tiny, photos, tmp_path):
    class Unreachable(Predictor):
        def predict(self, images, batch_size, *, return_exceptions):
            yield self(images[0])
            raise OSError("no cluster")

    (tmp_path / "kept").mkdir()
    for folder in (tmp_path / "new" / "out", tmp_path / "kept"):
        with pytest.raises(ValueError, match="batch_size must be positive"):
            predict(tiny, photos, PredictOptions(output=folder, batch_size=0))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "photos"]
    assert list((tmp_path / "kept").iterdir()) == []
    with pytest.raises(FileNotFoundError, match="video does not exist"):
        predict(tiny, tmp_path / "clip.mp4", PredictOptions(show_dir=tmp_path / "shown"))
    assert not (tmp_path / "shown").exists()
    with pytest.raises(OSError, match="no cluster"):  # what is done stays
        predict(Unreachable(tiny.network), photos, PredictOptions(output=tmp_path / "new"))
    assert len((tmp_path / "new" / "detections.jsonl").read_text().splitlines()) == 1
    assert (tmp_path / "new" / "run.json").exists()


def test_a_broken_image_is_an_outcome(tiny, photos):
    (photos / "a.png").write_bytes(b"no image")
    outcomes = []
    result = predict(tiny, photos, each=outcomes.append)
    assert (result.total, result.processed, result.failures, result.written) == (4, 3, 1, {})
    assert [outcome.detections is None for outcome in outcomes] == [True, False, False, False]
    assert "a.png" in str(outcomes[0].image)
    assert isinstance(outcomes[0].problem, ValueError)


def test_videos_take_no_windows(tiny, tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 5, (64, 48))
    for _ in range(4):
        writer.write(np.zeros((48, 64, 3), np.uint8))
    writer.release()
    frames = []
    result = predict(tiny, path, each=lambda outcome: frames.append((outcome.image, outcome.frame)))
    assert frames == [(str(path), number) for number in range(4)]
    assert (result.total, result.processed) == (4, 4)
    with pytest.raises(ValueError, match=r"windows and engine ray are for image files, got .*clip\.avi"):
        predict(tiny, path, PredictOptions(windows=Windows(32, 0)))


def test_a_record_needs_a_file(photos, tmp_path):
    class Nothing:
        input_shape, mask_format = (None, None, None), None

        def __call__(self, input, img_shape):
            return np.zeros((len(input), 0, 5), np.float32), np.zeros((len(input), 0), np.int64)

    predictor = Predictor(Nothing(), preprocessing=Preprocessing(size=(32, 16)))
    assert predict(predictor, photos).processed == 3
    with pytest.raises(ValueError, match="output is for the predictor of a file, got one of Nothing"):
        predict(predictor, photos, PredictOptions(output=tmp_path / "out"))


def test_records_of_other_texts_are_not_mixed(photos, tmp_path):
    """The classes are the same, what is looked for is not."""
    save_detector(tmp_path / "detector.onnx")
    save_encoder(tmp_path / "detector.texts.onnx")
    predictor = Predictor(tmp_path / "detector.onnx", texts=["cat"])
    options = PredictOptions(output=tmp_path / "out")
    predict(pickle.loads(pickle.dumps(predictor)), photos, options)
    predict(predictor, photos, options)
    other = predictor.with_texts({"text": "cat dog", "tokens_positive": [[[0, 3]]]})
    assert other.classes == predictor.classes
    with pytest.raises(ValueError, match="of a run with another texts"):
        predict(other, photos, options)


def test_records_of_other_batches_and_engines_are_not_mixed(tiny, photos, tmp_path):
    """Images of a batch are padded to the largest, and engines round otherwise."""
    options = PredictOptions(output=tmp_path / "out")
    predict(tiny, photos, options)
    with pytest.raises(ValueError, match="of a run with another batch size;"):
        predict(tiny, photos, PredictOptions(output=tmp_path / "out", batch_size=2))

    class OtherEngine(OnnxRuntime):
        engine = "another"

    with pytest.raises(ValueError, match="of a run with another engine;"):
        predict(Predictor(OtherEngine(tiny.network.path)), photos, options)


def test_images_may_come_from_an_iterator(tiny, photos):
    assert predict(tiny, photos.glob("*.png")).processed == predict(tiny, photos).processed > 0
    for none in ([], iter(())):
        with pytest.raises(ValueError, match="images must name at least one image, got none"):
            predict(tiny, none)


def test_records_of_settings_that_this_run_lacks_are_not_mixed(tiny, photos, tmp_path):
    """As those that a later version may write."""
    options = PredictOptions(output=tmp_path / "out")
    predict(tiny, photos, options)
    settings = json.loads((tmp_path / "out/run.json").read_text())
    (tmp_path / "out/run.json").write_text(json.dumps({**settings, "precision": "half"}))
    with pytest.raises(ValueError, match="of a run with another precision"):
        predict(tiny, photos, options)
