"""The metadata of a detector's file: mmort's entries, and none of the traces that torch's exporter leaves."""

from __future__ import annotations

import json
from typing import Any

import onnx
import onnx.helper

import mmort
from mmort.detect.detector import Detector
from mmort.onnx.graph import inspection
from mmort.predict import Preprocessing


def metadata(detector: Detector, preprocessing: Preprocessing, thresholds: dict[str, Any]) -> dict[str, str]:
    """Return the metadata of a detector's file."""
    entries = {
        "family": detector.family,
        "classes": json.dumps(detector.classes),
        "preprocessing": json.dumps(preprocessing.to_dict()),
        "thresholds": json.dumps(thresholds),
        "mmort_version": mmort.__version__,
    }
    return entries if detector.angle_version is None else entries | {"angle_version": detector.angle_version}


def remove_traces(model: onnx.ModelProto) -> None:
    """Remove what torch's exporter notes at nodes and tensors: stack traces, with paths of this machine."""
    inner = [
        attribute.g for node in inspection.every_node(model) for attribute in node.attribute if attribute.HasField("g")
    ]
    for graph in (model.graph, *inner):
        for part in (graph, *graph.node, *graph.value_info, *graph.initializer, *graph.input, *graph.output):
            del part.metadata_props[:]
    for function in model.functions:
        for part in (function, *function.node, *function.value_info):
            del part.metadata_props[:]
