"""Models with mmort's operators as ONNX files: export, verification, portable files, upgrades of old files.

Importing this package needs numpy only: each function imports torch, onnx and ONNX Runtime when it is called.
"""

# Some functions have the name of the package that they are in.  They are imported here, not on demand, as otherwise
# whoever imported such a package first would get the package by that name.
from mmort.onnx.accelerate import accelerate
from mmort.onnx.accelerate.report import Acceleration
from mmort.onnx.adopt import adopt
from mmort.onnx.adopt.summary import Adoption
from mmort.onnx.export import export, register_symbolics, translation_table
from mmort.onnx.input_files import read_inputs
from mmort.onnx.portable import make_portable
from mmort.onnx.portable.coverage import Coverage
from mmort.onnx.quantize import quantize
from mmort.onnx.quantize.report import Quantization
from mmort.onnx.upgrade import upgrade
from mmort.onnx.verify import verify
from mmort.onnx.verify.report import Report, VerificationError

__all__ = [
    "Acceleration",
    "Adoption",
    "Coverage",
    "Quantization",
    "Report",
    "VerificationError",
    "accelerate",
    "adopt",
    "export",
    "make_portable",
    "quantize",
    "read_inputs",
    "register_symbolics",
    "translation_table",
    "upgrade",
    "verify",
]
