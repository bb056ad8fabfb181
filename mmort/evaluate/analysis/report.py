"""The report of an analysis: what its page shows of classes, curves, pairs of classes, and the worst images."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mmort._files.outputs import write_output
from mmort.detections.drawing import class_colour
from mmort.evaluate.analysis.analysis import ERRORS, Analysis
from mmort.evaluate.analysis.errors import MIN_OVERLAP, Kind
from mmort.evaluate.dataset import Dataset, DatasetImage, Metrics
from mmort.evaluate.pages import Side, render
from mmort.images import read_image

MAX_IMAGES = 12
"""Images that are shown, about 200 kB each."""

MAX_MATRIX_CLASSES = 40
"""Classes of the confusion matrix; of more, those with the most errors."""

MAX_NAMED_CURVES = 12
"""Classes that have a colour and a name in the legend; curves of more are thin and grey."""

MAX_CONFUSIONS = 10
"""Pairs of classes that are listed."""

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 560, 300, 44, 10, 40


@dataclass(frozen=True)
class Line:
    """A curve: the points of an SVG polyline, its colour if it has one, and the text when the mouse is over it."""

    name: str
    points: str
    colour: str | None


def write_report(
    analysis: Analysis,
    dataset: Dataset,
    path: str | os.PathLike[str],
    *,
    subject: str,
    facts: Mapping[str, str],
    metrics: Metrics | None = None,
) -> tuple[str, ...]:
    """Write an analysis as an HTML file.

    Parameters
    ----------
    analysis : Analysis
    dataset : Dataset
        The one that was analysed; its worst images are read.
    path : path
        The file to write.
    subject : str
        What was tested: the headline.
    facts : mapping of str to str
        How it was tested, by label.
    metrics : Metrics, optional
        The figures of the data set's own metrics, to show them, too.

    Returns
    -------
    tuple of str
        The images that could not be shown, with the reason.

    Raises
    ------
    ImportError
        If Jinja2 or OpenCV is not installed.
    OSError
        If the file cannot be written.
    """
    worst: list[dict[str, Any]] = []
    problems: list[str] = []
    for index in analysis.worst(MAX_IMAGES):
        try:
            worst.append(_image(analysis, index, dataset.images[index]))
        except (OSError, ValueError) as error:
            problems.append(f"{dataset.images[index].path}: {error}")
    shown = _matrix_classes(analysis)
    values = {
        "subject": subject,
        "facts": facts,
        "figures": metrics.figures if metrics is not None else {},
        "analysis": analysis,
        "totals": _totals(analysis),
        "classes": _class_rows(analysis),
        "error_names": [kind.label for kind in ERRORS],
        "lines": _lines(analysis),
        "plot": {"width": WIDTH, "height": HEIGHT, "left": LEFT, "top": TOP, "bottom": BOTTOM},
        "matrix": _matrix(analysis, shown),
        "matrix_is_cut": len(shown) < len(analysis.classes),
        "confusions": _confusions(analysis),
        "worst": worst,
        "problems": problems,
        "min_overlap": MIN_OVERLAP,
    }
    write_output(path, render("test.html", values, command="mmort test"))
    return tuple(problems)


def _totals(analysis: Analysis) -> dict[str, int]:
    """Return the counts of the headline."""
    kinds = analysis.kinds.sum(axis=0)
    return {
        "images": len(analysis.images),
        "objects": sum(curve.objects for curve in analysis.curves),
        "right": int(kinds[Kind.RIGHT]),
        "wrong": int(kinds[list(ERRORS)].sum()),
        "missed": int(analysis.missed.sum()),
    }


def _class_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the rows of the table of classes; classes with neither objects nor detections are left out."""
    rows = []
    for label, (name, curve) in enumerate(zip(analysis.classes, analysis.curves, strict=True)):
        kinds = analysis.kinds[label]
        if not (curve.objects or kinds.any()):
            continue
        precision, recall = curve.at(analysis.score_threshold)
        f1, score = curve.best_f1()
        rows.append(
            {
                "name": name,
                "colour": _css(class_colour(label)),
                "objects": curve.objects,
                "ap": curve.average_precision,
                "precision": precision,
                "recall": recall,
                "f1": f1,
                "best_score": score,
                "missed": int(analysis.missed[label]),
                "errors": kinds[list(ERRORS)].tolist(),
            }
        )
    return rows


