"""What all tests share: the seed, one OpenMP thread per process, what saves time, and the threads that are restored."""

import functools
import gc
import os
import sys

# Tests run in a process per core (see pyproject.toml); tests of threads set their number themselves.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

import mmort
from tests.operators import cases

# The same examples every time, unless another seed is asked for.
settings.register_profile("mmort", deadline=None, derandomize=cases.SEED == 0)
settings.load_profile("mmort")


def pytest_report_header():
    return f"TEST_SEED={cases.SEED}"


def pytest_collection_finish():
    """Do only once what otherwise takes a quarter of the time, and gives the same for each test."""
    _freeze()  # the modules and thousands of tests
    if "onnxscript" in sys.modules:
        _remember_between_exports()


def pytest_runtest_logfinish():
    """Freeze what the first export has imported, too: each export ends with a collection of all garbage."""
    if "torch.onnx._internal.exporter._core" in sys.modules:
        _freeze_once_more()


def _freeze():
    """Let collections of garbage not look at what there is now."""
    gc.collect()
    gc.freeze()


_freeze_once_more = functools.cache(_freeze)


def _remember_between_exports():
    """Keep what torch's exporter computes anew for each export, half of the time of a small one.

    It asks its 500 translations for their signatures, which onnxscript parses from source, and its dispatcher for the
    operators of each of 28 namespaces.
    """
    import torch
    from torch._export import utils
    from torch.onnx._internal.exporter import _schemas

    function = getattr(sys.modules["onnxscript"], "TracedOnnxFunction", None)
    if isinstance(getattr(function, "function_ir", None), property):
        function.function_ir = functools.cached_property(function.function_ir.fget)
        function.function_ir.__set_name__(function, "function_ir")
    if hasattr(_schemas, "op_signature_from_function"):  # older versions of torch have another
        _schemas.op_signature_from_function = functools.cache(_schemas.op_signature_from_function)
    materialize, registrations = utils._materialize_cpp_cia_ops, []

    def materialize_new():
        names = torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        if names != registrations:
            materialize()
            registrations[:] = names

    utils._materialize_cpp_cia_ops = materialize_new


@pytest.fixture
def rng(request):
    """Return a random generator, the same for the same test and seed."""
    return np.random.default_rng([cases.SEED, *request.node.name.encode()])


@pytest.fixture(autouse=True)
def _same_threads():
    before = mmort.get_num_threads()
    yield
    mmort.set_num_threads(before)
