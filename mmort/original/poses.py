"""Top-down models of MMPose: where their files end, and what these state of codecs and keypoints."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from mmort.configs import read_config
from mmort.configs.layout import DetectorConfig
from mmort.configs.test_pipeline import BoxCenterScale, TopdownAffine
from mmort.contract import POSE, PoseFormat, Preprocessing
from mmort.contract.tasks import HEATMAPS, POINTS, SIMCC_X, SIMCC_Y
from mmort.images import Image
from mmort.original.adapters import ALLOWED_DISTANCE, Adapter, Run
from mmort.original.building import Original
from mmort.original.cut import arguments_at, replaced
from mmort.original.known import KnownMeta, KnownSamples
from mmort.original.packages import import_package
from mmort.predict import PosePredictor
from mmort.predict.poses import require_plain_images

_POINTS = "RegressionLabel", "IntegralRegressionLabel"
"""Codecs whose models find coordinates; the second one has heatmaps in training only."""

_OUTPUTS = {"SimCCLabel": (SIMCC_X.name, SIMCC_Y.name), **dict.fromkeys(_POINTS, (POINTS.name,))}
"""The outputs of models with these codecs; of others, heatmaps."""


EQUAL_SCORES = 1e-4
"""How far the scores of a keypoint may be apart, relatively, that rounding moves."""

MOVED_SHARE = 0.25
"""The share of keypoints that may be elsewhere with the same score: where a heatmap has two maxima, or a flat one."""


class Pose(Adapter):
    """A top-down model of MMPose: what its head gives to the codec, with the flip test if the config has that."""

    task = POSE

    def __init__(self, original: Original) -> None:
        super().__init__(original)
        decoder = getattr(getattr(self.model, "head", None), "decoder", None)
        self.codec = _codec_of(decoder)
        self.output_names = _OUTPUTS.get(type(decoder).__name__, (HEATMAPS.name,))
        self.decode = self.model.head.decode
        head, self.indices = self.model.head, self.model.test_cfg.get("output_keypoint_indices")
        self.count: Any = getattr(head, "num_joints", None) or getattr(head, "out_channels", None)
        self.keypoints = _keypoints_of(original, self.count if self.indices is None else len(self.indices))

    def forward(self, input: Tensor) -> tuple[Tensor, ...]:
        """Return the codec's input: heatmaps, or the scores of columns and rows, or coordinates."""
        meta = KnownMeta(flip_indices=self.keypoints["flip_indices"], input_size=(input.shape[3], input.shape[2]))
        (outputs,) = arguments_at(self.model.head, "decode", lambda: self.model.predict(input, KnownSamples(meta)))
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        size = getattr(self.model.head.decoder, "heatmap_size", None)
        if size is not None and tuple(outputs[0].shape[:1:-1]) != tuple(size):
            raise ValueError(
                f"export: the head's heatmaps must be as large as heatmap_size of its decoder, {tuple(size)}, got "
                f"{tuple(outputs[0].shape[:1:-1])}"
            )
        outputs = tuple(output.squeeze(1) if self.codec == "points" else output for output in outputs)
        return outputs if self.indices is None else tuple(output[:, self.indices] for output in outputs)

    def predict(self, input: Tensor, samples: Any, file: Run | None = None) -> list[Any]:
        """Return the original's data samples, with ``pred_instances``."""
        if file is None:
            return list(self.model.predict(input, samples))
        outputs = tuple(map(self._of_head, file(input)))
        decoded = self.decode(outputs if len(outputs) > 1 else outputs[0])
        with replaced(self.model.head, "decode", lambda _: decoded):
            return list(self.model.predict(input, samples))

    def _of_head(self, output: Tensor) -> Tensor:
        """Return an output of the file as the head has it, with zeros for keypoints that the config leaves out."""
        if self.indices is not None:
            whole = output.new_zeros(len(output), self.count, *output.shape[2:])
            whole[:, self.indices] = output
            output = whole
        return output[:, None] if self.codec == "points" else output

    def annotations(self, image: Image) -> dict[str, Any]:
        """Return one box, the image, and the data set's facts on keypoints."""
        return {**self.keypoints, "bbox": _box_of(image), "bbox_score": np.ones(1, np.float32)}

    def predictor(self, file: Path) -> PosePredictor:
        """Return a predictor that runs the file on images."""
        return PosePredictor(file)

    def input_of(self, predictor: PosePredictor, image: Image) -> NDArray[np.float32]:
        """Return the file's input of an image, as one box."""
        ((_, prepared),) = predictor.crops(image, _box_of(image))
        return prepared.input

    def of_original(self, result: Any) -> NDArray[Any]:
        """Return x, y and score of each keypoint."""
        found = result.pred_instances
        return np.concatenate([found.keypoints[0], found.keypoint_scores[0][:, None]], axis=1)

    def of_mmort(self, result: Any) -> NDArray[Any]:
        """Return x, y and score of each keypoint."""
        keypoints: NDArray[Any] = result.keypoints[0]
        return keypoints

    def difference(self, expected: NDArray[Any], actual: NDArray[Any]) -> str:
        """Return the largest distance of keypoints."""
        distances = np.abs(expected - actual)[:, :2].max(axis=1)
        scores = np.abs(expected - actual)[:, 2] / np.maximum(np.abs(expected[:, 2]), 1e-6)
        moved = ~(distances <= ALLOWED_DISTANCE)
        wrong = (moved & ~(scores <= EQUAL_SCORES)) | ~(scores <= ALLOWED_DISTANCE)
        if wrong.any() or moved.mean() > MOVED_SHARE:
            raise ValueError(
                f"export: {int((wrong | moved).sum())} of {len(expected)} keypoints are elsewhere than the original's, "
                f"the furthest by {distances.max():.2g} pixels, or have another score"
            )
        furthest = distances[~moved].max(initial=0)
        noted = f", but for {int(moved.sum())} that rounding moves, with the same score" * bool(moved.any())
        return f"{len(expected)} keypoints differ by at most {furthest:.1e} pixels{noted}"

    def metadata(self) -> dict[str, Any]:
        """Return the codec, the part of an image that the file takes, and the names of keypoints."""
        require_plain_images("export", Preprocessing.from_config(self.original.config))
        steps = [step for _, step in DetectorConfig(self.original.config).test_pipeline.steps]
        cuts = [step for step in steps if isinstance(step, TopdownAffine)]
        scales = [step for step in steps if isinstance(step, BoxCenterScale)]
        if len(cuts) != 1 or len(scales) != 1:
            raise ValueError("export: the test pipeline must have GetBBoxCenterScale and TopdownAffine, each once")
        decoder, info = self.model.head.decoder, self.keypoints
        blur = "kernel_size" if self.codec == "megvii" else "blur_kernel_size"
        format = PoseFormat(
            self.codec,  # type: ignore[arg-type]
            names=tuple(map(str, info["keypoint_id2name"].values())),
            padding=scales[0].padding,
            aligned=cuts[0].use_udp,
            bins=float(getattr(decoder, "simcc_split_ratio", PoseFormat.bins)),
            blur=int(getattr(decoder, blur, PoseFormat.blur)),
            links=tuple((start, end) for start, end in info["skeleton_links"]),
            colours=_colours(info["keypoint_colors"]),
            link_colours=_colours(info["skeleton_link_colors"]),
            sigmas=tuple(float(str(sigma)) for sigma in info["sigmas"]),
        )
        return {"pose": format, "classes": ("pose",)}


