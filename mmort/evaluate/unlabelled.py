"""Images without ground truth, in which the results of models are compared with each other."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from mmort.contract import DETECTION, Task
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
        The class names of the model.
    task : Task, default `mmort.contract.DETECTION`
        That of the model.

    Raises
    ------
    ValueError
        If a folder has no images, or none matches a pattern.
    """

    metric_names = ()

    def __init__(
        self, sources: Sequence[str | os.PathLike[str]], classes: Sequence[str], task: Task = DETECTION
    ) -> None:
        self._task, self.classes = task, as_names("evaluate", classes)
        self.images = tuple(DatasetImage(str(path), path, path.name) for path in list_images(*sources))

    @property
    def task(self) -> Task:  # type: ignore[override]  # its own class has none
        """The task of the model."""
        return self._task

    def result_of(self, image: DatasetImage, found: Any) -> None:
        """Keep nothing, as nothing is measured."""

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Return no figures, as there is no ground truth."""
        return Metrics({})
