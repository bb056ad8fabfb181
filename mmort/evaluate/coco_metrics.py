"""COCO's AP and AR, computed by faster-coco-eval and named as MMDetection names them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort.evaluate.dataset import Metrics
from mmort.evaluate.option_checks import check_numbers, option_values
from mmort.tables import lay_out

IOU_THRESHOLDS = tuple(np.linspace(0.5, 0.95, 10).tolist())
AREAS = {"all": "", "small": "_s", "medium": "_m", "large": "_l"}
"""The areas of COCO, in its order, with the end of their figures' names."""
AP_DETECTIONS = 100
"""Detections of an image that COCO's mAP counts at most; the other figures count the largest of `proposal_nums`."""


@dataclass(frozen=True, kw_only=True)
class CocoOptions:
    """Options of COCO's metrics, by the names of MMDetection's ``--eval-options``.

    Parameters
    ----------
    classwise : bool, default False
        Add the AP of each class.
    iou_thrs : sequence of float
        IoU thresholds to average over.
    proposal_nums : sequence of int
        Numbers of detections, the best of an image, for which to compute AR.
    metric_items : sequence of str, optional
        The figures to return, such as ``mAP_50`` or ``AR@100``.  By default those of AP for bbox and segm, and those of
        AR for proposal.
    """

    classwise: bool = False
    iou_thrs: Sequence[float] = IOU_THRESHOLDS
    proposal_nums: Sequence[int] = (100, 300, 1000)
    metric_items: Sequence[str] | None = None

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> CocoOptions:
        """Return the options; ValueError if one is unknown.  None is the default, and a single value a list of it."""
        return cls(**option_values(cls, options))

    def check(self, metrics: Iterable[str]) -> None:
        """Refuse values with which one of the metrics cannot be computed."""
        check_numbers(self.iou_thrs, self.proposal_nums)
        if AP_DETECTIONS not in self.proposal_nums and set(metrics) - {"proposal"}:
            raise ValueError(
                f"evaluate: proposal_nums must contain {AP_DETECTIONS}, for which COCO defines mAP, "
                f"got {self.proposal_nums}"
            )
        names = [figure.name for figure in self.figures()]
        for item in self.metric_items or ():
            if item not in names:
                raise ValueError(f"evaluate: unknown metric_items {item!r}; known: {', '.join(names)}")

    def figures(self) -> Iterator[_Figure]:
        """Yield the figures in COCO's order."""
        numbers = sorted(self.proposal_nums)
        if AP_DETECTIONS in numbers:
            yield _Figure("mAP", True, AP_DETECTIONS)
        yield _Figure("mAP_50", True, numbers[-1], iou=0.5)
        yield _Figure("mAP_75", True, numbers[-1], iou=0.75)
        for area in list(AREAS)[1:]:
            yield _Figure(f"mAP{AREAS[area]}", True, numbers[-1], area)
        for number in numbers:
            yield _Figure(f"AR@{number}", False, number)
        for area in list(AREAS)[1:]:
            yield _Figure(f"AR{AREAS[area]}@{numbers[-1]}", False, numbers[-1], area)


@dataclass(frozen=True)
class _Figure:
    """A mean of precision or recall."""

    name: str
    is_precision: bool
    detections: int
    area: str = "all"
    iou: float | None = None

    def value(self, evaluator: Any) -> float:
        """Average over classes, thresholds and recalls; -1 if the data set has nothing to measure."""
        kind = "precision" if self.is_precision else "recall"
        values = evaluator.eval[kind][..., list(AREAS).index(self.area), self._detections_index(evaluator)]
        return mean_of_measured(values if self.iou is None else values[evaluator.params.iouThrs == self.iou])

    def line(self, evaluator: Any) -> str:
        """Return the line that COCO's own tool prints."""
        title = "Average Precision  (AP)" if self.is_precision else "Average Recall     (AR)"
        thresholds = evaluator.params.iouThrs
        iou = f"{thresholds[0]:.2f}:{thresholds[-1]:.2f}" if self.iou is None else f"{self.iou:.2f}"
        value = self.value(evaluator)
        return f" {title} @[ IoU={iou:<9} | area={self.area:>6s} | maxDets={self.detections:>3d} ] = {value:.3f}"

    def _detections_index(self, evaluator: Any) -> int:
        return list(evaluator.params.maxDets).index(self.detections)


