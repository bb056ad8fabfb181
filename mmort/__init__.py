"""Detection operators for numpy and ONNX Runtime: NMS of all kinds, RoIAlign, grid sampling, corner pooling and more.

The functions here take and return numpy arrays.  `mmort.ort` runs models that hold these operators in ONNX Runtime.
`Predictor` runs a detector's ONNX file on images, and gives `Detections`.
Importing mmort imports numpy, and neither torch nor onnxruntime.
"""

import sys
from typing import TYPE_CHECKING, Any

import mmort._interpreter  # noqa: F401 (first of all)
from mmort.ops import *
from mmort.ops import __all__ as _operators
from mmort.ort import library_path as get_onnxruntime_op_path

if TYPE_CHECKING:
    from mmort.predict import Detections as Detections
    from mmort.predict import Predictor as Predictor

__version__ = "0.1.0"
_LAZY = ("Detections", "Predictor")  # loaded when used, as they need more than numpy
_SUBPACKAGES = ("detect", "evaluate", "onnx", "predict", "torch")  # imported by who needs them
__all__ = [*_operators, "get_onnxruntime_op_path", *_LAZY]


def __dir__() -> list[str]:
    return sorted({*__all__, "__version__", "ort", *(name for name in _SUBPACKAGES if name in globals())})


def __getattr__(name: str) -> Any:
    if name in _SUBPACKAGES:
        raise AttributeError(f"mmort.{name} is not imported yet: import mmort.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'mmort' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    import mmort.predict

    return getattr(mmort.predict, name)
