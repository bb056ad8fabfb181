"""The ONNX Runtime library: its path, its description of its operators, and sessions that know them.

The library needs no Python.  In other languages, pass the path that `library_path` returns to ONNX Runtime's function
for custom-operator libraries (``RegisterCustomOpsLibrary_V2`` in C).
"""

from mmort.ort.binding import Binding
from mmort.ort.library import describe, library_path, operators
from mmort.ort.sessions import register, session

__all__ = ["Binding", "describe", "library_path", "operators", "register", "session"]
