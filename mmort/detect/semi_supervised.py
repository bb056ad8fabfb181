"""Semi-supervised training: a student and a teacher, two detectors of one config, of which one detects.

Source: M. Xu et al., "End-to-End Semi-Supervised Object Detection with Soft Teacher", ICCV 2021; MMDetection's
``SemiBaseDetector``.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mmort.detect.versions import Config, plain_type

TYPES = ("SemiBaseDetector", "SoftTeacher")
"""Values of ``model.type``."""


def unwrapped(config: Config) -> Config:
    """Return a config whose model is the detector that student and teacher are; others as they are.

    Raises
    ------
    ValueError
        If such a model has no dict ``detector``, or ``semi_test_cfg.predict_on`` is neither of them.
    """
    model = config.get("model")
    if not isinstance(model, dict) or plain_type(model.get("type")) not in TYPES:
        return config
    detector, name = model.get("detector"), _predicting(model)
    if not isinstance(detector, dict):
        raise ValueError("detect.build: model.detector must be a dict: the model of student and teacher")
    if name not in ("student", "teacher"):
        raise ValueError(f"detect.build: semi_test_cfg.predict_on must be 'teacher' or 'student', got {name!r}")
    return {**config, "model": {"data_preprocessor": model.get("data_preprocessor"), **detector}}


def own_weights(weights: dict[str, Tensor], config: Config) -> dict[str, Tensor]:
    """Return the weights of the one that detects, by the detector's own names.

    Weights that are neither a student's nor a teacher's are returned as they are: MMDetection gives them to both.
    """
    if unwrapped(config) is config or not any(key.startswith(("student.", "teacher.")) for key in weights):
        return weights
    prefix = f"{_predicting(config['model'])}."
    return {key.removeprefix(prefix): value for key, value in weights.items() if key.startswith(prefix)}


def _predicting(model: Config) -> Any:
    """Return the value of ``semi_test_cfg.predict_on``."""
    return (model.get("semi_test_cfg") or {}).get("predict_on", "teacher")
