"""Pairs of classes are counted as MMDetection's tools/analysis_tools/confusion_matrix.py counts them."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import mmdet
import numpy as np
import pytest
import torch

from mmort.evaluate.analysis import analyze
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult
from tests.originals import plain_kernels
from tests.originals.original import _without_warnings

CLASSES, IMAGES, SCORE_THRESHOLD = ("cat", "dog", "emu"), 20, 0.3


@_without_warnings
def tool():
    """Import the tool, which MMDetection's wheel has as a file."""
    plain_kernels.install()
    path = Path(mmdet.__file__).parent / ".mim" / "tools" / "analysis_tools" / "confusion_matrix.py"
    spec = importlib.util.spec_from_file_location("confusion_matrix", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_boxes(rng, count):
    corners = rng.uniform(0, 60, (count, 2))
    return np.concatenate([corners, corners + rng.uniform(20, 40, (count, 2))], axis=1).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_the_matrix_is_that_of_the_tool(seed):
    rng = np.random.default_rng(seed)
    truths, results = [], []
    for _ in range(IMAGES):
        count = int(rng.integers(1, 8))
        labels, boxes = rng.integers(0, len(CLASSES), count), random_boxes(rng, count)
        repeated = rng.integers(0, count, 12)
        near = boxes[repeated] + rng.normal(0, 4, (12, 4)).astype(np.float32)
        found = np.where(rng.random(12) < 0.6, labels[repeated], rng.integers(0, len(CLASSES), 12))
        none = np.zeros(count, bool)
        truths.append(ImageObjects(boxes.astype(float), labels, none, none))
        results.append(ImageResult(near, np.sort(rng.random(12).astype(np.float32))[::-1], found))
    infos = [
        [{"bbox": box, "bbox_label": label} for box, label in zip(truth.boxes, truth.labels, strict=True)]
        for truth in truths
    ]
    dataset = SimpleNamespace(classes=CLASSES, objects=lambda: truths)
    judged = type("Judged", (), {"__len__": lambda _: IMAGES, "get_data_info": lambda _, i: {"instances": infos[i]}})()
    judged.metainfo = {"classes": CLASSES}
    predictions = [
        {
            "pred_instances": {
                "bboxes": torch.tensor(result.boxes),
                "scores": torch.tensor(result.scores.copy()),
                "labels": torch.tensor(result.labels),
            }
        }
        for result in results
    ]
    expected = tool().calculate_confusion_matrix(judged, predictions, score_thr=SCORE_THRESHOLD)
    confusion = analyze(dataset, results, score_threshold=SCORE_THRESHOLD).confusion
    assert confusion.tolist() == expected.tolist()
    assert np.count_nonzero(confusion) == 15  # all but that of no object and no detection
