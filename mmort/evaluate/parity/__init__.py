"""Prove on a data set that a model lost nothing: its metrics and its results, compared with a reference's."""

from mmort.evaluate.parity.comparison import Comparison, compare_image
from mmort.evaluate.parity.html_report import write_report
from mmort.evaluate.parity.result import Column, Parity
from mmort.evaluate.parity.run import ParityOptions, compare_models, parity
from mmort.evaluate.parity.task_comparison import Difference, Measure, ResultComparison

__all__ = [
    "Column",
    "Comparison",
    "Difference",
    "Measure",
    "Parity",
    "ParityOptions",
    "ResultComparison",
    "compare_image",
    "compare_models",
    "parity",
    "write_report",
]
