"""Group normalization as a custom operator: for numpy here, for torch in `example_ops.torch`.

ONNX Runtime gets it from the library at `library_path`.
"""

from pathlib import Path

from example_ops import _kernels
from mmort import schemas

OPERATORS = schemas.parse(_kernels.describe())
"""The rows of operators.c."""


def group_norm(x, num_groups: int, scale, bias, epsilon: float = 1e-5):
    """Normalize each group of channels to mean 0 and variance 1, then scale and shift each channel.

    Takes and returns float32.
    """
    (output,) = _kernels.call("group_norm", x=x, num_groups=num_groups, scale=scale, bias=bias, epsilon=epsilon)
    return output


def library_path():
    """Return the path of the library for ONNX Runtime."""
    return str(next(Path(__file__).parent.glob("libexample_ort.*")))
