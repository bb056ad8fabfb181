"""The cases of all operators as calls of torch operators: arrays become tensors, as keyword arguments."""

import numpy as np
import torch

import mmort
from tests import front_ends
from tests.operators import cases


def is_float(array):
    return array.dtype.kind == "f"


def takes_integers_for_floats(case):
    """Whether a case has integers where only the numpy API accepts them: as floating-point inputs."""
    types = {tensor["name"]: tensor["type"] for tensor in front_ends.row_of(case.operator)["inputs"]}
    names = front_ends.array_names(getattr(mmort, case.operator), case.arrays, case.attributes)
    return any(not is_float(array) and types[name] == "float32" for name, array in zip(names, case.arrays, strict=True))


CASES = [
    case for case in cases.CASES if front_ends.row_of(case.operator) is not None and not takes_integers_for_floats(case)
]


def nonempty(operator):
    """The first case of an operator without an empty array."""
    return next(case for case in CASES if case.operator == operator and all(array.size for array in case.arrays))


def tensors_of(arrays, dtype=None):
    return tuple(torch.tensor(array, dtype=dtype if is_float(array) else None) for array in map(np.array, arrays))


def arguments_of(case, dtype=None):
    names = front_ends.array_names(getattr(mmort, case.operator), case.arrays, case.attributes)
    return dict(zip(names, tensors_of(case.arrays, dtype), strict=True)) | case.attributes


def flat(results):
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def to_numpy(results):
    return tuple(tensor.numpy() for tensor in flat(results))


ROIS = torch.tensor(
    [[0, 1.3, 2.2, 12, 9], [1, -5, -3, 20, 30], [1, 3, 3, 1, 1], [0, 2.1, 2.2, 2.3, 2.4], [0, 90, 90, 99, 99]]
).double()
"""Regions inside maps, across their edges, turned inside out, smaller than a pixel, and outside."""


def random_boxes(rng, n=40):
    """Boxes, scores and classes."""
    corners = rng.random((n, 2)) * 20
    boxes = np.concatenate([corners, corners + 1 + rng.random((n, 2)) * 15], axis=1)
    return tensors_of((boxes.astype(np.float32), rng.random(n).astype(np.float32), rng.integers(0, 3, n)))
