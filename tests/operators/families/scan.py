"""Cumulative extrema: cummax and cummin."""

import numpy as np

from tests.operators.case import INF, NAN, SIZES, add, oracle, refuse, zeros

# ---- oracles ---------------------------------------------------------------------------------------------------------


@oracle
def cummax(input, dim):
    return _scan(input, dim, np.greater_equal)


@oracle
def cummin(input, dim):
    return _scan(input, dim, np.less_equal)


def _scan(input, dim, replaces):
    values, indices = input.copy(), np.zeros(input.shape, np.int64)
    lines, line_indices = np.moveaxis(values, dim, 0), np.moveaxis(indices, dim, 0)
    for i in range(1, len(lines)):
        best, here = lines[i - 1], lines[i]
        new = replaces(here, best) | (here != here)  # a NaN best compares false, so it stays until the next NaN
        lines[i] = np.where(new, here, best)
        line_indices[i] = np.where(new, i, line_indices[i - 1])
    return values, indices


# ---- cases -----------------------------------------------------------------------------------------------------------


def tensor(*shape, levels=0):
    """Return a builder of a tensor; of a few `levels`, if any, so that elements tie, with zeros of both signs."""

    def build(rng):
        if levels:
            return (np.where(rng.random(shape) < 0.5, -0.0, rng.integers(0, levels, shape)).astype(np.float32),)
        return (rng.standard_normal(shape).astype(np.float32),)

    return build


def holes(*shape):
    """Return a builder of a tensor with NaN and infinities."""

    def build(rng):
        array = rng.standard_normal(shape).astype(np.float32)
        for value in (NAN, INF, -INF):
            array[rng.random(shape) < 0.12] = value
        return (array,)

    return build


for operator in ("cummax", "cummin"):
    for n in SIZES:
        add(operator, f"vector{n}", tensor(n), dim=0)
        add(operator, f"last{n}", tensor(9, n), dim=-1)
        add(operator, f"first{n}", tensor(n, 9), dim=0)
        add(operator, f"middle{n}", tensor(3, n, 5), dim=1)
        add(operator, f"across{n}", tensor(3, 4, n), dim=1)
    for dim in range(-5, 5):
        add(operator, f"dim{dim}", tensor(2, 3, 4, 1, 5, levels=3), dim=dim)
        add(operator, f"holes{dim}", holes(3, 2, 5, 4, 9), dim=dim)
    add(operator, "no_elements", tensor(2, 0, 1), dim=0)
    add(operator, "no_elements_along", tensor(2, 0, 1), dim=1)
    add(operator, "max_dimensions", tensor(*(1,) * 14, 2, 3), dim=15)
    for dim in (0, 1, 2):
        add(operator, f"many{dim}", tensor(64, 65, 66), dim=dim)

# ---- refusals --------------------------------------------------------------------------------------------------------

for operator in ("cummax", "cummin"):
    refuse(operator, "input must have at least one dimension, got a scalar", zeros(), dim=0)
    for dim in (2, -3, 2**40, -(2**63)):
        refuse(operator, f"dim must be in [-2, 1] for an input of 2 dimensions, got {dim}", zeros(2, 3), dim=dim)
    refuse(operator, "dim must be in [-1, 0] for an input of 1 dimensions, got 1", zeros(0), dim=1)
    refuse(operator, "arrays may have up to 16 dimensions, got 17", zeros(*(1,) * 17), dim=0)
