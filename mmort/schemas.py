"""The operators as ONNX knows them: types, domains, inputs, outputs and attributes, as objects.

The table is written once, in ``mmort/_kernels/operators.c``.  It is compiled into the ONNX Runtime library and, for the
torch door and the export, into mmort's extension module, so this module needs neither the library nor onnx.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

from mmort import _kernels

Value = int | float | str | tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    ``shape`` is written as the kernels' messages write it, ``[K, C, output_height, output_width]``: in an output a name
    is the dimension of that name in an input or the value of that attribute, ``M*D`` is a product of dimensions, ``?``
    is known only after the run, and ``...`` is all dimensions of the first input.
    """

    name: str
    type: str
    shape: str
    optional: bool


@dataclass(frozen=True)
class Attribute:
    """An attribute: ``type`` is INT, FLOAT, STRING or INTS; ``default`` None makes it required."""

    name: str
    type: str
    default: Value | None
    choices: tuple[str, ...] = ()
    former_name: str | None = None


@dataclass(frozen=True)
class Operator:
    """An ONNX operator: ``kernel`` is the stem that its functions in `mmort` and `mmort.torch` have as names."""

    domain: str
    type: str
    kernel: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: tuple[Attribute, ...]


def parse(description: str) -> tuple[Operator, ...]:
    """Return the operators in a library's description of itself (what ``mmort_describe`` writes, JSON)."""

    def attribute(row: dict[str, object]) -> Attribute:
        frozen = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        return Attribute(**frozen)  # type: ignore[arg-type]

    return tuple(
        Operator(
            row["domain"],
            row["type"],
            row["kernel"],
            tuple(Tensor(**one) for one in row["inputs"]),
            tuple(Tensor(**one) for one in row["outputs"]),
            tuple(map(attribute, row["attributes"])),
        )
        for row in json.loads(description)["operators"]
    )


@cache
def operators() -> tuple[Operator, ...]:
    """Return mmort's own operators, one for each domain and type; of several domains of a kernel the preferred first.

    Examples
    --------
    >>> import mmort.schemas
    >>> [(one.domain, one.type) for one in mmort.schemas.operators() if one.kernel == "corner_pool"]
    [('mmcv', 'MMCVCornerPool')]
    """
    return parse(_kernels.describe())
