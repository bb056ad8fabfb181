"""Rules of JSON values that strangers may have written: a check, and the words for what it requires."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from mmort.limits import MAX_ENTRY_CHARACTERS

Check = Callable[[Any], bool]
Rule = tuple[Check, str]

FLAG: Rule = (lambda value: isinstance(value, bool), "true or false")
TEXT: Rule = (lambda value: isinstance(value, str), "a text")
OBJECT: Rule = (lambda value: isinstance(value, dict), "an object")


def parsed(name: str, text: str, *, finite: bool = True) -> Any:
    """Return an entry's value.

    Raises
    ------
    ValueError
        If the text is not JSON, too long, or, if they must be `finite`, has numbers that are not.
    """

    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"numbers must be finite, got {constant}")

    if len(text) > MAX_ENTRY_CHARACTERS:
        raise ValueError(f"{name} must have at most {MAX_ENTRY_CHARACTERS} characters, got {len(text)}")
    try:
        return json.loads(text, parse_constant=refuse if finite else None)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name} is not JSON: {error}") from None


def check_entries(name: str, values: Any, schema: Mapping[str, Rule | Mapping[str, Any]]) -> None:
    """Refuse values that are not of a schema; names that it does not have are of a later mmort."""
    require(name, values, OBJECT)
    for key, rule in schema.items():
        if key not in values:
            continue
        if isinstance(rule, Mapping):
            if values[key] is not None:
                check_entries(f"{name}.{key}", values[key], rule)
        else:
            require(f"{name}.{key}", values[key], rule)


def require(name: str, value: Any, rule: Rule) -> None:
    """Refuse a value that fails a check."""
    check, requirement = rule
    if not check(value):
        text = json.dumps(value)[:60] if not isinstance(value, dict) else "an object"
        raise ValueError(f"{name} must be {requirement}, got {text}")


def is_number(value: Any, low: float = -math.inf, high: float = math.inf) -> bool:
    """Return whether a value is a finite number in a range that has float32."""
    is_real = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_real and abs(value) < 1e38 and low <= value <= high


def integer(low: int, high: int) -> Rule:
    """Return the rule of integers in a range."""

    def check(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high

    return check, f"an integer from {low} to {high}"


def number(low: float = -math.inf, high: float = math.inf) -> Rule:
    """Return the rule of numbers in a range."""
    limits = "" if low == -math.inf else f" from {low:g} to {high:g}"
    return lambda value: is_number(value, low, high), f"a finite number{limits}"


def words(*choices: str) -> Rule:
    """Return the rule of some words."""
    return lambda value: isinstance(value, str) and value in choices, " or ".join(map(repr, choices))


def optional(rule: Rule) -> Rule:
    """Return a rule that allows null besides."""
    check, requirement = rule
    return lambda value: value is None or check(value), f"{requirement}, or null"
