"""``infer_cfg.yml``, which PaddleDetection's exporter writes beside a network: preprocessing, classes, suppression.

What its steps do is that of PaddleDetection's deploy/python/preprocess.py.  A step or an entry that it may have, and
that a `Preprocessing` cannot say, is refused by name.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mmort._files.inputs import read_bytes
from mmort.configs.budget import Budget
from mmort.configs.schema import Config, Schema, at_least, only, read_entries
from mmort.configs.sources import parse_yaml
from mmort.limits import MAX_PREPROCESSOR_BYTES
from mmort.onnx.adopt.foreign_file import Entries, is_positive, is_size

NAMES = "infer_cfg.yml", "inference.yml"
"""The file in a folder: PaddleDetection's name for it, and that of PaddleX."""

_INTERPOLATIONS = {1: "bilinear", 2: "bicubic"}
"""By OpenCV's numbers."""


class _Step(Schema):
    """Base of the parts of a config."""

    reader: ClassVar[str] = "adopt"

    @abstractmethod
    def entries(self) -> Entries:
        """Return the entries of a preprocessing, or of a layout, that it makes."""


@dataclass(frozen=True, kw_only=True)
class _Resize(_Step):
    """Resize images to one size."""

    target_size: Any
    keep_ratio: bool = only(False, required=True)
    interp: int = 1

    def check(self, name: str) -> None:
        """Refuse sizes and interpolations that are not known."""
        if not is_positive(self.target_size) and not is_size(self.target_size):
            raise ValueError(
                f"adopt: target_size of {name} must be a positive integer, or two, got {str(self.target_size)[:80]}"
            )
        if self.interp not in _INTERPOLATIONS:
            raise ValueError(f"adopt: interp of {name} must be 1, bilinear, or 2, bicubic, got {self.interp}")

    def entries(self) -> Entries:
        """Return the preprocessing."""
        height, width = [self.target_size] * 2 if isinstance(self.target_size, int) else self.target_size
        return {"size": [width, height], "keep_ratio": False, "interpolation": _INTERPOLATIONS[self.interp]}


@dataclass(frozen=True, kw_only=True)
class _Normalize(_Step):
    """Divide levels by 255, subtract the mean and divide by the standard deviation, or leave out either."""

    mean: list[float]
    std: list[float]
    is_scale: bool = True
    norm_type: str = "mean_std"

    def check(self, name: str) -> None:
        """Refuse other numbers of channels, and other kinds."""
        if len(self.mean) != 3 or len(self.std) != 3:
            raise ValueError(f"adopt: mean and std of {name} must be three numbers each, got {self.mean}, {self.std}")
        if self.norm_type not in ("mean_std", "none"):
            raise ValueError(f"adopt: norm_type of {name} must be mean_std or none, got {self.norm_type[:80]!r}")

    def entries(self) -> Entries:
        """Return the preprocessing."""
        scale = 255.0 if self.is_scale else 1.0
        if self.norm_type == "none":
            return {"std": [scale] * 3, "divide": True}
        mean, std = ([scale * value for value in values] for values in (self.mean, self.std))
        return {"mean": mean, "std": std, "divide": True}


@dataclass(frozen=True, kw_only=True)
class _Permute(_Step):
    """Put the channels first."""

    to_bgr: bool = only(False)
    channel_first: bool = only(True)

    def entries(self) -> Entries:
        """Return the preprocessing, of which this is no part."""
        return {}


@dataclass(frozen=True, kw_only=True)
class _PadStride(_Step):
    """Pad with zeros on the right and below to a multiple of the stride."""

    stride: int = 0

    def entries(self) -> Entries:
        """Return the preprocessing."""
        return {"size_divisor": self.stride} if self.stride > 0 else {}


_STEPS: dict[str, type[_Step]] = {
    "Resize": _Resize,
    "NormalizeImage": _Normalize,
    "Permute": _Permute,
    "PadStride": _PadStride,
}
"""By their type, in the order that they must have; the first two may be exchanged."""


