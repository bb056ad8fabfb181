"""Build a detector from a config, and load a checkpoint into it."""

from __future__ import annotations

import os

from mmort.detect.checkpoint import load_checkpoint, load_weights
from mmort.detect.config import read_config
from mmort.detect.detector import Detector
from mmort.detect.entries import check_names
from mmort.detect.registry import FAMILIES, PARTS
from mmort.detect.versions import Config, plain_type

_MODEL_IGNORED = {"data_preprocessor": "read by the preprocessing", "_scope_": "where MMEngine looks types up"}


def build(config: Config) -> Detector:
    """Return the detector that a config describes, in evaluation mode, with random weights.

    Raises
    ------
    ValueError
        If the config has no model, or a part of the model is missing or not supported; the message names it.
    """
    model = config.get("model")
    if not isinstance(model, dict):
        raise ValueError("detect.build: the config must have a dict 'model'")
    head_config = model.get("roi_head") or model.get("bbox_head")
    head = head_config.get("type") if isinstance(head_config, dict) else None
    family = FAMILIES.get(plain_type(head))
    if family is None:
        raise ValueError(
            f"detect.build: model.type = {model.get('type')!r} with the head {head!r} is not supported; "
            f"supported heads: {', '.join(FAMILIES)}"
        )
    try:
        detector = family(config, PARTS)
    except KeyError as error:  # families index the config for what they cannot do without
        raise ValueError(f"detect.build: the config's model must have {error}") from error
    check_names(
        "model",
        (key for key, value in model.items() if value is not None and key not in _MODEL_IGNORED),
        detector.model_entries,
    )
    return detector.eval().requires_grad_(False)


def load(config: str | os.PathLike[str], checkpoint: str | os.PathLike[str], options: Config | None = None) -> Detector:
    """Return the detector of a config with a checkpoint's weights, in evaluation mode.

    Parameters
    ----------
    config : path
        An MMDetection config, 2.x or 3.x.
    checkpoint : path
        The ``.pth`` file that MMDetection wrote when it trained that config.
    options : dict, optional
        Values that replace the config's, by dotted key, as ``--cfg-options`` does.

    Raises
    ------
    ValueError
        If the config or the checkpoint cannot be read, or they do not fit each other.
    """
    settings = read_config(config, options)
    detector = build(settings)
    load_trained(detector, checkpoint, settings)
    return detector


def load_trained(detector: Detector, checkpoint: str | os.PathLike[str], config: Config) -> None:
    """Load a checkpoint's weights and classes into a detector that was built from `config`; see `load`."""
    weights, meta = load_checkpoint(checkpoint)
    load_weights(detector, weights, config)
    detector.classes = tuple(meta.get("classes", ()))
