"""Several data sets as one, each measured by itself, as MMDetection measures the test sets of a config with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mmort.contract import Task
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult


class ConcatenatedDataset(Dataset):
    """The images of several data sets, in their order.

    The names of their figures begin with the data set's number: ``0_bbox_mAP``, ``1_bbox_mAP``.

    Parameters
    ----------
    datasets : sequence of Dataset
        One or more, of the same format and with the same classes.

    Raises
    ------
    ValueError
        If formats or classes differ.
    """

    def __init__(self, datasets: Sequence[Dataset]) -> None:
        self.datasets, first = tuple(datasets), datasets[0]
        for number, dataset in enumerate(datasets, 1):
            if type(dataset) is not type(first) or dataset.classes != first.classes:
                different = "types" if type(dataset) is not type(first) else "classes"
                raise ValueError(
                    "evaluate: data sets that are tested together must have the same type and classes; the "
                    f"{different} of data sets 1 and {number} differ"
                )
        self.images = tuple(image for dataset in datasets for image in dataset.images)
        self.classes = first.classes
        # Of an image that is in several, the first data set counts.
        self._of_image = {image: dataset for dataset in reversed(self.datasets) for image in dataset.images}

    @property
    def task(self) -> Task:  # type: ignore[override]
        """The task of the data sets."""
        return self.datasets[0].task

    @property
    def metric_names(self) -> tuple[str, ...]:  # type: ignore[override]  # its own class has none
        """The metrics of the data sets."""
        return self.datasets[0].metric_names

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse what one of the data sets refuses."""
        for dataset in self.datasets:
            dataset.check(metrics, options)

    def objects(self) -> list[ImageObjects] | None:
        """Return those of all data sets, if each has some."""
        parts = [dataset.objects() for dataset in self.datasets]
        if any(part is None for part in parts):
            return None
        return [objects for part in parts if part is not None for objects in part]

    def result_of(self, image: DatasetImage, found: Any) -> Any:
        """Convert the result for an image to the form that its data set takes."""
        return self._of_image[image].result_of(image, found)

    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compute the figures of each data set; the options are those of its format."""
        figures: dict[str, float] = {}
        tables: list[str] = []
        classwise: dict[str, dict[str, dict[str, float]]] = {}
        begin = 0
        for number, dataset in enumerate(self.datasets):
            of_dataset = dataset.score(results[begin : begin + len(dataset)], metrics, options)
            begin += len(dataset)
            figures |= {f"{number}_{name}": value for name, value in of_dataset.figures.items()}
            classwise |= {f"{number}_{name}": values for name, values in of_dataset.classwise.items()}
            tables += (f"Data set {number}, {len(dataset)} images\n{table}" for table in of_dataset.tables)
        return Metrics(figures, tuple(tables), classwise)
