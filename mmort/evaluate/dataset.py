"""A data set as an evaluation sees it: its images in order, its classes, and figures for detections in them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from mmort.contract import DETECTION, Task
from mmort.evaluate.image_objects import ImageObjects
from mmort.evaluate.results import ImageResult


class DatasetWarning(UserWarning):
    """A data set is measured otherwise than one would expect: objects are left out, areas are filled in."""


@dataclass(frozen=True)
class DatasetImage:
    """An image of a data set.

    Attributes
    ----------
    id : int or str
        The annotation file's name for it.
    path : Path
        Its file.
    name : str
        Its file's path below the data set's directory of images.
    """

    id: int | str
    path: Path
    name: str


@dataclass(frozen=True)
class Metrics:
    """Figures of an evaluation.

    Attributes
    ----------
    figures : dict of str to float
        By MMDetection's names, such as ``bbox_mAP_50``; -1 where the data set has nothing to measure.
    tables : tuple of str
        The same and more, as text to print.
    classwise : dict of str to dict
        The figures of each class, by metric, class and name, if the options ask for them.
    """

    figures: dict[str, float]
    tables: tuple[str, ...] = ()
    classwise: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)


class Dataset(ABC):
    """Images with ground truth.

    Attributes
    ----------
    images : tuple of DatasetImage
        In the order of the annotation file; as in MMDetection's test mode, none is left out.
    classes : tuple of str
        Class names by label.
    metric_names : tuple of str
        The metrics that `score` computes.
    task : Task
        Whose results `score` measures.
    max_figure : float
        The largest value of its figures; 100 if they are in percent.
    """

    task: ClassVar[Task] = DETECTION
    max_figure: ClassVar[float] = 1.0
    metric_names: ClassVar[tuple[str, ...]]
    metric_advice: ClassVar[str] = ""  # follows them in a message
    images: tuple[DatasetImage, ...]
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def check(self, metrics: Sequence[str], options: Mapping[str, Any]) -> None:
        """Refuse metrics and options that `score` does not have; before anything is predicted.

        Raises
        ------
        ValueError
            The message lists the supported ones.  If there are no images to measure in.
        """
        for metric in metrics:
            if metric not in self.metric_names:
                raise ValueError(
                    f"evaluate: metric {metric!r} is not one of this data set; "
                    f"{type(self).__name__} has {', '.join(self.metric_names)}{self.metric_advice}"
                )
        if metrics and not self.images:
            raise ValueError("evaluate: the data set has no images")

    def objects(self) -> list[ImageObjects] | None:
        """Return the objects of each image; None if the data set has none, or none with boxes."""
        return None

    def result_of(self, image: DatasetImage, found: Any) -> Any:
        """Convert the result for an image to the form that `score` takes, if that is not detections."""
        raise NotImplementedError

    @abstractmethod
    def score(self, results: Sequence[ImageResult], metrics: Sequence[str], options: Mapping[str, Any]) -> Metrics:
        """Compare the results, one for each image and in their order, with the ground truth."""


class SubmissionDataset(Dataset):
    """A data set whose results can be written in the format that the server of its benchmark takes.

    Attributes
    ----------
    submission_option : str
        The option of metrics that says where, MMDetection's name.
    """

    submission_option: ClassVar[str]

    @abstractmethod
    def submission_files(self, target: str | os.PathLike[str]) -> list[Path]:
        """Return all files that `write_submission` may write.

        Raises
        ------
        ValueError, OSError
            If the data set gives a file a name that it cannot have, or the target's folder cannot be written to.
        """

    @abstractmethod
    def write_submission(self, results: Sequence[ImageResult], target: str | os.PathLike[str]) -> dict[Path, str]:
        """Write the results, in the order of the data set's images.

        Returns
        -------
        dict of Path to str
            The files or the folder, with what is in them if their names do not say it.
        """
