"""A small detector as the config that both sides read, and the spread of its predictions."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

from tests.originals.weights import Spread

Config = dict[str, Any]

PREPROCESSOR = {
    "type": "DetDataPreprocessor",
    "mean": [123.675, 116.28, 103.53],
    "std": [58.395, 57.12, 57.375],
    "bgr_to_rgb": True,
    "pad_size_divisor": 32,
}
PACK = {
    "type": "PackDetInputs",
    "meta_keys": ("img_id", "img_path", "ori_shape", "img_shape", "scale_factor"),
}
PIPELINE = [{"type": "LoadImageFromFile"}, {"type": "Resize", "scale": (128, 96), "keep_ratio": True}, PACK]


@dataclass(frozen=True)
class Case:
    """A detector to compare.

    Attributes
    ----------
    model : dict
        The config's ``model``.
    spread : mapping
        See `weights.fill`.
    pipeline : list of dict
        The test pipeline.
    batches : bool
        Whether a padded batch is compared too: not where MMDetection takes one image only or returns NaN, nor where
        mmort keeps images apart that change each other's results in MMDetection.
    classes : int
        How many classes must be among the detections, or else the comparison shows too little.
    scope : str
        The package whose types the config names without a prefix.
    data_set : dict
        Further entries of the test data set.
    mapped : bool
        Whether boxes are compared in pixels of the image file: not where the original maps them to it wrongly.
    """

    model: Config
    spread: Spread = field(default_factory=dict)
    pipeline: list[Config] = field(default_factory=lambda: PIPELINE)
    batches: bool = True
    classes: int = 2
    scope: str = "mmdet"
    data_set: Config = field(default_factory=dict)
    mapped: bool = True

    def config(self) -> Config:
        """Return the whole config, to be changed by the caller if need be."""
        config = {
            "default_scope": self.scope,
            "model": self.model,
            "test_dataloader": {"dataset": {"type": "CocoDataset", "pipeline": self.pipeline, **self.data_set}},
        }
        return copy.deepcopy(config)


def model(kind: str, **entries: Any) -> Config:
    """Return a model with the preprocessing of most configs."""
    return copy.deepcopy({"type": kind, "data_preprocessor": PREPROCESSOR, **entries})