@dataclass(frozen=True, kw_only=True)
class _Suppression(_Step):
    """How boxes are chosen among those of a file that does not do so itself."""

    ignored: ClassVar[dict[str, str]] = {
        **dict.fromkeys(
            ("name", "normalized", "background_label", "nms_eta"), "picodet_postprocess.py does not read it"
        ),
        "nms_top_k": "more boxes of a grid than pass the threshold",
    }

    score_threshold: float = at_least(0)
    nms_threshold: float = at_least(0)
    keep_top_k: int = at_least(1)

    def entries(self) -> Entries:
        """Return the entries of a layout."""
        return {
            "iou_threshold": self.nms_threshold,
            "score_threshold": self.score_threshold,
            "max_detections": self.keep_top_k,
        }


def config_file(path: Path | None) -> Path | None:
    """Return the config of PaddleDetection that a path is, or that a folder has; None if there is none."""
    if path is None or path.is_file():
        return path if path is not None and path.suffix in (".yml", ".yaml") else None
    return next((file for name in NAMES if (file := path / name).is_file()), None)


def read_config(path: Path) -> Config:
    """Return the entries of a config.

    Raises
    ------
    ValueError
        If it is not YAML, or has no list of steps.
    ImportError
        If PyYAML is not installed.
    """
    try:
        entries = parse_yaml(path, read_bytes("config", path, MAX_PREPROCESSOR_BYTES).decode("utf-8-sig"), Budget())
    except ValueError as error:
        raise ValueError(f"adopt: {path} is not YAML in UTF-8: {error}") from None
    if not isinstance(entries, dict) or not isinstance(entries.get("Preprocess"), list):
        raise ValueError(f"adopt: {path} must have the list Preprocess, as PaddleDetection writes it")
    return entries


def stated(path: Path) -> Entries:
    """Return the entries of a layout that a config states of any file: preprocessing, and classes if it has them.

    Raises
    ------
    ValueError
        If a step is not supported, or classes are not texts; the message names it.
    """
    config = read_config(path)
    labels = config.get("label_list")
    if labels is not None and (not isinstance(labels, list) or not labels):
        raise ValueError(f"adopt: label_list of {path} must be a list of names, got {str(labels)[:80]}")
    classes = {} if labels is None else {"classes": list(map(str, labels))}
    try:
        return {"preprocessing": _preprocessing(path, config["Preprocess"]), **classes}
    except ValueError as error:
        raise ValueError(f"{error}; instead of --config, --set preprocessing.NAME=VALUE may state it") from None


def suppression(path: Path) -> Entries:
    """Return how boxes are suppressed; no entries if the config does not say it, as the file does it itself."""
    config = read_config(path)
    return {} if "NMS" not in config else read_entries(f"NMS in {path}", _Suppression, config["NMS"]).entries()


def _preprocessing(path: Path, steps: list[Any]) -> Entries:
    """Return the preprocessing of steps."""
    kinds = [str(step.get("type") if isinstance(step, dict) else step) for step in steps]
    known = list(_STEPS)
    for kind in kinds:
        if kind not in known:
            raise ValueError(
                f"adopt: Preprocess of {path} must have the steps {', '.join(known)} only, got {kind[:80]}"
            )
    resizes_numbers = kinds[:2] == ["NormalizeImage", "Resize"]
    order = [known.index(kind) for kind in (kinds[1::-1] + kinds[2:] if resizes_numbers else kinds)]
    if order != sorted(set(order)):
        raise ValueError(
            f"adopt: Preprocess of {path} must have each step once, in the order {', '.join(known)}, or with the first "
            f"two exchanged, got {', '.join(kinds)}"
        )
    entries: Entries = {"to_rgb": True}
    for kind, step in zip(kinds, steps, strict=True):
        entries |= read_entries(f"{kind} in {path}", _STEPS[kind], step).entries()
    # Normalized numbers are resized: the same as to resize levels and not to round, as weights of pixels add up to 1.
    return entries | ({"to_float32": True} if resizes_numbers else {})
