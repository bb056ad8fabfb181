"""What all tests share: the seed, one OpenMP thread per process, and the number of threads restored after each test."""

import os

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


@pytest.fixture
def rng(request):
    """Return a random generator, the same for the same test and seed."""
    return np.random.default_rng([cases.SEED, *request.node.name.encode()])


@pytest.fixture(autouse=True)
def _same_threads():
    before = mmort.get_num_threads()
    yield
    mmort.set_num_threads(before)
