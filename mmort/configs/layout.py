"""Where MMDetection's versions put what in a config: the one module that knows a config's top level."""

from __future__ import annotations

from typing import Any, Literal

from mmort.configs.data_preprocessor import DataPreprocessor, read_data_preprocessor
from mmort.configs.names import plain_type
from mmort.configs.schema import Config
from mmort.configs.test_pipeline import TestPipeline, read_steps

_ENTRIES_OF_2 = (
    *("checkpoint_config", "data", "dist_params", "evaluation", "img_norm_cfg", "log_config", "lr_config"),
    *("optimizer", "optimizer_config", "runner", "total_epochs", "workflow"),
)
_ENTRIES_OF_3 = (
    *("default_hooks", "default_scope", "env_cfg", "log_processor", "optim_wrapper", "param_scheduler"),
    *("test_dataloader", "test_evaluator", "train_dataloader", "val_dataloader", "val_evaluator", "vis_backends"),
    "visualizer",
)
_STEPS_OF_2 = ("Collect", "DefaultFormatBundle", "ImageToTensor", "MultiScaleFlipAug")


def version_of(config: Config) -> Literal[2, 3]:
    """Return the version of MMDetection that a config is for: 3 if nothing in it says otherwise.

    The versions select boxes a little differently and give the defaults of steps other values.
    """
    if data_preprocessor_of(config) is not None or any(name in config for name in _ENTRIES_OF_3):
        return 3
    if any(name in config for name in _ENTRIES_OF_2):
        return 2
    beside = config.get("test_cfg")
    if isinstance(beside, dict) and "type" not in beside and beside:  # that of version 3 names a loop
        return 2
    return 2 if _has_step(config.get("test_pipeline"), _STEPS_OF_2) else 3


def data_preprocessor_of(config: Config) -> Any:
    """Return the config of the model's ``data_preprocessor``; if it has none, MMEngine takes that beside the model."""
    model = config.get("model")
    if isinstance(model, dict) and "data_preprocessor" in model:
        return model["data_preprocessor"]
    return config.get("data_preprocessor")


def data_preprocessor(config: Config) -> DataPreprocessor:
    """Return the entries of a config's ``data_preprocessor``, which may have none."""
    entries = data_preprocessor_of(config)
    return DataPreprocessor() if entries is None else read_data_preprocessor(entries)


def test_pipeline(config: Config) -> TestPipeline:
    """Return the pipeline of the test data set, or ``test_pipeline``."""
    data = config.get("data") or {}
    loader = config.get("test_dataloader") or {}
    found: Any = data.get("test") or loader.get("dataset") or {}
    while isinstance(found, list) or "pipeline" not in found:  # data sets that repeat or concatenate others
        found = found[0] if isinstance(found, list) else found.get("dataset") or found.get("datasets")
        if not found:
            found = {"pipeline": config.get("test_pipeline")}
    if not found["pipeline"]:
        raise ValueError("preprocessing: the config has no test pipeline")
    return read_steps(found["pipeline"])


def _has_step(pipeline: Any, kinds: tuple[str, ...]) -> bool:
    """Return whether a pipeline has a step of one of these types."""
    return isinstance(pipeline, (list, tuple)) and any(
        isinstance(step, dict) and plain_type(step.get("type")) in kinds for step in pipeline
    )
