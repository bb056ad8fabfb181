"""Backbones that timm builds, by its names.

Source: R. Wightman, "PyTorch Image Models"; ``TIMMBackbone`` of MMPreTrain (``mmcls`` before).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mmort.detect.entries import PARTS, Schema, require, suggested, training_only

_NORMALIZATIONS = {"BN": nn.BatchNorm2d, "BN2d": nn.BatchNorm2d, "SyncBN": nn.BatchNorm2d, "LN": nn.LayerNorm}


@PARTS.register("backbone", "TIMMBackbone")
class TIMMBackbone(nn.Module):
    """A network of timm, with timm's names of weights below ``timm_model``."""

    @dataclass(frozen=True, kw_only=True)
    class Entries(Schema):
        model_name: str
        features_only: bool = False
        in_channels: int = 3
        norm_layer: str | None = None
        out_indices: int | Sequence[int] | None = None
        output_stride: int | None = None

        ignored: ClassVar = {
            **training_only("drop_block_rate", "drop_path_rate", "drop_rate"),
            "checkpoint_path": "weights come from the checkpoint",
        }

    def __init__(self, entries: Entries) -> None:
        super().__init__()
        timm = _timm()
        # timm would download what "hf-hub:..." names, and read what "local-dir:..." does.
        if not timm.is_model(entries.model_name):
            raise ValueError(
                f"detect.build: backbone.model_name {suggested(entries.model_name, timm.list_models())} is not a "
                f"model of timm {timm.__version__}; timm.list_models() returns their names"
            )
        options: dict[str, Any] = {"out_indices": entries.out_indices, "output_stride": entries.output_stride}
        if entries.norm_layer is not None:
            norm = _NORMALIZATIONS[require("norm_layer", entries.norm_layer, *_NORMALIZATIONS)]
            # A function, as in MMPreTrain: of a class, timm takes its own layer of that name.
            options["norm_layer"] = lambda *args, **kwargs: norm(*args, **kwargs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # timm has renamed models, tv_resnet50 among them
            self.timm_model = timm.create_model(
                entries.model_name, features_only=entries.features_only, in_chans=entries.in_channels, **options
            )
        if hasattr(self.timm_model, "reset_classifier"):  # the last map, where it would return scores of classes
            self.timm_model.reset_classifier(0, "")

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        maps = self.timm_model(x)
        return tuple(maps) if isinstance(maps, (list, tuple)) else (maps,)


def _timm() -> ModuleType:
    """Import timm; raise an ImportError that says what helps if it, or its torchvision, cannot be imported."""
    try:
        import timm
    except ModuleNotFoundError as error:
        raise ImportError(f"backbone 'TIMMBackbone' needs {error.name}: pip install 'mmort[timm]'") from None
    except RuntimeError as error:  # torchvision's operators do not load beside this torch
        raise ImportError(
            f"backbone 'TIMMBackbone' needs timm, which needs the torchvision that fits torch {torch.__version__}, but "
            f"importing it failed with {error}: pip install --force-reinstall --no-deps torchvision, from torch's index"
        ) from None
    return timm
