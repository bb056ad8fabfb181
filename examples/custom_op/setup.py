"""The build of the example: an extension module and an ONNX Runtime library from one kernel and one row."""

from setuptools import setup

import mmort.build

setup(
    **mmort.build.operators(
        extension="example_ops._kernels",
        library="example_ops.libexample_ort",
        sources=["src/example_ops/group_norm.pyx", "src/example_ops/operators.c"],
    )
)
