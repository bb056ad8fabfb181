"""Hostile values of JSON, and valid documents with some of them inside."""

import copy
import json
import random
from typing import Any

ATOMS: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    2,
    31,
    1000,
    2**24,
    10**9,
    2**31,
    2**63,
    10**30,
    -(10**400),
    0.5,
    -0.0,
    1e-300,
    1e30,
    1e39,
    1e300,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "x",
    "no",
    "1",
    "nan",
    "../x",
    "/dev/zero",
    "/",
    ".",
    "a\0b",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "a" * 300,
    [],
    {},
    [1, 2],
    [0, 0, 1, 1],
    [[0, 0, 9, 0, 9, 9]],
    {"size": [1, 1], "counts": [1]},
    {"size": [20, 30], "counts": "0" * 100},
    [None],
    [[]],
    ["a", "b"],
)


def value(rng: random.Random, depth: int = 2) -> Any:
    """Return a value, small and of any kind."""
    kind = rng.random()
    if depth and kind < 0.1:
        return [value(rng, depth - 1) for _ in range(rng.randrange(4))]
    if depth and kind < 0.2:
        return {str(rng.randrange(4)): value(rng, depth - 1) for _ in range(rng.randrange(3))}
    return copy.deepcopy(rng.choice(ATOMS))


def mutated(rng: random.Random, document: Any, changes: int) -> Any:
    """Return a document with some values replaced, removed, repeated or added."""
    document = copy.deepcopy(document)
    for _ in range(changes):
        parent, key = rng.choice(list(_positions(document)) or [(None, None)])
        action = rng.random()
        if parent is None or action < 0.03:
            document = value(rng)
        elif action < 0.15:
            del parent[key]
        elif action < 0.25 and isinstance(parent, list):
            parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
        elif action < 0.35:
            _, other = rng.choice(list(_positions(document)))
            parent[key] = copy.deepcopy(other) if isinstance(other, (str, int)) else value(rng)
        else:
            parent[key] = value(rng)
    return document


def text(rng: random.Random, document: Any) -> str:
    """Return a document as JSON, sometimes damaged, cut short or very deep."""
    written = json.dumps(document)
    kind = rng.random()
    if kind < 0.04:
        position = rng.randrange(len(written) + 1)
        return written[:position] + rng.choice(("", "}", '"', "\\u", "9", ",", "[", "\0")) + written[position + 1 :]
    if kind < 0.06:
        return written[: rng.randrange(len(written) + 1)]
    if kind < 0.07:
        return rng.choice(("[", '{"a":')) * rng.choice((900, 100_000))
    if kind < 0.08:
        return "9" * rng.choice((5, 100_000))
    return written


def _positions(document: Any) -> Any:
    """Yield each container with each of its keys or indices."""
    keys = document.keys() if isinstance(document, dict) else range(len(document)) if isinstance(document, list) else ()
    for key in keys:
        yield document, key
        yield from _positions(document[key])
