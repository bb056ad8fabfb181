"""The HTML report of a comparison."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from mmort._files.outputs import write_output
from mmort.evaluate.pages import render
from mmort.evaluate.parity.comparison import MIN_IOU, MIN_MASK_IOU, TOLERANCES
from mmort.evaluate.parity.histogram import histogram
from mmort.evaluate.parity.image_pairs import DRAW_THRESHOLD, MAX_ROWS, image_pair
from mmort.evaluate.parity.result import METRIC_TOLERANCE, MIN_AGREEMENT, Column, Parity


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
        "models": [_model(parity, column) for column in parity.columns],
        "draw_threshold": DRAW_THRESHOLD,
        "max_rows": MAX_ROWS,
        "atol": f"{TOLERANCES.atol:g}",
        "rtol": f"{TOLERANCES.rtol:.1%}",
        "min_iou": MIN_IOU,
        "min_mask_iou": MIN_MASK_IOU,
        "metric_tolerance": METRIC_TOLERANCE,
        "min_agreement": f"{MIN_AGREEMENT:.1%}",
    }
    write_output(path, render("parity.html", values, command="mmort parity"))


def _model(parity: Parity, column: Column) -> dict[str, Any]:
    """Return the entries of a model in the template, beside its numbers."""
    detections = column.detections
    return {
        "column": column,
        "verdict": parity.verdict(column),
        "summary": parity.summary(column),
        "histogram": histogram(detections.scores, parity.reference, column.name),
        "pairs": [image_pair(example, parity.reference, column.name) for example in detections.examples],
    }
