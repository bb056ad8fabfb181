"""Every type that `mmort.detect` knows has a case, unless MMDetection 3 does not have the type."""

from typing import Any

from mmort.detect.entries import AROUND
from mmort.detect.loading import PARTS
from tests.originals.cases import CASES
from tests.originals.original import type_named


def _types(value: Any) -> set[str]:
    """Return the types that a config names."""
    if isinstance(value, dict):
        types = {str(value["type"]).rpartition(".")[2]} if isinstance(value.get("type"), str) else set()
        return types.union(*map(_types, value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*map(_types, value))
    return set()


def _known() -> set[str]:
    return {name for kind, types in PARTS.types.items() if kind != AROUND for name in types}


def test_every_type_has_a_case():
    used = _types([case.model for case in CASES.values()])
    assert len(used & _known()) > 100
    # What MMDetection builds where a config leaves it out is in its defaults.
    defaults = {"DeltaXYWHBBoxCoder", "DistancePointBBoxCoder", "MlvlPointGenerator", "SinePositionalEncoding"}
    missing = _known() - used - defaults
    in_mmdetection = {name for name in missing if type_named(name) is not None}
    assert not in_mmdetection, "types without a case in tests/originals/cases"
