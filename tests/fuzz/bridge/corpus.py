"""Random valid calls as the bytes that case.h describes, for a fuzzer to start from."""

import struct
from pathlib import Path
from typing import Any

import numpy as np

from tests import front_ends
from tests.fuzz.valid import Call, make_call

OPERATORS = list(dict.fromkeys(row["kernel"] for row in front_ends.ROWS))
"""In the order in which the library registers them."""


def attribute(kind: str, value: Any) -> bytes:
    """Return an attribute's bytes; without a value it is left out."""
    if value is None:
        return b"\0"
    if kind == "STRING":
        return struct.pack("<BB", 3, len(value)) + value.encode()
    if kind == "FLOAT":
        return struct.pack("<Bf", 2, value)
    if kind == "INTS":
        return struct.pack(f"<BB{len(value)}q", 4, len(value), *value)
    return struct.pack("<Bq", 1, value)


def encode(call: Call, threads: int = 1) -> bytes:
    """Return a call as bytes."""
    row = front_ends.row_of(call.operator)
    attributes = front_ends.onnx_attributes(call.operator, call.attributes)
    text = struct.pack("<BBB", OPERATORS.index(call.operator), 0, threads)
    for formal in row["attributes"]:
        text += attribute(formal["type"], attributes.get(formal["name"]))
    for array, formal in zip(call.arrays, row["inputs"], strict=False):
        sizes = struct.pack(f"<BB{array.ndim}H", 1, array.ndim, *array.shape)
        text += sizes + b"\0" + array.astype(formal["type"]).tobytes()
    return text


def write(folder: Path, count: int, seed: int = 0) -> list[Path]:
    """Write this many valid calls of each operator."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for operator in OPERATORS:
        for i in range(count):
            rng = np.random.default_rng([seed, i])
            path = folder / f"{operator}-{i}"
            path.write_bytes(encode(make_call(operator, rng), threads=i % 3))
            paths.append(path)
    return paths