def _box_of(image: Image) -> NDArray[np.float32]:
    """Return the box around an image, (1, 4)."""
    return np.array([[0, 0, *image.shape[1::-1]]], np.float32)


def _codec_of(decoder: Any) -> str:
    """Return the codec by mmort's word, one of `Codec`, which `mmort.predict` decodes; ValueError if it has none."""
    kind = type(decoder).__name__
    if kind == "MSRAHeatmap":
        return "dark" if decoder.unbiased else "heatmaps"
    if kind == "UDPHeatmap" and decoder.heatmap_type == "gaussian":
        return "udp"
    if kind == "SimCCLabel" and not decoder.use_dark:
        return "simcc"
    if kind == "MegviiHeatmap":
        return "megvii"
    if kind in _POINTS:
        return "points"
    option = {"UDPHeatmap": " with heatmap_type='combined'", "SimCCLabel": " with use_dark"}.get(kind, "")
    raise ValueError(
        f"export: the head's decoder {kind}{option} is not supported; supported: MSRAHeatmap, UDPHeatmap, "
        f"MegviiHeatmap, SimCCLabel, {' and '.join(_POINTS)}"
    )


def _keypoints_of(original: Original, count: int | None) -> dict[str, Any]:
    """Return the facts on keypoints that MMPose reads of the config's test data set, or of its type.

    The model returns `count` keypoints.
    """
    import_package(original.package)
    parse = importlib.import_module("mmpose.datasets.datasets.utils").parse_pose_metainfo
    layout = DetectorConfig(original.config)
    data_set, kind = layout.test_data_sets[0], original.dataset_type
    stated = layout.outer_test_data_set.get("metainfo") or data_set.get("metainfo")
    if not stated and kind is not None and "subset" in data_set:
        kind(subset=data_set["subset"], lazy_init=True)  # DeepFashionDataset: it sets METAINFO, and reads no file
    info = stated or getattr(kind, "METAINFO", None)
    if not isinstance(info, Mapping) or not info:
        raise ValueError("export: the config's test data set must state its keypoints, in metainfo or by its type")
    if "from_file" in info:
        info = read_config(_file_of(str(info["from_file"])))["dataset_info"]
    keypoints: dict[str, Any] = parse(dict(info))
    if count != keypoints["num_keypoints"]:
        raise ValueError(
            f"export: the head, or output_keypoint_indices, must have as many keypoints as the config's test data set, "
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
