"""Refuse test pipelines that change the proportions of images, for detectors whose results cannot follow that."""

from __future__ import annotations

from mmort.configs.layout import DetectorConfig
from mmort.predict import Preprocessing
from mmort.predict.test_pipeline import settings_of


def require_proportions(config: DetectorConfig, reason: str) -> None:
    """Raise a ValueError with a reason if the test pipeline resizes images to a size of other proportions."""
    if config.has_test_pipeline and not Preprocessing(**settings_of(config)).keep_ratio:
        raise ValueError(f"detect.build: Resize of the test pipeline must have keep_ratio=True: {reason}")
