"""Configs as every module here takes them, and what MMDetection's versions name or place differently in them."""

from __future__ import annotations

from mmort.configs import layout
from mmort.configs.names import plain_type
from mmort.configs.schema import Config

__all__ = ["Config", "is_version_3", "plain_type", "test_config"]


def is_version_3(config: Config) -> bool:
    """Return whether a config is MMDetection 3's, whose detectors filter their boxes a little differently."""
    return layout.version_of(config) == 3


def test_config(config: Config) -> Config:
    """Return ``test_cfg``: inside the model since MMDetection 2.4, beside it before."""
    beside = {} if is_version_3(config) else config.get("test_cfg")  # MMDetection 3's is the test loop's
    found: Config = config["model"].get("test_cfg") or beside or {}
    return found
