"""What all detectors are: modules built from the ``model`` part of a config, with one way to call them."""

from __future__ import annotations

import importlib
import inspect
import os
from typing import Any

import torch
from torch import Tensor, nn

from mmort.detect.checkpoint import load_checkpoint, load_weights
from mmort.detect.config import read_config

Config = dict[str, Any]

_FAMILIES = {
    "FCOSHead": "fcos.FCOS",
    "FSAFHead": "fsaf.FSAF",
    "RetinaHead": "retinanet.RetinaNet",
    "AscendRetinaHead": "retinanet.RetinaNet",
    "SSDHead": "ssd.SSD",
    "AscendSSDHead": "ssd.SSD",
    "YOLOV3Head": "yolov3.YOLOv3",
    "StandardRoIHead": "faster_rcnn.FasterRCNN",
    "CascadeRoIHead": "cascade_rcnn.CascadeRCNN",
    "PointRendRoIHead": "point_rend.PointRend",
    "CornerHead": "cornernet.CornerNet",
    "DETRHead": "detr.DETR",
}
"""By the type of the last head: the type of the whole (``model.type``) says less, and two-stage detectors share one."""


class Detector(nn.Module):
    """A detector; its submodules have the names of MMDetection's, so its ``state_dict`` does too.

    Subclasses take the whole config, as `read_config` returns it.

    Attributes
    ----------
    family : str
        The name of the detector, such as "Faster R-CNN".
    classes : tuple of str
        Names of the classes by label; empty if nobody said them.
    """

    family: str

    def __init__(self) -> None:
        super().__init__()
        self.classes: tuple[str, ...] = ()

    def raw(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return what the network gives before any post-processing."""
        raise NotImplementedError

    def forward(self, input: Tensor, img_shape: Tensor | None = None) -> tuple[Tensor, ...]:
        """Detect.

        Parameters
        ----------
        input : Tensor of float32, [N, 3, H, W]
            Normalised images, each in the upper left corner, zeros right of it and below.
        img_shape : Tensor of int64, [N, 2], optional
            Height and width of each image in `input`, without its padding.  By default the whole input.

        Returns
        -------
        dets : Tensor of float32, [N, K, 5]
            x1, y1, x2, y2 in pixels of `input`, and the score, by descending score; unused rows are 0.  K is the
            config's ``max_per_img``.
        labels : Tensor of int64, [N, K]
            Classes; -1 in unused rows.
        masks : Tensor of float32, [N, K, h, w], from detectors that give masks
            Probabilities over the area of each box; 0 in unused rows.
        """
        raise NotImplementedError


def build(config: Config) -> Detector:
    """Return the detector that a config describes, in evaluation mode, with random weights.

    Raises
    ------
    ValueError
        If the config has no model, or one with a part that is not here; the text names it.
    """
    model = config.get("model")
    if not isinstance(model, dict):
        raise ValueError("detect.build: the config must have a dict 'model'")
    head = (model.get("roi_head") or model.get("bbox_head") or {}).get("type")
    family = _FAMILIES.get(plain_type(head))
    if family is None:
        raise ValueError(
            f"detect.build: model.type = {model.get('type')!r} with the head {head!r} is not supported; "
            f"heads that are: {', '.join(_FAMILIES)}"
        )
    module, _, name = family.partition(".")
    detector: Detector = getattr(importlib.import_module(f"mmort.detect.{module}"), name)(config)
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
    """Give a detector that was built from a config the weights and the classes of a checkpoint; see `load`."""
    weights, meta = load_checkpoint(checkpoint)
    load_weights(detector, weights, config)
    detector.classes = tuple(meta.get("classes", ()))


def plain_type(name: Any) -> str:
    """Return a type's name without the scope that MMDetection 3 may put before it (``mmdet.FCOSHead``)."""
    return str(name).rpartition(".")[2]


def choose(kind: str, config: Config, classes: dict[str, Any]) -> tuple[Any, Config]:
    """Return the class that ``config["type"]`` names and the other entries; `kind` is for the error."""
    name = require(kind, config["type"], *classes)
    return classes[name], {key: value for key, value in config.items() if key != "type"}


def require(kind: str, name: Any, *supported: str) -> str:
    """Return a type's plain name; ValueError if it is none of the supported ones."""
    plain = plain_type(name)
    if plain not in supported:
        raise ValueError(f"detect.build: {kind} {plain!r} is not supported; what is: {', '.join(supported)}")
    return plain


_TRAINING = {
    "center_sample_radius",
    "center_sampling",
    "frozen_stages",
    "init_cfg",
    "norm_eval",
    "one_hot_smoother",
    "predict_box_type",
    "pretrained",
    "reg_decoded_bbox",
    "regress_ranges",
    "score_threshold",
    "stage_loss_weights",
    "test_cfg",
    "train_cfg",
    "use_box_type",
    "with_cp",
    "zero_init_residual",
}
"""Entries that matter in training only, or say how MMDetection 3 wraps boxes, whatever part they belong to."""


def construct(kind: str, config: Config, classes: dict[str, Any]) -> Any:
    """Return an object of the class that ``config["type"]`` names, made with the other entries; see `choose`.

    Entries that the class does not have are refused by name: they would have changed the results.
    """
    found, entries = choose(kind, config, classes)
    name = f"{kind} {plain_type(config['type'])!r}"
    parameters = inspect.signature(found).parameters
    known = {key: value for key, value in entries.items() if key in parameters}
    unknown = [
        key for key, value in entries.items() if key not in known and not _training_only(key) and value is not None
    ]
    if unknown:
        raise ValueError(
            f"detect.build: {name} with {', '.join(unknown)} is not supported; "
            f"entries that are: {', '.join(parameters)}"
        )
    missing = [key for key, one in parameters.items() if one.default is one.empty and key not in known]
    if missing:
        raise ValueError(f"detect.build: {name} must have {', '.join(missing)}")
    return found(**known)


def is_version_3(config: Config) -> bool:
    """Tell whether a config is MMDetection 3's, whose detectors filter their boxes a little differently."""
    return "data_preprocessor" in config["model"]


def _training_only(entry: str) -> bool:
    return entry in _TRAINING or entry.startswith("loss")


def test_config(config: Config) -> Config:
    """Return ``test_cfg``: inside the model since MMDetection 2.4, beside it before."""
    found: Config = config["model"].get("test_cfg") or config.get("test_cfg") or {}
    return found


def image_limits(input: Tensor, img_shape: Tensor | None) -> Tensor:
    """Return width, height, width, height of each image, [N, 1, 4] in `input`'s dtype: what boxes are clipped to."""
    if img_shape is None:
        batch, _, height, width = input.shape
        size = torch.scalar_tensor(height, device=input.device), torch.scalar_tensor(width, device=input.device)
        sizes = torch.stack([size[1], size[0], size[1], size[0]]).to(input.dtype)
        return sizes.expand(batch, 1, 4)
    return img_shape[:, [1, 0, 1, 0]].to(input.dtype)[:, None]
