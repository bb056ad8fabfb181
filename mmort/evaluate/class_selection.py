"""Some of a detector's classes: what it detects of them, with the labels of a data set that has no more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from mmort.evaluate.coco_format import listed
from mmort.evaluate.evaluation import Predict

if TYPE_CHECKING:
    from mmort.predict import Detections


def select_classes(predict: Predict, names: Sequence[str], classes: Sequence[str]) -> Predict:
    """Return a `predict` that leaves out detections of other classes, and has labels that count `classes`.

    Parameters
    ----------
    predict : callable
        Takes the paths of images and returns the detections in them, in order.
    names : sequence of str
        Its classes by label.
    classes : sequence of str
        Some of them, in any order.

    Raises
    ------
    ValueError
        If one of `classes` is not among `names`, or is among either of them twice.

    Examples
    --------
    >>> from mmort import Predictor
    >>> from mmort.demo import IMAGES, MODEL
    >>> from mmort.evaluate import select_classes
    >>> predictor = Predictor(MODEL, score_threshold=0)
    >>> predict = select_classes(predictor.predict, predictor.classes, ["seven", "zero"])
    >>> [(detections.names, detections.labels.tolist()) for detections in predict(IMAGES[:1])]
    [(('zero', 'zero', 'zero'), [1, 1, 1])]
    """
    unknown = [name for name in classes if name not in names]
    if unknown:
        raise ValueError(f"evaluate: the detector has no class {listed(unknown)}; its classes: {listed(names)}")
    repeated = [name for name in classes if list(classes).count(name) > 1 or list(names).count(name) > 1]
    if repeated:
        raise ValueError(f"evaluate: class {repeated[0]} must be named once, and once by the detector")
    labels = np.full(len(names), -1)
    for label, name in enumerate(classes):
        labels[list(names).index(name)] = label

    def selected(paths: Sequence[Path]) -> Iterator[Detections]:
        for detections in predict(paths):
            if detections.segments is not None:
                raise ValueError("evaluate: classes of a panoptic detector cannot be selected")
            kept = detections[labels[detections.labels] >= 0]
            yield dataclasses.replace(kept, labels=labels[kept.labels])

    return selected
