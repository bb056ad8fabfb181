"""The HTML report of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mmort._files.outputs import write_output
from mmort.evaluate.pages import render
from mmort.evaluate.parity.comparison import MIN_IOU, MIN_MASK_IOU, TOLERANCES, Comparison
from mmort.evaluate.parity.histogram import histogram
from mmort.evaluate.parity.image_pairs import DRAW_THRESHOLD, MAX_ROWS, image_pair, result_pair
from mmort.evaluate.parity.result import METRIC_TOLERANCE, MIN_AGREEMENT, Column, Parity
from mmort.evaluate.parity.task_comparison import ResultComparison


def write_report(parity: Parity, path: str | os.PathLike[str], *, subject: str, facts: Mapping[str, str]) -> None:
    """Write a comparison as an HTML file.

    Parameters
    ----------
    parity : Parity
    path : path
        The file to write.
    subject : str
        What was compared: the headline.
    facts : mapping of str to str
        How it was compared, by label: files, versions, settings.

    Raises
    ------
    ImportError
        If Jinja2 is not installed.
    OSError
        If the file cannot be written, or an image cannot be read.
    """
    values = {
        "parity": parity,
        "title": "; ".join(map(parity.verdict, parity.columns)),
        "subject": subject,
        "facts": facts,
        "metric_tolerance": METRIC_TOLERANCE * parity.columns[0].max_figure,
        "min_agreement": f"{MIN_AGREEMENT:.1%}",
    }
    comparison = parity.columns[0].comparison
    if isinstance(comparison, ResultComparison):
        limits = f"{TOLERANCES.atol:g} + {TOLERANCES.rtol:.1%}"
        values |= {
            "unit": comparison.unit,
            "rule": comparison.measure.rule.format(limits=limits),
            "models": [_entries_of_results(parity, column) for column in parity.columns],
        }
        write_output(path, render("parity_of_results.html", values, command="mmort parity"))
        return
    values |= {
        "models": [_entries_of_detections(parity, column) for column in parity.columns],
        "draw_threshold": DRAW_THRESHOLD,
        "max_rows": MAX_ROWS,
        "atol": f"{TOLERANCES.atol:g}",
        "rtol": f"{TOLERANCES.rtol:.1%}",
        "min_iou": MIN_IOU,
        "min_mask_iou": MIN_MASK_IOU,
    }
    write_output(path, render("parity.html", values, command="mmort parity"))


def _shared_entries(parity: Parity, column: Column) -> dict[str, Any]:
    """Return the entries of a model in both templates, beside its numbers."""
    return {"column": column, "verdict": parity.verdict(column), "summary": parity.summary(column)}


def _entries_of_detections(parity: Parity, column: Column) -> dict[str, Any]:
    """Return the entries of a detector."""
    detections = column.comparison
    assert isinstance(detections, Comparison)
    return {
        **_shared_entries(parity, column),
        "histogram": histogram(detections.scores, parity.reference, column.name),
        "pairs": [image_pair(example, parity.reference, column.name) for example in detections.examples],
    }


def _entries_of_results(parity: Parity, column: Column) -> dict[str, Any]:
    """Return the entries of a model of another task."""
    pairs = [result_pair(example, parity.reference, column.name) for example in column.comparison.examples]
    return {**_shared_entries(parity, column), "pairs": pairs}
