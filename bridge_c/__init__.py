"""What every library of operators is built from, mmort's own and anybody's: see `mmort.build`.

`mmk.h` is the contract of a kernel and `operators.h` that of its row, what ONNX sees; `check.c` has what kernels call.
The doors know no operator: `door.pyx` serves numpy, `bridge.c` with `ort_abi.h` ONNX Runtime, and `describe.c` tells
both what there is.  The `.pxd` files are for kernels in Cython: ``from mmk cimport *``.
"""
