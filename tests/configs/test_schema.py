"""Values of entries: what a field's annotation does not have is refused with a message that names the entry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mmort.configs.schema import Config, Schema, at_least, only, read_entries


@dataclass(frozen=True, kw_only=True)
class Entries(Schema):
    """Some of each annotation that is checked."""

    means: Sequence[float] = (0.0, 0.0)
    sizes: list[int] | None = None
    size: int | tuple[int, int] = 7
    factor: float | Sequence[float] = 1.0
    mode: str = "avg"
    layer: Config | None = None
    count: int = at_least(1, default=1)
    nothing: None = only(None)
    anything: Any = None


@pytest.mark.parametrize(
    ("entry", "value", "required"),
    [
        ("means", None, "a list, each element a number, got None"),
        ("means", [0.0, None], "a list, each element a number, got"),
        ("means", 1.0, "a list, each element a number, got"),
        ("sizes", (1, 2.5), "a list, each element an integer, got"),
        ("sizes", [True], "a list, each element an integer, got"),
        ("size", [1, 2, 3], "an integer or 2 elements, each an integer, got"),
        ("size", (1, 2.5), "an integer or 2 elements, each an integer, got"),
        ("factor", "2", "a number or a list, each element a number, got '2'"),
        ("mode", 3, "a string, got 3"),
        ("layer", True, "a dict, got True"),
        ("count", 0, "an integer of at least 1, got 0"),
        ("count", float("nan"), "an integer of at least 1, got nan"),
        ("nothing", 1, "None, got 1"),
    ],
)
def test_values_of_another_type_are_refused(entry, value, required):
    with pytest.raises(ValueError, match=f"{entry} of thing must be {required}"):
        read_entries("thing", Entries, {entry: value})


def test_values_that_fit():
    values = {"means": (1, 2.5), "sizes": (3, 4), "factor": [1, 2], "mode": "max", "layer": {"type": "ReLU"}}
    entries = read_entries("thing", Entries, {**values, "count": 2, "anything": {1: 2}})
    assert (entries.means, entries.sizes, entries.layer) == ((1, 2.5), (3, 4), {"type": "ReLU"})
    assert read_entries("thing", Entries, {"sizes": None, "layer": None}).sizes is None
