"""Images without ground truth, in which the detections of models are compared with each other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mmort.contract.names import as_names
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.results import ImageResult
from mmort.predict.image_files import list_images


class UnlabelledDataset(Dataset):
    """Image files without annotations; it has no metrics.

    Parameters
    ----------
    sources : sequence of path
        Files, folders and patterns, as `mmort.predict.list_images` takes them.
    classes : sequence of str
        The class names of the detector.

    Raises
    ------
    ValueError
        If a folder has no images, or none matches a pattern.
    """

    metric_names = ()

    def __init__(self, sources: Sequence[str | os.PathLike[str]], classes: Sequence[str]) -> None:
        self.classes = as_names("evaluate", classes)
        self.images = tuple(DatasetImage(str(path), path, path.name) for path in list_images(*sources))

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return no figures, as there is no ground truth."""
        return Metrics({})
