"""Thresholds of scores and overlaps, which are between 0 and 1."""

from __future__ import annotations

import argparse


def share(value: str) -> float:
    """Parse a number from 0 to 1, an argument of a command."""
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, got {value}")
    return number
