"""A step of a training: the names that a detector looks for are some of the classes, in any order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from mmcv.transforms import BaseTransform
from mmdet.registry import TRANSFORMS


@TRANSFORMS.register_module()
class RandomNames(BaseTransform):
    """Keep the names of an image's objects and some others, shuffled; labels are those of the new names.

    MMDetection's RandomSamplingNegPos may name a class twice, once as missing though it is there.
    """

    def transform(self, results: dict[str, Any]) -> dict[str, Any]:
        labels, names = results["gt_bboxes_labels"], results["text"]
        present = set(labels.tolist())
        absent = [label for label in range(len(names)) if label not in present]
        kept = [*present, *random.sample(absent, random.randint(0, len(absent)))]
        random.shuffle(kept)
        results["text"] = tuple(names[label] for label in kept)
        results["gt_bboxes_labels"] = np.array([kept.index(label) for label in labels], np.int64)
        return results