def coco_metrics(
    annotations: dict[str, Any],
    category_ids: Sequence[int],
    category_names: Mapping[int, str],
    rows: list[dict[str, Any]],
    metric: str,
    options: CocoOptions,
) -> Metrics:
    """Compute the figures of one metric.

    Parameters
    ----------
    annotations : dict
        Ground truth in COCO's format, with ids from 1 on.
    category_ids : sequence of int
        The categories to evaluate, by label.
    category_names : mapping of int to str
        The names of the categories that are classes, by id.
    rows : list of dict
        Detections in COCO's format.
    metric : {"bbox", "segm", "proposal"}
        AP of boxes, AP of masks, or AR of boxes whatever their class.
    options : CocoOptions

    Returns
    -------
    Metrics

    Raises
    ------
    ImportError
        If faster-coco-eval is not installed.
    """
    evaluator = _evaluated(annotations, category_ids, rows, metric, options)
    all_figures = list(options.figures())
    tables = [f"Evaluating {metric}...\n" + "\n".join(figure.line(evaluator) for figure in all_figures)]
    classwise = {}
    if options.classwise and metric != "proposal":
        classwise[metric] = _classwise(category_names, evaluator)
        tables.append(classwise_table(classwise[metric]))
    prefix = "" if metric == "proposal" else f"{metric}_"
    items = options.metric_items
    if items is None:
        items = [figure.name for figure in all_figures if figure.is_precision == (metric != "proposal")]
    return Metrics(
        {f"{prefix}{figure.name}": figure.value(evaluator) for figure in all_figures if figure.name in items},
        tuple(tables),
        classwise,
    )


def coco_library() -> ModuleType:
    """Import faster-coco-eval, or name the extra that installs it."""
    try:
        import faster_coco_eval
    except ModuleNotFoundError:
        raise ImportError("mmort.evaluate needs faster-coco-eval: pip install 'mmort[evaluate]'") from None
    library: ModuleType = faster_coco_eval  # it has no annotations
    return library


def _evaluated(
    annotations: dict[str, Any],
    category_ids: Sequence[int],
    rows: list[dict[str, Any]],
    metric: str,
    options: CocoOptions,
) -> Any:
    """Run faster-coco-eval; return its evaluator."""
    library = coco_library()
    ground_truth = library.COCO(annotations)
    evaluator = library.COCOeval_faster(
        ground_truth, ground_truth.loadRes(rows), "segm" if metric == "segm" else "bbox"
    )
    evaluator.params.imgIds = [image["id"] for image in annotations["images"]]
    evaluator.params.catIds = list(category_ids)  # whatever their class, in this order, and twice if two labels have it
    evaluator.params.maxDets = sorted(options.proposal_nums)
    evaluator.params.iouThrs = np.array(options.iou_thrs, float)
    evaluator.params.useCats = int(metric != "proposal")
    evaluator.evaluate()
    evaluator.accumulate()
    return evaluator


def _classwise(names: Mapping[int, str], evaluator: Any) -> dict[str, dict[str, float]]:
    """Return the AP of each class, by its name: over all IoU thresholds, at two of them, and by area."""
    precision = evaluator.eval["precision"][..., -1]
    thresholds = evaluator.params.iouThrs
    categories = list(evaluator.params.catIds)
    classes = {}
    for category, name in names.items():
        of_class = precision[:, :, categories.index(category)]
        parts = {
            "mAP": of_class[..., 0],
            "mAP_50": of_class[thresholds == 0.5, :, 0],
            "mAP_75": of_class[thresholds == 0.75, :, 0],
            **{f"mAP{end}": of_class[..., area] for area, end in enumerate(AREAS.values()) if end},
        }
        classes[name] = {name_of_part: mean_of_measured(part) for name_of_part, part in parts.items()}
    return classes


def classwise_table(classes: Mapping[str, Mapping[str, float]]) -> str:
    """Lay out the AP of each class."""
    heading = ["category", *next(iter(classes.values()), {})]
    return lay_out([heading, *([name, *(f"{ap:.3f}" for ap in row.values())] for name, row in classes.items())])


def mean_of_measured(values: NDArray[Any]) -> float:
    """Return the mean of the values that are measured; -1 if there are none."""
    measured = values[values > -1]
    return float(measured.mean()) if measured.size else -1.0
