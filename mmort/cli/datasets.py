"""The data set on which a command runs a detector, and its metrics: ``--data-root``, ``--ann`` ..., ``--eval``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mmort._files.inputs import require_regular

if TYPE_CHECKING:
    from mmort.evaluate import Dataset


METRICS = (
    "bbox",
    "segm",
    "proposal",
    "PQ",
    "mAP",
    "recall",
    "accuracy",
    "mIoU",
    "mDice",
    "mFscore",
    "keypoints",
    "pck",
    *("word_acc", "hmean"),
)
"""Those of all kinds of data sets, whose classes in `mmort.evaluate` compute them."""


def add_eval(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--eval``, the metrics."""
    parser.add_argument(
        "--eval", nargs="+", action="extend", type=_metric, choices=METRICS, metavar="METRIC", help=help
    )


def _metric(name: str) -> str:
    """Return the metric with a name in any case, or the name."""
    return {metric.lower(): metric for metric in METRICS}.get(name.lower(), name)


def add_arguments(container: argparse._ActionsContainer) -> None:
    """Add the arguments that replace the paths of the config's test data set."""
    container.add_argument("--data-root", metavar="DIR", help="instead of the config's data_root")
    container.add_argument(
        "--ann", metavar="FILE", help="annotation file instead of the config's, or data.yaml of a data set for YOLOs"
    )
    container.add_argument("--img-dir", metavar="DIR", help="directory of the images instead of the config's")
    container.add_argument(
        "--split",
        choices=["train", "val", "test"],
        default="val",
        help="the entry of data.yaml that lists the images (default: %(default)s)",
    )
    container.add_argument(
        "--skip-wrong-labels",
        action="store_true",
        help="leave out lines of a YOLO's labels that are not in the format, instead of refusing the data set",
    )


def dataset(
    arguments: argparse.Namespace,
    config: dict[str, Any] | None,
    classes: Sequence[str] | None,
    *,
    labels_by_name: bool = False,
    images: bool = True,
) -> Dataset:
    """Open the data set for a detector of these classes, which reads its images unless `images` is false."""
    from mmort.evaluate import dataset_of

    try:
        dataset = dataset_of(
            config,
            classes=classes or (),
            annotation_file=arguments.ann,
            image_dir=arguments.img_dir,
            data_root=arguments.data_root,
            labels_by_name=labels_by_name,
            split=arguments.split,
            skip_wrong_labels=arguments.skip_wrong_labels,
        )
    except FileNotFoundError as error:
        if error.filename is None:
            raise
        advice = "" if arguments.ann else "; give --data-root, or --ann and --img-dir"
        kind = "annotation file" if Path(error.filename).suffix else "directory"
        raise FileNotFoundError(f"{kind} does not exist: {error.filename}{advice}") from None
    for image in dataset.images if images else ():  # before hours of work on those that can be read
        require_regular("image", image.path)
    return dataset
