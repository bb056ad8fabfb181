"""Detection in several views of an image, which are merged as MMDetection 3's ``DetTTAModel`` merges them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import mmort
from mmort.configs.layout import DetectorConfig
from mmort.configs.schema import plain_type
from mmort.contract import Prepared, Preprocessing
from mmort.detections.detections import Detections
from mmort.predict import Predictor

DEFAULT_MERGING = {"nms": {"type": "nms", "iou_threshold": 0.5}, "max_per_img": 100}
"""MMDetection's, for a config without ``tta_model``."""

MIRRORING = [{"type": "RandomFlip", "prob": 1.0}, {"type": "RandomFlip", "prob": 0.0}]
"""MMDetection's views for a config without ``tta_pipeline``."""


@dataclass(frozen=True)
class View:
    """A way to look at an image: its preprocessing, after whose resizing it may be mirrored."""

    preprocessing: Preprocessing
    mirrored: bool

    def __call__(self, path: Path) -> Prepared:
        """Preprocess an image file."""
        return self.preprocessing(path, self.mirrored)


@dataclass(frozen=True)
class AugmentedViews:
    """The views of a config, and how their detections are merged.

    Attributes
    ----------
    views : tuple of View
    nms : mapping
        As `mmort.batched_nms` takes it.
    max_per_img : int
        The best detections of an image that are kept.
    """

    views: tuple[View, ...]
    nms: Mapping[str, Any]
    max_per_img: int

    @classmethod
    def from_config(cls, config: dict[str, Any], **box_settings: bool) -> AugmentedViews:
        """Read ``tta_model`` and ``tta_pipeline``, or take MMDetection's defaults: the image and its mirror image.

        The further arguments are `box_settings` of the detector's preprocessing, which no config says.

        Raises
        ------
        ValueError
            If the config is one of MMDetection 2, whose detectors merge views before their suppression, or a step or
            entry is not supported.
        """
        settings = DetectorConfig(config)
        if settings.version != 3:
            raise ValueError("test: tta is for configs of MMDetection 3; detectors of 2 merge views by themselves")
        model = config.get("tta_model") or {"type": "DetTTAModel", "tta_cfg": DEFAULT_MERGING}
        merging = model.get("tta_cfg") if isinstance(model, dict) else None
        if not isinstance(merging, dict) or plain_type(model.get("type")) != "DetTTAModel":
            raise ValueError("test: tta_model must be a DetTTAModel with a tta_cfg")
        nms, count = merging.get("nms"), merging.get("max_per_img")
        if merging.keys() != {"nms", "max_per_img"} or not isinstance(nms, dict) or type(count) is not int:
            raise ValueError(f"test: tta_cfg must have a dict nms and an integer max_per_img, got {merging}")
        pipeline = config.get("tta_pipeline")
        if not pipeline:
            _ = settings.test_pipeline  # which refuses what is no pipeline
            pipeline = _mirrored(settings.test_steps)
        views = []
        of_views = {key: value for key, value in config.items() if key not in ("test_dataloader", "data")}
        for steps in _pipelines(pipeline):
            flips = [step for step in steps if plain_type(step.get("type")) == "RandomFlip"]
            settings_of_view = of_views | {"test_pipeline": [step for step in steps if step not in flips]}
            preprocessing = Preprocessing.from_config(settings_of_view, **box_settings)
            views.append(View(preprocessing, any(map(_flips, flips))))
        return cls(tuple(views), nms, count)

    def predict(self, predictor: Predictor, paths: Sequence[Path], batch_size: int = 1) -> Iterator[Detections]:
        """Detect in all views of images, and yield the merged detections of each.

        Raises
        ------
        ValueError
            If the file is no detector, or has more than upright boxes, which MMDetection does not merge either.
        """
        for start in range(0, len(paths), batch_size):
            batch = paths[start : start + batch_size]
            of_views = [predictor.run([view(path) for path in batch]) for view in self.views]
            for of_image in zip(*of_views, strict=True):
                yield self.merged(of_image)

    def merged(self, of_views: Sequence[Detections]) -> Detections:
        """Merge the detections in the views of an image."""
        first = of_views[0]
        if not isinstance(first, Detections):
            raise ValueError(f"test: tta merges detections only, got {type(first).__name__}")
        if first.has_masks or any(part is not None for part in (first.segments, first.rotated_boxes, first.keypoints)):
            raise ValueError(
                "test: tta merges upright boxes only, as MMDetection does, but not masks, keypoints or rotated boxes"
            )
        boxes = np.concatenate(
            [
                _mirror(detections.boxes, detections.image_size[1]) if view.mirrored else detections.boxes
                for view, detections in zip(self.views, of_views, strict=True)
            ]
        )
        scores = np.concatenate([detections.scores for detections in of_views])
        labels = np.concatenate([detections.labels for detections in of_views])
        names = [name for detections in of_views for name in detections.names]
        dets, indices = mmort.batched_nms(boxes, scores, labels, self.nms)
        dets, indices = dets[: self.max_per_img], indices[: self.max_per_img]
        kept = tuple(names[index] for index in indices.tolist())
        return Detections(dets[:, :4], dets[:, 4], labels[indices], kept, first.image_size)


def _mirror(boxes: NDArray[np.float32], width: int) -> NDArray[np.float32]:
    """Return boxes of a mirrored image as those of the image."""
    x1, y1, x2, y2 = boxes.T
    return np.stack([np.float32(width) - x2, y1, np.float32(width) - x1, y2], axis=1)


def _mirrored(pipeline: Sequence[Any]) -> list[Any]:
    """Return a test pipeline with MMDetection's views in place of its last step."""
    return [*pipeline[:-1], {"type": "TestTimeAug", "transforms": [MIRRORING, [pipeline[-1]]]}]


def _pipelines(pipeline: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield the steps of each view, in MMDetection's order."""
    if not isinstance(pipeline, (list, tuple)) or not all(isinstance(step, dict) for step in pipeline):
        raise ValueError("test: tta_pipeline must be a list of steps")
    *before, last = pipeline
    choices = last.get("transforms")
    is_known = plain_type(last.get("type")) == "TestTimeAug" and isinstance(choices, (list, tuple))
    if not is_known or not all(isinstance(group, (list, tuple)) and group for group in choices):
        raise ValueError("test: the last step of tta_pipeline must be TestTimeAug with a list of lists, transforms")
    for chosen in product(*choices):
        yield [*before, *chosen]


def _flips(step: Mapping[str, Any]) -> bool:
    """Return whether a ``RandomFlip`` mirrors the image."""
    share, direction = step.get("prob", step.get("flip_ratio")), step.get("direction", "horizontal")
    if share not in (None, 0, 1) or (share and direction not in ("horizontal", ["horizontal"])):
        raise ValueError(f"test: RandomFlip of tta_pipeline must have prob 0 or 1 and be horizontal, got {dict(step)}")
    return bool(share)
