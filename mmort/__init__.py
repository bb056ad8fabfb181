"""Detection operators for numpy and ONNX Runtime: NMS of all kinds, RoIAlign, grid sampling, corner pooling and more.

The functions here take and return numpy arrays.  `mmort.ort` runs models that hold these operators in ONNX Runtime.
Importing mmort imports numpy, and neither torch nor onnxruntime.
"""

from mmort._threads import get_num_threads, set_num_threads
from mmort.ops import *
from mmort.ops import __all__ as _operators
from mmort.ort import library_path as get_onnxruntime_op_path

__version__ = "0.1.0"
__all__ = [*_operators, "get_num_threads", "get_onnxruntime_op_path", "set_num_threads"]
