"""The kernels, compiled from Cython: the mathematics of every operator and nothing else.

Each `.pyx` in the folders beside this file, one for each family, is free of Python: its functions work on pointers,
without the GIL, and are linked twice, into the extension module `numpy_api` and into the library for ONNX Runtime.
``bridge_c/mmk.h`` is their contract; ``operators.c`` has a row for each operator.
"""

try:
    from mmort._kernels.numpy_api import (
        as_choice,
        as_floating,
        as_integer,
        as_integers,
        as_number,
        as_real,
        as_rows,
        call,
        describe,
        get_num_threads,
        operators,
        parse_shape,
        set_num_threads,
        simd_level,
    )
except ModuleNotFoundError as error:
    if error.name != "mmort._kernels.numpy_api":
        raise
    raise ImportError(
        "mmort's compiled kernels are not here (is this the source folder?): run 'pip install -e .' in the source "
        "folder, or leave it to use an installed mmort"
    ) from None

__all__ = [
    "as_choice",
    "as_floating",
    "as_integer",
    "as_integers",
    "as_number",
    "as_real",
    "as_rows",
    "call",
    "describe",
    "get_num_threads",
    "operators",
    "parse_shape",
    "set_num_threads",
    "simd_level",
]
