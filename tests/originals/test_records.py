"""What tests/detect expects without MMDetection is what MMDetection returns."""

import json

import numpy as np
import pytest

from tests.originals.records import FOLDER, RECORDS, results

CASES = [(file, name) for file, record in RECORDS.items() for name in record.names]
TOLERANCES = {"panoptic": {"rtol": 0.01, "atol": 10}}  # a few pixels of a segment are decided by rounding


def leaves(value):
    """Return what nested lists and dictionaries hold, in order."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in (key, *leaves(value[key]))]
    return [leaf for element in value for leaf in leaves(element)] if isinstance(value, list) else [value]


@pytest.mark.parametrize("file", RECORDS)
def test_files_have_the_cases(file):
    recorded = json.loads((FOLDER / f"{file}.json").read_text())
    assert recorded.keys() == set(RECORDS[file].names)


@pytest.mark.parametrize(("file", "name"), CASES, ids=[f"{file}-{name}" for file, name in CASES])
def test_records_are_mmdetections(file, name):
    expected = leaves(json.loads((FOLDER / f"{file}.json").read_text())[name])
    actual = leaves(results(file, name))
    assert [type(leaf) for leaf in actual] == [type(leaf) for leaf in expected]
    numbers = [isinstance(leaf, (int, float)) for leaf in expected]
    words = [[leaf for leaf, number in zip(side, numbers, strict=True) if not number] for side in (actual, expected)]
    assert words[0] == words[1]
    values = [[leaf for leaf, number in zip(side, numbers, strict=True) if number] for side in (actual, expected)]
    np.testing.assert_allclose(*values, **TOLERANCES.get(file, {"rtol": 1e-3, "atol": 1e-5}))
