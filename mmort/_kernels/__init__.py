"""The kernels, compiled from Cython: the mathematics of every operator and nothing else.

Each `.pyx` beside this file is free of Python: its functions work on pointers, without the GIL, and are linked twice,
into the extension module `door` of the numpy API and into the library for ONNX Runtime.  ``bridge_c/mmk.h`` is their
contract; ``operators.c`` has a row for each operator.
"""

try:
    from mmort._kernels.door import call, describe, operators, parse_shape, simd_level
except ModuleNotFoundError as error:
    if error.name != "mmort._kernels.door":
        raise
    raise ImportError(
        "mmort's compiled kernels are not here (is this the source folder?): run 'pip install -e .' in the source "
        "folder, or leave it to use an installed mmort"
    ) from None

__all__ = ["call", "describe", "operators", "parse_shape", "simd_level"]
