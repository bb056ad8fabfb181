"""The numbers that an ONNX file holds: its weights, and whatever else is constant in it."""

from __future__ import annotations

import math
from collections import Counter

import onnx

from mmort.onnx.graph import files, inspection


def count_parameters(path: files.PathLike) -> dict[str, int]:
    """Count the numbers in a file's initializers, by their type.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict of str to int
        The most frequent type first: weights of a detector are float32, or int8 after ``mmort quantize``; int64 are
        sizes and indices.

    Examples
    --------
    >>> from mmort.demo import MODEL
    >>> from mmort.onnx.parameters import count_parameters
    >>> next(iter(count_parameters(MODEL)))
    'float32'
    """
    counts: Counter[str] = Counter()
    model = files.load(path)
    graphs = [model.graph]
    for node in inspection.every_node(model):
        for attribute in node.attribute:
            graphs += [attribute.g, *attribute.graphs]
    for graph in graphs:
        for tensor in graph.initializer:
            name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
            counts[{"float": "float32", "double": "float64"}.get(name, name)] += math.prod(tensor.dims)
    return dict(counts.most_common())
