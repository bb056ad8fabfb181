"""What "equal" and "close" mean in these tests; test_compare.py proves that both can fail."""

import numpy as np


def assert_same(actual, expected, message=""):
    """Assert the same dtypes, shapes and values, NaN at the same positions, and zeros of the same sign."""
    assert len(actual) == len(expected), f"{message} {len(actual)} arrays instead of {len(expected)}"
    for i, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        _assert_form(got, wanted, f"{message} output {i}:")
        np.testing.assert_array_equal(got, wanted, err_msg=f"{message} output {i}")
        if wanted.dtype.kind == "f":
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(
                np.signbit(got)[numbers], np.signbit(wanted)[numbers], err_msg=f"{message} output {i}: sign of zero"
            )


def assert_close(actual, expected, message="", tolerance=None):
    """Assert equal integers, and floating-point numbers within a tolerance relative to their array's largest magnitude.

    Kernels sum in another order than the oracles, so last bits differ; NaN and infinities do not.
    """
    assert len(actual) == len(expected), f"{message} {len(actual)} arrays instead of {len(expected)}"
    for i, (got, wanted) in enumerate(zip(actual, expected, strict=True)):
        _assert_form(got, wanted, f"{message} output {i}:")
        if wanted.dtype.kind != "f":
            np.testing.assert_array_equal(got, wanted, err_msg=f"{message} output {i}")
            continue
        finite = np.isfinite(wanted)
        np.testing.assert_array_equal(np.isfinite(got), finite, err_msg=f"{message} output {i}: finite elements")
        np.testing.assert_array_equal(got[~finite], wanted[~finite], err_msg=f"{message} output {i}: NaN, infinities")
        scale = max(1.0, np.abs(wanted[finite].astype(np.float64)).max(initial=0))
        limit = (tolerance or {2: 2e-3, 4: 1e-5, 8: 1e-13}[wanted.dtype.itemsize]) * scale
        np.testing.assert_allclose(
            got[finite].astype(np.float64),
            wanted[finite].astype(np.float64),
            rtol=0,
            atol=limit,
            err_msg=f"{message} output {i}",
        )


def _assert_form(got, wanted, message):
    assert got.dtype == wanted.dtype, f"{message} {got.dtype} instead of {wanted.dtype}"
    assert got.shape == wanted.shape, f"{message} shape {got.shape} instead of {wanted.shape}"
