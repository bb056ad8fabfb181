"""Small detectors: a case for each family and each part that `mmort.detect` knows."""

from tests.originals.cases.case import Case
from tests.originals.cases.dense import CASES as _DENSE
from tests.originals.cases.masks import CASES as _MASKS
from tests.originals.cases.parts import CASES as _PARTS
from tests.originals.cases.query import CASES as _QUERY
from tests.originals.cases.rotated import CASES as _ROTATED
from tests.originals.cases.texts import CASES as _TEXTS
from tests.originals.cases.two_stage import CASES as _TWO_STAGE

CASES: dict[str, Case] = {**_DENSE, **_TWO_STAGE, **_QUERY, **_TEXTS, **_MASKS, **_PARTS, **_ROTATED}
