"""Configs as every module here takes them, and what MMDetection's versions name or place differently in them."""

from __future__ import annotations

from typing import Any

Config = dict[str, Any]
"""A config, or a part of one, as `read_config` returns it."""


def plain_type(name: Any) -> str:
    """Return a type's name without the scope that MMDetection 3 may put before it (``mmdet.FCOSHead``)."""
    return str(name).rpartition(".")[2]


def is_version_3(config: Config) -> bool:
    """Return whether a config is MMDetection 3's, whose detectors filter their boxes a little differently."""
    return "data_preprocessor" in config["model"]


def test_config(config: Config) -> Config:
    """Return ``test_cfg``: inside the model since MMDetection 2.4, beside it before."""
    beside = {} if is_version_3(config) else config.get("test_cfg")  # MMDetection 3's is the test loop's
    found: Config = config["model"].get("test_cfg") or beside or {}
    return found
