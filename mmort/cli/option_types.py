"""Types of options: shares between 0 and 1, and whole numbers with a minimum."""

from __future__ import annotations

import argparse
from collections.abc import Callable


def share(value: str) -> float:
    """Parse a number from 0 to 1, such as a threshold."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {value}")
    return number


def at_least(minimum: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least `minimum`."""

    def parse(value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = minimum - 1
        if number < minimum:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {minimum}, got {value}")
        return number

    return parse


def sets_of_sizes(value: str) -> list[list[list[int]]]:
    """Parse runs, separated by commas, of shapes, separated by plus signs."""
    try:
        return [
            [[int(size) for size in shape.split("x") if size] for shape in shapes.split("+")]
            for shapes in value.split(",")
        ]
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be shapes such as 2x3x64x96,1x3x50x40, got {value!r}") from None
