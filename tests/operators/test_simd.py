"""Kernels with a version for each instruction set: every version that this machine has gives what the oracle gives."""

import numpy as np
import pytest

from mmort._kernels.door import limit_simd, simd_level
from tests import front_ends
from tests.compare import assert_close, assert_same
from tests.operators import cases, test_golden

LEVELS = ("baseline", "avx2", "avx512")
CASES = [case for operator in ("deform_conv2d", "modulated_deform_conv2d") for case in cases.of(operator)]
RECORDED = [name for name in test_golden.ORDINARY if "DeformConv2d" in test_golden.GOLDEN[name]["op"]]


@pytest.fixture
def levels():
    """The levels of this machine; sets the limit back after the test."""
    yield range(LEVELS.index(simd_level()) + 1)
    limit_simd(len(LEVELS) - 1)


def run(level, run_case):
    limit_simd(level)
    assert simd_level() == LEVELS[level]
    return run_case()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_version_gives_what_the_oracle_gives(case, dtype, levels):
    """Without fused multiply-add its bits; with it the same bits whatever the width of the vectors."""
    arrays = tuple(array.astype(dtype) for array in case.arrays)
    wanted = front_ends.run_oracle(case.operator, arrays, case.attributes)
    results = [run(level, lambda: front_ends.run_numpy(case.operator, arrays, case.attributes)) for level in levels]
    (assert_close if case.tolerance == "close" else assert_same)(results[0], wanted, f"{case}")
    for result in results[1:]:
        assert_close(result, wanted, f"{case}")
        assert_same(result, results[1], f"{case}")


def test_without_fused_multiply_add_the_bits_are_those_of_the_original(levels):
    for name in RECORDED:
        assert_same(run(0, lambda name=name: test_golden.run_numpy(name)), test_golden.arrays(name, "out"), name)
