"""A limit on time and memory: reading a config takes steps from a budget, so that no config takes long."""

from __future__ import annotations

from typing import Any

MAX_STEPS = 3_000_000  # of the published configs the largest takes 475,116 (MMDetection 3.3.0, GLIP on 35 data sets)
MAX_DEPTH = 100  # containers within containers


class Budget:
    """The remaining steps for a config and its bases.

    A step is a syntax node evaluated, or an element or character handled.
    """

    def __init__(self, steps: int = MAX_STEPS) -> None:
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
            if depth > MAX_DEPTH:
                raise ValueError(f"containers are nested more than {MAX_DEPTH} deep")
            self.pay(1 + len(value) if isinstance(value, (str, bytes, range)) else 1)
            if isinstance(value, dict):
                stack += [(item, depth + 1) for pair in dict.items(value) for item in pair]
            elif isinstance(value, (list, tuple, set)):
                self.pay(len(value))
                stack += [(item, depth + 1) for item in value]
