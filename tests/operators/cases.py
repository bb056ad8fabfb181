"""All cases of all operators: every front end runs them, and the modules in families/ hold them with their oracles."""

from functools import cache

from tests.operators import families  # noqa: F401 (its modules add to the lists)
from tests.operators.case import CASES, ORACLES, REFUSALS, SEED, SIZES, Case, Refusal, given

__all__ = ["CASES", "OPERATORS", "ORACLES", "REFUSALS", "SEED", "SIZES", "Case", "Refusal", "given", "of", "ordinary"]

OPERATORS = sorted({case.operator for case in CASES})


@cache  # thousands of tests ask
def of(operator):
    """Return the cases of an operator."""
    return tuple(case for case in CASES if case.operator == operator)


@cache
def ordinary(operator, count=None):
    """Return an operator's first case without empty arrays, of `count` arrays or of as many as it takes."""
    full = [case for case in of(operator) if all(array.size for array in case.arrays)]
    assert full, f"families: {operator} needs a case without empty arrays"
    count = count or max(len(case.arrays) for case in full)
    fitting = [case for case in full if len(case.arrays) == count]
    assert fitting, f"families: {operator} needs a case of {count} arrays, none of them empty"
    return fitting[0]
