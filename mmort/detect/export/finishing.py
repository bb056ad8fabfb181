"""Finishing a traced graph: metadata, and none of torch's; and the check of the input that may be left out."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.helper
from torch import Tensor

import mmort
from mmort.detect.detector import Detector
from mmort.onnx.graph import inspection
from mmort.onnx.verify.sessions import feeds, open_session
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


def check_optional(path: Path, args: Sequence[Tensor]) -> None:
    """Check that a file without ``img_shape``, the last argument, computes the same bits as with the input's size."""
    batch, _, height, width = args[0].shape
    session = open_session(path)
    others = feeds(session, args[:-1])
    defaults = session.run(None, others)
    explicit = session.run(None, others | {"img_shape": np.array([[height, width]] * batch, np.int64)})
    if not all(np.array_equal(default, given) for default, given in zip(defaults, explicit, strict=True)):
        raise ValueError(
            "export: without img_shape the file must detect the same as with the size of the input, got differences"
        )
