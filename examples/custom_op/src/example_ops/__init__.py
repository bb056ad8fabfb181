"""Group normalization as an operator of one's own: for numpy here, for torch in `example_ops.torch`.

ONNX Runtime has it from the library at `library_path`.
"""

from pathlib import Path

import numpy as np

from example_ops import _door
from mmort import schemas

OPERATORS = schemas.parse(_door.describe())
"""What ONNX knows of the operators: the rows of operators.c."""


def group_norm(x, num_groups: int, scale, bias, epsilon: float = 1e-5):
    """Bring each group of an image's channels to mean 0 and variance 1, then scale and shift each channel.

    Takes and returns float32.
    """
    arrays = tuple(np.asarray(array, order="C") for array in (x, scale, bias))
    if any(array.dtype != np.float32 for array in arrays):
        raise TypeError("group_norm: x, scale and bias must be float32")
    (output,) = _door.call("group_norm", arrays, (int(num_groups), float(epsilon)))
    return output


def library_path():
    """Return the path of the library for ONNX Runtime."""
    return str(next(Path(__file__).parent.glob("libexample_ort.*")))
