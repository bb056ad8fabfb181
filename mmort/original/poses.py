"""Top-down models of MMPose: where their files end, and what these state of codecs and keypoints."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from mmort.configs import read_config
from mmort.configs.layout import DetectorConfig
from mmort.configs.test_pipeline import BoxCenterScale, TopdownAffine
from mmort.contract import POSE, PoseFormat
from mmort.contract.tasks import HEATMAPS, POINTS, SIMCC_X, SIMCC_Y
from mmort.original.adapters import Adapter, Run
from mmort.original.building import Original
from mmort.original.cut import arguments_at, replaced
from mmort.original.known import KnownMeta, KnownSamples
from mmort.original.packages import import_package

_OUTPUTS = {"SimCCLabel": (SIMCC_X.name, SIMCC_Y.name), "RegressionLabel": (POINTS.name,)}
"""The outputs of models with these codecs; of others, heatmaps."""


class Pose(Adapter):
    """A top-down model of MMPose: what its head gives to the codec, with the flip test if the config has that."""

    task = POSE

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        decoder = getattr(getattr(self.model, "head", None), "decoder", None)
        self.codec = _codec_of(decoder)
        self.output_names = _OUTPUTS.get(type(decoder).__name__, (HEATMAPS.name,))
        self.decode = self.model.head.decode
        unsupported = {name for name in ("output_keypoint_indices",) if self.model.test_cfg.get(name) is not None}
        if unsupported:
            raise ValueError(f"export: test_cfg with {', '.join(unsupported)} is not supported")
        self.keypoints = _keypoints_of(original)

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return what is decoded: heatmaps, or the scores of columns and rows, or coordinates."""
        meta = KnownMeta(flip_indices=self.keypoints["flip_indices"], input_size=(input.shape[3], input.shape[2]))
        (outputs,) = arguments_at(self.model.head, "decode", lambda: self.model.predict(input, KnownSamples(meta)))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        size = getattr(self.model.head.decoder, "heatmap_size", None)
        if size is not None and tuple(outputs[0].shape[:1:-1]) != tuple(size):
            raise ValueError(
                f"export: the head's heatmaps must be as large as heatmap_size of its decoder, {tuple(size)}, got "
                f"{tuple(outputs[0].shape[:1:-1])}"
            )
        return tuple(output.squeeze(1) if self.codec == "points" else output for output in outputs)

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples, with ``pred_instances``."""
        if file is None:
            return list(self.model.predict(input, samples))
        outputs = tuple(output[:, None] if self.codec == "points" else output for output in file(input))
        decoded = self.decode(outputs if len(outputs) > 1 else outputs[0])
        with replaced(self.model.head, "decode", lambda _: decoded):
            return list(self.model.predict(input, samples))

    def metadata(self) -> dict[str, Any]:
        """Return the codec, the part of an image that the file looks at, and what the keypoints are."""
        steps = [step for _, step in DetectorConfig(self.original.config).test_pipeline.steps]
        cuts = [step for step in steps if isinstance(step, TopdownAffine)]
        scales = [step for step in steps if isinstance(step, BoxCenterScale)]
        if len(cuts) != 1 or len(scales) != 1:
            raise ValueError("export: the test pipeline must have GetBBoxCenterScale and TopdownAffine, each once")
        decoder, info = self.model.head.decoder, self.keypoints
        format = PoseFormat(
            self.codec,  # type: ignore[arg-type]
            names=tuple(map(str, info["keypoint_id2name"].values())),
            padding=scales[0].padding,
            aligned=cuts[0].use_udp,
            bins=float(getattr(decoder, "simcc_split_ratio", PoseFormat.bins)),
            blur=int(getattr(decoder, "blur_kernel_size", PoseFormat.blur)),
            links=tuple((start, end) for start, end in info["skeleton_links"]),
            colours=_colours(info["keypoint_colors"]),
            link_colours=_colours(info["skeleton_link_colors"]),
            sigmas=tuple(float(str(sigma)) for sigma in info["sigmas"]),
        )
        return {"pose": format, "classes": ("pose",)}


def with_box(data: dict[str, Any], adapter: Pose) -> dict[str, Any]:
    """Return an image's entries with one box, the image, and what the data set says of keypoints."""
    height, width = data["img"].shape[:2]
    box = {"bbox": np.array([[0, 0, width, height]], np.float32), "bbox_score": np.ones(1, np.float32)}
    return {**adapter.keypoints, **data, **box}


def _codec_of(decoder: Any) -> str:
    """Return the codec by mmort's word; ValueError if it is not supported."""
    kind = type(decoder).__name__
    if kind == "MSRAHeatmap":
        return "dark" if decoder.unbiased else "heatmaps"
    if kind == "UDPHeatmap" and decoder.heatmap_type == "gaussian":
        return "udp"
    if kind == "SimCCLabel" and not decoder.use_dark:
        return "simcc"
    if kind == "RegressionLabel":
        return "points"
    option = {"UDPHeatmap": " with heatmap_type='combined'", "SimCCLabel": " with use_dark"}.get(kind, "")
    raise ValueError(
        f"export: the head's decoder {kind}{option} is not supported; supported: MSRAHeatmap, UDPHeatmap, SimCCLabel "
        "and RegressionLabel"
    )


def _keypoints_of(original: Original) -> dict[str, Any]:
    """Return what MMPose reads of the config's test data set, or of its type, about keypoints."""
    import_package(original.package)
    parse = importlib.import_module("mmpose.datasets.datasets.utils").parse_pose_metainfo
    entry = DetectorConfig(original.config).test_data_sets[0]
    info = entry.get("metainfo") or getattr(original.dataset_type, "METAINFO", None)
    if not isinstance(info, Mapping) or not info:
        raise ValueError("export: the config's test data set must state its keypoints, in metainfo or by its type")
    if "from_file" in info:
        info = read_config(_file_of(str(info["from_file"])))["dataset_info"]
    keypoints: dict[str, Any] = parse(dict(info))
    count = original.model.head.out_channels if hasattr(original.model.head, "out_channels") else None
    count = getattr(original.model.head, "num_joints", count)
    if count != keypoints["num_keypoints"]:
        raise ValueError(
            f"export: the head must have as many keypoints as the config's test data set, "
            f"{keypoints['num_keypoints']}, got {count}"
        )
    return keypoints


def _file_of(name: str) -> Path:
    """Return the file that a data set's metainfo names: as it is, or MMPose's of that name."""
    path = Path(name)
    if path.is_file():
        return path
    package = importlib.import_module("mmpose")
    return Path(str(package.__file__)).parent / ".mim/configs/_base_/datasets" / path.name


def _colours(rows: Any) -> tuple[tuple[int, int, int], ...]:
    """Return the colours of a data set, red, green, blue."""
    return tuple((red, green, blue) for red, green, blue in np.array(rows, int).tolist())
