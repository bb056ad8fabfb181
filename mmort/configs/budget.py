"""A limit on time and memory: reading a config takes steps from a budget, so that no config takes long."""

from __future__ import annotations

from typing import Any

from mmort.limits import MAX_CONFIG_DEPTH, MAX_CONFIG_INTEGER_BITS, MAX_CONFIG_STEPS

# What takes longer than a step, in steps.  `python -m tests.fuzz.configs` measures.
FILE = 2_000
BYTE = 10  # of a config's text: parsing it takes up to 850 bytes of memory and 2.5 us
YAML_EVENT = 50
FORMATTED_FIELD = 100
CALL = 5
DICT = 3
COMPREHENSION = 10


class Budget:
    """The remaining steps for a config and its bases.

    A step is a syntax node evaluated, or an element or character handled.
    """

    def __init__(self, steps: int = MAX_CONFIG_STEPS) -> None:
        self.steps = steps

    def pay(self, steps: int) -> None:
        """Take steps; ValueError if fewer are left."""
        self.steps -= steps
        if self.steps < 0:
            raise ValueError("this takes more steps or memory than any config needs")

    def pay_for(self, value: Any) -> None:
        """Take a step for each element of a value, nested ones included: the cost of a comparison, a hash or a copy."""
        stack = [(value, 0)]
        while stack:
            value, depth = stack.pop()
            if depth > MAX_CONFIG_DEPTH:
                raise ValueError(f"containers are nested more than {MAX_CONFIG_DEPTH} deep")
            self.pay(1 + len(value) if isinstance(value, (str, bytes, range)) else 1)
            check_integer(value)
            if isinstance(value, dict):
                self.pay(DICT)
                stack += [(item, depth + 1) for pair in dict.items(value) for item in pair]
            elif isinstance(value, (list, tuple, set)):
                self.pay(len(value))
                stack += [(item, depth + 1) for item in value]


def check_integer(value: Any) -> None:
    """Raise ValueError for an integer that is too large."""
    if isinstance(value, int) and value.bit_length() > MAX_CONFIG_INTEGER_BITS:
        raise ValueError(f"integers of more than {MAX_CONFIG_INTEGER_BITS} bits are refused")


def check_key(key: Any) -> None:
    """Raise TypeError for the key of a dict, or element of a set, whose hash others could be made to share."""
    if not isinstance(key, (str, bytes, int, float, type(None))):
        raise TypeError(f"a key must be text, a number or None, got a {type(key).__name__}")
