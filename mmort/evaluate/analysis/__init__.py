"""The errors of a detector on a data set, and the page of ``mmort test --report`` that shows them."""

from mmort.evaluate.analysis.analysis import Analysis, Curve, ImageAnalysis, analyze
from mmort.evaluate.analysis.errors import ImageErrors, Kind
from mmort.evaluate.analysis.report import write_report

__all__ = ["Analysis", "Curve", "ImageAnalysis", "ImageErrors", "Kind", "analyze", "write_report"]
