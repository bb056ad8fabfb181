"""Models of which a part detects: the student or the teacher of semi-supervised training, a tracker's detector."""

import pytest
import torch

from mmort.detect import build, unsupported
from mmort.detect.loading import load_trained
from mmort.predict import Preprocessing
from tests.detect.test_support import COMPLETE, PIPELINE

PREPROCESSOR = {"type": "DetDataPreprocessor", "mean": [1.0, 2, 3], "std": [4.0, 5, 6], "pad_size_divisor": 32}
DETECTOR = {**COMPLETE["model"], "data_preprocessor": PREPROCESSOR}
BOTH = {"type": "MultiBranchDataPreprocessor", "data_preprocessor": PREPROCESSOR}


def config_of(**entries):
    model = {"type": "SoftTeacher", "detector": DETECTOR, "data_preprocessor": BOTH, "semi_train_cfg": {}}
    return {"model": model | entries, "test_pipeline": PIPELINE}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return a checkpoint in which all weights of the student are 1, all of the teacher 2."""
    path = tmp_path_factory.mktemp("semi") / "both.pth"
    weights = build({"model": DETECTOR}).state_dict()
    weights = {
        f"{name}.{key}": torch.full_like(value, number)
        for number, name in enumerate(("student", "teacher"), 1)
        for key, value in weights.items()
    }
    torch.save({"state_dict": weights}, path)
    return path


@pytest.mark.parametrize(
    ("test_cfg", "number"), [(None, 2), ({"predict_on": "teacher"}, 2), ({"predict_on": "student"}, 1)]
)
def test_one_of_both_detects(checkpoint, test_cfg, number):
    config = config_of(semi_test_cfg=test_cfg)
    assert unsupported(config) == []
    detector = build(config)
    load_trained(detector, checkpoint, config)
    assert all((value == number).all() for value in detector.state_dict().values())


def test_weights_of_a_plain_detector_are_loaded(tmp_path):
    config, detector = config_of(), build(config_of())
    weights = {key: torch.full_like(value, 3) for key, value in detector.state_dict().items()}
    torch.save(weights, tmp_path / "plain.pth")
    load_trained(detector, tmp_path / "plain.pth", config)
    assert (detector.rpn_head.rpn_cls.weight == 3).all()


def test_the_preprocessing_is_the_detector_s():
    preprocessing = Preprocessing.from_config({"model": DETECTOR, "test_pipeline": PIPELINE})
    assert Preprocessing.from_config(config_of()) == preprocessing
    assert preprocessing.mean == (1, 2, 3)


STEPS = [
    *({"type": "TransformBroadcaster", "transforms": [*PIPELINE[:-1], {"type": "LoadTrackAnnotations"}]},),
    {"type": "PackTrackInputs"},
]


def test_a_tracker_s_detector_detects(tmp_path):
    preprocessor = {**PREPROCESSOR, "type": "TrackDataPreprocessor", "use_det_processor": True}
    others: dict[str, dict] = {name: {} for name in ("cmc", "postprocess_model", "reid", "tracker")}
    model = {"type": "StrongSORT", "detector": COMPLETE["model"], "data_preprocessor": preprocessor, **others}
    config = {"model": model, "test_pipeline": STEPS}
    assert unsupported(config) == []
    assert Preprocessing.from_config(config) == Preprocessing.from_config(
        {"model": DETECTOR, "test_pipeline": PIPELINE}
    )
    detector = build(config)
    weights = {f"detector.{key}": torch.full_like(value, 3) for key, value in detector.state_dict().items()}
    torch.save({**weights, "reid.head.weight": torch.zeros(1)}, tmp_path / "tracker.pth")
    load_trained(detector, tmp_path / "tracker.pth", config)
    assert (detector.rpn_head.rpn_cls.weight == 3).all()
    with pytest.raises(ValueError, match="model with nope is not supported"):
        build({**config, "model": {**model, "nope": 1}})
    with pytest.raises(ValueError, match="detector of model must be a dict, got None"):
        build({**config, "model": {**model, "detector": None}})


def test_neither_of_both():
    with pytest.raises(ValueError, match="predict_on must be 'teacher' or 'student', got 'both'"):
        build(config_of(semi_test_cfg={"predict_on": "both"}))
    with pytest.raises(ValueError, match="detector of model must be a dict"):
        build(config_of(detector=None))
