"""Kernels, functions, rows of the bridge, cases and documents name the same operators, shapes and attributes."""

import importlib
import math
import pathlib
import pkgutil
import re
import types

import numpy as np
import pytest

import mmort
from mmort import _kernels, ops, schemas
from tests import front_ends
from tests.operators import cases

COMPOSED = {"batched_nms", "multiclass_nms_rotated", "point_sample"}
"""Functions that are computed with kernels of other functions."""

SETTINGS = {"get_num_threads", "set_num_threads"}
"""Functions that are no operators."""

DOCUMENT = pathlib.Path(__file__).parents[2] / "docs" / "operators.md"
SECTIONS = re.findall(r"^## (\w+)$", DOCUMENT.read_text(encoding="utf-8"), re.M)


def assert_names(subject, actual, expected):
    actual, expected = set(actual), set(expected)
    assert actual == expected, f"{subject}: missing {sorted(expected - actual)}, too many {sorted(actual - expected)}"


def test_assert_names_can_fail():
    for result in ({"one"}, {"one", "two", "three"}):
        with pytest.raises(AssertionError, match=r"the list: missing \[.*\], too many \[.*\]"):
            assert_names("the list", result, {"one", "two"})


def test_same_operators_everywhere():
    kernels = _kernels.operators()
    functions = kernels + tuple(COMPOSED)
    assert len(set(kernels)) == len(kernels)
    assert_names("mmort.ops.__all__", set(ops.__all__) - SETTINGS, functions)
    assert_names("public functions", {name for name in mmort.__all__ if name in functions}, functions)
    assert_names("rows of operators.c", schemas.kernels(), kernels)
    in_onnx = {name for name, operator in schemas.kernels().items() if operator.domain}
    assert_names("operators of the library", {row["kernel"] for row in front_ends.ROWS}, in_onnx)
    assert_names("tests/operators/families, cases", cases.OPERATORS, functions)
    assert_names("tests/operators/families, oracles", cases.ORACLES, functions)
    assert set(SECTIONS) <= set(functions)  # remarks and pictures; the reference is the docstrings


def test_public_names_are_there():
    assert len(set(mmort.__all__)) == len(mmort.__all__)
    for name in mmort.__all__:
        assert callable(getattr(mmort, name))
        assert getattr(mmort, name).__doc__


def test_all_names_every_function_of_the_modules():
    """A function that is not listed would be unreachable."""
    written = set()
    for info in pkgutil.iter_modules(ops.__path__):
        if info.name[0] == "_":
            continue
        module = importlib.import_module(f"mmort.ops.{info.name}")
        written |= {
            name
            for name, value in vars(module).items()
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__ and name[0] != "_"
        }
    assert_names("mmort.ops.__all__", ops.__all__, written)


def test_rows_are_unique():
    names = [(row["domain"], row["type"]) for row in front_ends.ROWS]
    assert len(set(names)) == len(names)


def row_ids(row):
    return f"{row['domain']}.{row['type']}"


def fitting(formal):
    """Return an array of the shape in the row, with 1 for every name."""
    sizes = []
    for dimension in schemas.Tensor(**formal).dimensions:
        if isinstance(dimension, schemas.Product):
            sizes.append(math.prod(factor for factor in dimension.factors if isinstance(factor, int)))
        elif dimension is not ...:
            sizes.append(dimension if isinstance(dimension, int) else 1)
    return np.zeros(sizes or [1], formal["type"])


def session_that_takes(row, arrays):
    """Return a session with the attributes of the first case that accept these arrays."""
    for case in cases.of(row["kernel"]):
        session = front_ends.make_session(
            front_ends.make_model(row, front_ends.onnx_attributes(row["kernel"], case.attributes))
        )
        try:
            front_ends.run_session(session, arrays)
        except front_ends.ORT_ERRORS:
            continue
        return session
    raise AssertionError(f"tests/operators/families: {row['kernel']} needs a case with attributes for inputs of size 1")


WITH_RANK = [
    (row, i) for row in front_ends.ROWS for i, formal in enumerate(row["inputs"]) if "..." not in formal["shape"]
]


@pytest.mark.parametrize(
    ("row", "i"), WITH_RANK, ids=lambda value: row_ids(value) if isinstance(value, dict) else str(value)
)
def test_rows_have_the_shapes_that_the_kernels_check(row, i):
    arrays = [fitting(formal) for formal in row["inputs"]]
    session = session_that_takes(row, arrays)
    arrays[i] = arrays[i][None, None]  # two more: multiclass_nms takes boxes of two ranks
    formal = row["inputs"][i]
    text = f"{row['kernel']}: {formal['name']} must be {formal['shape']}, got {list(arrays[i].shape)}".replace("'", "")
    with pytest.raises(front_ends.ORT_ERRORS, match=f"{re.escape(text)}$"):
        front_ends.run_session(session, arrays)
