"""The kit that libraries of operators are built from, mmort's own and those of other packages: see `mmort.build`.

``mmk.h`` is the contract of a kernel and ``operators.h`` that of its row, with shapes as in ``shapes.h``; ``check.c``,
``run.c``, ``shapes.c`` and ``rows.c`` are called by kernels and front ends. ``numpy_api.pyx`` is the numpy API, with
arguments converted as in ``arguments.pxi``, on arrays as in ``ndarrays.pxd``; ``pool.c`` and ``threads.h`` are its
threads. ``node.c``, ``attributes.c``, ``inference.c`` and ``registry.c`` make the ONNX Runtime library, with the
declarations of ``ort_abi.h``. ``describe.c`` describes the rows. Kernels in Cython begin with ``from mmk cimport *``.
"""
