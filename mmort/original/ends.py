"""The end results of an image: the original's, what the original makes of a file, and what `mmort.Predictor` makes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mmort.configs.layout import DetectorConfig
from mmort.images import Image, resize
from mmort.original.adapters import Adapter, Segmentation
from mmort.original.building import described, quiet
from mmort.original.poses import Pose, with_box
from mmort.predict import PosePredictor, Predictor

ALLOWED_SHARE = 0.001
"""The share of pixels whose class may be another: those where two classes are as probable as each other."""

ALLOWED_DISTANCE = 1e-3
"""How far a probability, or a keypoint in pixels of the image, may be from the original's."""

EQUAL_SCORES = 1e-4
"""How far the scores of a keypoint may be apart, relatively, that rounding moves."""


def prepared_by(adapter: Adapter, image: Image) -> tuple[torch.Tensor, Any]:
    """Return what the original's own test pipeline and data preprocessor make of an image."""
    from mmengine.dataset import Compose, pseudo_collate
    from mmengine.registry import init_default_scope

    steps = [described(step) for step in DetectorConfig(adapter.original.config).test_steps]
    steps = [step for step in steps if "Annotation" not in str(step["type"])]
    if "LoadImage" not in str(steps[0]["type"]):
        raise ValueError("export: the config's test pipeline must begin with LoadImageFromFile")
    with quiet():
        init_default_scope(adapter.original.package.module)
        # What LoadImageFromFile leaves, as the image is in memory.
        height, width = image.shape[:2]
        pixels = image.astype(np.float32) if steps[0].get("to_float32") else image
        data = {"img": pixels, "img_path": "", "img_shape": (height, width), "ori_shape": (height, width)}
        data = Compose(steps[1:])(with_box(data, adapter) if isinstance(adapter, Pose) else data)
        made = adapter.model.data_preprocessor(pseudo_collate([data]), False)
    return made["inputs"], made["data_samples"]


def compare(adapter: Adapter, file: Path, image: Image) -> str:
    """Compare the three end results for an image, and return how far they agree, as text.

    Some networks fail with inputs whose sides are no multiples of their strides.  Where the original fails with the
    image, the image is stretched to the proportions that the test pipeline is for.

    Raises
    ------
    ValueError
        If the inputs are not the same bits, the results differ by more than rounding can explain, or the original fails
        with the stretched image, too.
    """
    predictor = PosePredictor(file) if isinstance(adapter, Pose) else Predictor(file)
    try:
        input, samples, expected = _original_results(adapter, image)
    except Exception:
        size = predictor.preprocessing.size
        if size is None or image.shape[1::-1] == size:
            raise
        image = resize(image, *size)
        try:
            input, samples, expected = _original_results(adapter, image)
        except Exception as error:
            raise ValueError(f"export: the original fails with an image of {size[1]} x {size[0]}: {error}") from error
    if isinstance(predictor, PosePredictor):
        ((_, prepared),) = predictor.crops(image, [[0, 0, *image.shape[1::-1]]])
    else:
        prepared = predictor.preprocessing(image)
    own = torch.from_numpy(prepared.input)[None]
    if input.shape != own.shape or not torch.equal(input, own):
        raise ValueError(
            f"export: mmort's preprocessing must give the original's input, {tuple(input.shape)}, bit for bit, got "
            f"{tuple(own.shape)} with other values"
        )

    def run(window: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = predictor.network(window.numpy(), np.array([window.shape[2:]] * len(window), np.int64))
        return tuple(map(torch.from_numpy, outputs))

    with torch.no_grad(), quiet():
        by_original = _values(adapter, adapter.predict(input, copy.deepcopy(samples), run)[0])
    result: Any = predictor(image)
    if isinstance(adapter, Pose):
        by_mmort = result.keypoints[0]
    else:
        by_mmort = result.map if isinstance(adapter, Segmentation) else result.by_label
    if isinstance(adapter, Pose):  # the second time from the same numbers, which leave nothing to chance
        theirs, ours = _difference_of_poses(expected, by_original), _difference_of_poses(by_original, by_mmort, 0.0)
    else:
        theirs, ours = (_difference(adapter, expected, values) for values in (by_original, by_mmort))
    return (
        f"end results of an image, compared with the original's: {theirs} through the original's own postprocessing, "
        f"{ours} through mmort"
    )


def _original_results(adapter: Adapter, image: Image) -> tuple[torch.Tensor, Any, NDArray[Any]]:
    """Return the original's input and data samples of an image, and the numbers of its end result."""
    input, samples = prepared_by(adapter, image)
    with torch.no_grad(), quiet():
        return input, samples, _values(adapter, adapter.predict(input, copy.deepcopy(samples))[0])


def _values(adapter: Adapter, result: Any) -> NDArray[Any]:
    """Return the numbers of the original's end result."""
    if isinstance(adapter, Segmentation):
        labels: NDArray[Any] = result.pred_sem_seg.data[0].numpy()
        return labels
    if isinstance(adapter, Pose):
        found = result.pred_instances
        return np.concatenate([found.keypoints[0], found.keypoint_scores[0][:, None]], axis=1)
    scores: NDArray[Any] = result.pred_score.numpy()
    return scores


def _difference(adapter: Adapter, expected: NDArray[Any], values: NDArray[Any]) -> str:
    """Return how far end results differ, as text; ValueError if that is too far."""
    if expected.shape != values.shape:
        raise ValueError(f"export: the end result must be {expected.shape}, as the original's is, got {values.shape}")
    if isinstance(adapter, Segmentation):
        count = int((expected != values).sum())
        if count > ALLOWED_SHARE * expected.size:
            raise ValueError(
                f"export: {count} of {expected.size} pixels have another class than the original gives them"
            )
        return f"{count} of {expected.size} pixels differ"
    distance = float(np.abs(expected - values).max(initial=0))
    if not distance <= ALLOWED_DISTANCE:
        raise ValueError(f"export: a probability differs from the original's by {distance:.2g}")
    return f"probabilities differ by at most {distance:.1e}"


def _difference_of_poses(expected: NDArray[Any], values: NDArray[Any], equal: float = EQUAL_SCORES) -> str:
    """Return how far keypoints (P, 3) differ, as text; ValueError if that is too far.

    A keypoint whose scores are closer than `equal` may be elsewhere: where two places are as probable, or a curve is so
    flat that rounding moves its top.
    """
    distances = np.abs(expected - values)[:, :2].max(axis=1)
    scores = np.abs(expected - values)[:, 2] / np.maximum(np.abs(expected[:, 2]), 1e-6)
    elsewhere = ~(distances <= ALLOWED_DISTANCE)
    wrong = (elsewhere & ~(scores < equal)) | ~(scores <= ALLOWED_DISTANCE)
    if wrong.any():
        raise ValueError(
            f"export: {int(wrong.sum())} of {len(expected)} keypoints are elsewhere than the original's, the furthest "
            f"by {distances[wrong].max():.2g} pixels, or have another score"
        )
    ties = f", but for {int(elsewhere.sum())} that rounding moves, with the same score" * bool(elsewhere.any())
    furthest = distances[~elsewhere].max(initial=0)
    return f"{len(expected)} keypoints differ by at most {furthest:.1e} pixels{ties}"
