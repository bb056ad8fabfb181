"""Models with mmort's operators as ONNX files: export, verification, portable files, upgrades of old files.

Importing this package needs numpy only: each function imports torch, onnx and ONNX Runtime when it is called.
"""

# As each function has the name of the package that it is in, it must be imported here and not on demand: whoever
# imports one of these packages first would otherwise get the package by that name.
from mmort.onnx.export import export as export
from mmort.onnx.export import register_symbolics as register_symbolics
from mmort.onnx.export import translation_table as translation_table
from mmort.onnx.portable import Coverage as Coverage
from mmort.onnx.portable import make_portable as make_portable
from mmort.onnx.upgrade import upgrade as upgrade
from mmort.onnx.verify import verify as verify
from mmort.onnx.verify.report import Report as Report
from mmort.onnx.verify.report import VerificationError as VerificationError
