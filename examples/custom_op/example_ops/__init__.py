"""Group normalization as an operator of one's own: for numpy here, for torch in `example_ops.torch`.

ONNX Runtime has it from the library at `library_path`.
"""

from pathlib import Path

import numpy as np

from example_ops import _door


def group_norm(x, num_groups, scale, bias, epsilon=1e-5):
    """Bring each group of an image's channels to mean 0 and variance 1, then scale and shift each channel."""
    arrays = tuple(np.ascontiguousarray(array, np.float32) for array in (x, scale, bias))
    (output,) = _door.call("group_norm", arrays, (int(num_groups), float(epsilon)))
    return output


def library_path():
    """Return the path of the library for ONNX Runtime."""
    return str(Path(__file__).with_name("libexample_ort.so"))
