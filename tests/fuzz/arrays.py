"""Random calls of the numpy API, hostile in shapes, dtypes, memory layouts, numbers and attributes.

python -m tests.fuzz.arrays --seconds 60 [--seed N] [--count N]

A call gives results or is refused with ValueError, TypeError or MemoryError, within 2 seconds and 500 MB; it leaves its
inputs as they are.
"""

import copy
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import mmort
from tests import front_ends
from tests.fuzz import hostile
from tests.fuzz.children import Fuzzer, main
from tests.fuzz.valid import VALID, make_call

OPERATORS = sorted(VALID)


def make(rng: random.Random, folder: Path) -> tuple[str, dict[str, Any]]:
    """Return an operator and arguments, of which one or several are hostile."""
    operator = rng.choice(OPERATORS)
    call = make_call(operator, np.random.default_rng(rng.getrandbits(64)))
    names = front_ends.array_names(getattr(mmort, operator), call.arrays, call.attributes)
    arguments: dict[str, Any] = dict(zip(names, call.arrays, strict=True)) | call.attributes
    change = rng.choice((0.1, 0.3, 1.0))
    for name, value in arguments.items():
        if rng.random() < change:
            make_hostile = hostile.array if isinstance(value, np.ndarray) else hostile.attribute
            arguments[name] = make_hostile(rng, value)
    if rng.random() < 0.05:
        del arguments[rng.choice(list(arguments))]
    if rng.random() < 0.05:
        arguments[rng.choice(("max_num", "offset", "iou_thr", "mode", "x"))] = hostile.attribute(rng, 1)
    return operator, arguments


def run(case: tuple[str, dict[str, Any]]) -> None:
    """Call the operator."""
    operator, arguments = case
    before = {name: copy.deepcopy(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # numpy's, of conversions
        try:
            results = getattr(mmort, operator)(**arguments)
        finally:
            for name, array in before.items():
                assert array.tobytes() == arguments[name].tobytes(), f"{operator}: {name} was changed"
    for result in [results] if isinstance(results, np.ndarray) else results:
        assert isinstance(result, np.ndarray)
        result.tobytes()  # every element can be read


if __name__ == "__main__":
    sys.exit(main(Fuzzer("numpy calls", make, run, refusals=(ValueError, TypeError, MemoryError), batch=500)))
