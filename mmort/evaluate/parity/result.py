"""The result of a comparison over a data set: metrics and results of each model, a verdict, and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mmort.evaluate.parity.agreement import Agreement
from mmort.predict.output import count_text
from mmort.tables import lay_out

METRIC_TOLERANCE = 0.0005
"""Metrics of equal models differ by less: three digits of the difference are 0.000."""

MIN_AGREEMENT = 0.999
"""The smallest share of equal detections of equal models: rounding decides about scores at a threshold."""


@dataclass(frozen=True)
class Column:
    """A model compared with the reference.

    Attributes
    ----------
    metrics : mapping of str to float
        The model's, by MMDetection's names.
    differences : mapping of str to float
        The model's metrics minus the reference's.
    comparison : Comparison or ResultComparison
        Of the results in each image.
    max_figure : float, default 1
        The largest value that metrics have; 100 if they are in percent.
    """

    metrics: Mapping[str, float]
    differences: Mapping[str, float]
    comparison: Agreement[Any]
    max_figure: float = 1.0

    @property
    def name(self) -> str:
        """The model's name."""
        return self.comparison.name

    @property
    def differing_metrics(self) -> list[str]:
        """The names of the metrics that differ by the tolerance or more."""
        tolerance = METRIC_TOLERANCE * self.max_figure
        return [name for name, difference in self.differences.items() if abs(difference) >= tolerance]

    @property
    def equal(self) -> bool:
        """Whether the model equals the reference, within the tolerances; not if nothing was compared."""
        agreement = self.comparison.agreement if self.comparison.expected else 0
        return not self.differing_metrics and agreement >= MIN_AGREEMENT


@dataclass(frozen=True)
class Parity:
    """Several models on a data set, compared with the first one, the reference; prints as a table.

    Attributes
    ----------
    reference : str
        The name of the reference.
    metrics : mapping of str to float
        The reference's, by MMDetection's names.
    columns : tuple of Column
        The other models.
    """

    reference: str
    metrics: Mapping[str, float]
    columns: tuple[Column, ...]

    @property
    def ok(self) -> bool:
        """Whether all models equal the reference, within the tolerances."""
        return all(column.equal for column in self.columns)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yield the text of each cell: metric, reference, then value and difference of each model."""
        for name, value in self.metrics.items():
            cells = [name, metric_text(value)]
            for column in self.columns:
                difference = column.differences[name] if value >= 0 else None
                cells += [metric_text(column.metrics[name]), difference_text(difference)]
            yield tuple(cells)

    def verdict(self, column: Column) -> str:
        """Return whether a model equals the reference, in words."""
        return f"{column.name} {'equals' if column.equal else 'differs from'} {self.reference}"

    def summary(self, column: Column) -> str:
        """Describe in a sentence or two how a model compares with the reference."""
        comparison, differing = column.comparison, column.differing_metrics
        if not comparison.expected:
            return f"{self.reference} found nothing, so nothing was compared."
        if differing:
            largest = max(differing, key=lambda name: abs(column.differences[name]))
            difference = difference_text(column.differences[largest])
            metrics = f"{len(differing)} of {len(self.metrics)} metrics differ, {largest} by {difference}. "
        elif self.metrics:
            first = next(iter(self.metrics))
            metrics = f"{first} is {metric_text(self.metrics[first])}, and no metric differs. "
            if max(*self.metrics.values(), *column.metrics.values()) <= 0:
                metrics += (
                    f"But {self.reference} and {column.name} find none of the data set's objects, which proves "
                    "nothing: are its classes, annotations and images those of the detector? "
                )
        else:
            metrics = ""
        is_stated = self.metrics or comparison.unit == "images"
        images = "" if is_stated else f" in {count_text(comparison.images, 'image')}"
        share = f"{comparison.matched:,} of {comparison.expected:,} {comparison.unit}{images} are equal"
        if comparison.agreement < 1:
            share += f" ({comparison.agreement:.2%}), {comparison.counts}"
        required = f" {MIN_AGREEMENT:.1%} are required." if comparison.agreement < MIN_AGREEMENT else ""
        return f"{metrics}{share}.{required}"

    def __str__(self) -> str:
        """Lay out the metrics and the counts of results, and a line for each model."""
        heading, counts = (
            ["", self.reference],
            [self.columns[0].comparison.unit, f"{self.columns[0].comparison.expected:,}"],
        )
        for column in self.columns:
            heading += [column.name, "difference"]
            counts += [f"{column.comparison.found:,}", f"{column.comparison.matched:,} equal"]
        verdicts = [
            f"{self.verdict(column)}: {self.summary(column)} {column.comparison.drift}".rstrip()
            for column in self.columns
        ]
        return "\n".join([lay_out([heading, *self.rows(), counts]), *verdicts])


def metric_text(value: float) -> str:
    """Write a metric with four digits; a dash for -1, where the data set has nothing to measure."""
    return "-" if value < 0 else f"{value:.4f}"


def difference_text(value: float | None) -> str:
    """Write a difference of metrics with its sign, 0.0000 without one; a dash for None."""
    if value is None:
        return "-"
    return "0.0000" if abs(value) < 0.00005 else f"{value:+.4f}"