def _lines(analysis: Analysis) -> list[Line]:
    """Return the precision-recall curves of classes with objects, and in the end their mean."""
    measured = [(label, curve) for label, curve in enumerate(analysis.curves) if curve.objects]
    has_colours = len(measured) <= MAX_NAMED_CURVES
    lines = [
        Line(
            f"{analysis.classes[label]}: AP {curve.average_precision:.3f}",
            _points(curve.interpolated),
            _css(class_colour(label)) if has_colours else None,
        )
        for label, curve in measured
    ]
    if measured:
        mean = np.mean([curve.interpolated for _, curve in measured], axis=0)
        lines.append(Line(f"all classes: AP {mean.mean():.3f}", _points(mean), None))
    return lines


def _points(precisions: NDArray[np.float64]) -> str:
    """Return the points of a curve in the plot."""
    x = LEFT + np.linspace(0, WIDTH - LEFT, len(precisions))
    y = TOP + (1 - precisions) * (HEIGHT - TOP)
    return " ".join(f"{left:.1f},{top:.1f}" for left, top in zip(x.tolist(), y.tolist(), strict=True))


def _css(colour: Sequence[int]) -> str:
    """Return a colour, blue, green, red, as CSS has it."""
    blue, green, red = colour
    return f"#{red:02x}{green:02x}{blue:02x}"


def _matrix_classes(analysis: Analysis) -> list[int]:
    """Return the labels in the confusion matrix: all, or those with the most errors."""
    wrong = analysis.confusion.copy()
    np.fill_diagonal(wrong, 0)
    errors = (wrong.sum(axis=0) + wrong.sum(axis=1))[:-1]
    return sorted(np.argsort(-errors, kind="stable")[:MAX_MATRIX_CLASSES].tolist())


def _matrix(analysis: Analysis, labels: Sequence[int]) -> dict[str, Any]:
    """Return the names and rows of the confusion matrix; a cell is a count and its share of the row."""
    indices = [*labels, len(analysis.classes)]
    counts = analysis.confusion[np.ix_(indices, indices)]
    shares = counts / np.maximum(analysis.confusion[indices].sum(axis=1, keepdims=True), 1)
    names = [analysis.classes[label] for label in labels]
    rows = [
        {"name": name, "cells": [*zip(row, share, strict=True)]}
        for name, row, share in zip([*names, None], counts.tolist(), shares.tolist(), strict=True)
    ]
    return {"names": names, "rows": rows}


def _confusions(analysis: Analysis) -> list[dict[str, Any]]:
    """Return the pairs of different classes that are confused most often."""
    pairs = analysis.confusion[:-1, :-1].copy()
    np.fill_diagonal(pairs, 0)
    order = np.argsort(-pairs, axis=None, kind="stable")[:MAX_CONFUSIONS].tolist()
    label_pairs = (divmod(index, len(analysis.classes)) for index in order)
    return [
        {"object": analysis.classes[truth], "detection": analysis.classes[label], "count": int(pairs[truth, label])}
        for truth, label in label_pairs
        if pairs[truth, label]
    ]


def _image(analysis: Analysis, index: int, of_dataset: DatasetImage) -> dict[str, Any]:
    """Draw an image twice: with its objects, those missed outlined, and with the detections, those wrong outlined."""
    image, pixels = analysis.images[index], read_image(of_dataset.path)
    height, width = pixels.shape[:2]
    objects = image.objects.as_detections(analysis.classes, (height, width))
    detections = image.result.as_detections(analysis.classes, (height, width))[image.visible]
    wrong, missed = image.wrong, image.missed
    kinds = image.errors.kinds[wrong].tolist()
    counts = [f"{kinds.count(kind)} {kind.label}" for kind in ERRORS if kind in kinds]
    sides = (
        Side.drawn(
            f"ground truth: {len(objects)} objects, {missed.sum() or 'none'} missed",
            "missing",
            pixels,
            objects,
            image.objects.boxes[missed],
        ),
        Side.drawn(
            f"detections: {len(detections)}, {wrong.sum() or 'none'} wrong{': ' if counts else ''}{', '.join(counts)}",
            "extra",
            pixels,
            detections,
            image.result.boxes[wrong],
        ),
    )
    return {"name": of_dataset.name, "sides": sides}
