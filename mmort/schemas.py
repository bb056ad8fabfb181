"""The operators' rows as objects: inputs, outputs, attributes, types, words and defaults.

The rows are written once, in ``mmort/_kernels/operators.c``.  They are compiled into the ONNX Runtime library and into
the extension module of the numpy API, from which they are read here: neither the library nor onnx is needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from types import EllipsisType
from typing import Any, NamedTuple

from mmort import _kernels

Value = int | float | str | tuple[int, ...]

ELEMENT_TYPES: dict[str, str] = {
    "float32": "tensor(float)",
    "float64": "tensor(double)",
    **{
        name: f"tensor({name})"
        for name in (
            *("bool", "float16", "bfloat16"),
            *("int8", "int16", "int32", "int64"),
            *("uint8", "uint16", "uint32", "uint64"),
        )
    },
}
"""Element types: numpy's name (which is also torch's), and the name in ONNX and ONNX Runtime."""


class Product(NamedTuple):
    """A dimension computed from others: ``M*D`` has two factors, ``C/groups`` a factor and a divisor."""

    factors: tuple[int | str, ...]
    divisors: tuple[int | str, ...] = ()


Dimension = int | str | Product | None | EllipsisType
"""A size, a name, a product, None for a size known only after the run, or ``...`` for any further dimensions."""


@dataclass(frozen=True)
class Tensor:
    """An input or an output.

    Attributes
    ----------
    name : str
        The same in ONNX and as an argument of the functions.
    type : str
        The element type in ONNX, by numpy's name of it; "float32" or "int64" in mmort's own rows.
    shape : str
        As in error messages, ``[K, C, output_height, output_width]``.  In an output, a name is the dimension of that
        name in an input or the value of that attribute, ``M*D`` is a product of dimensions, ``?`` is known only after
        the run, and ``...`` stands for all dimensions of the first input.
    optional : bool
        Whether it may be omitted.
    """

    name: str
    type: str
    shape: str
    optional: bool

    @cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """The parts of `shape`.

        Examples
        --------
        >>> from mmort.schemas import Tensor
        >>> Tensor("output", "float32", "[B, 2, M*D, ?]", False).dimensions
        ('B', 2, Product(factors=('M', 'D'), divisors=()), None)
        """
        return tuple(
            Product(*dimension) if isinstance(dimension, tuple) else dimension
            for dimension in _kernels.parse_shape(self.shape)
        )


@dataclass(frozen=True)
class Attribute:
    """An attribute of an ONNX operator, and the argument of the functions that it comes from.

    Attributes
    ----------
    name : str
        The name in ONNX.
    type : str
        INT, FLOAT, STRING or INTS (of two integers).
    default : int, float, str, tuple or None
        None if the attribute is required.
    choices : tuple of str
        The values that a STRING may have.
    former_name : str or None
        The name in old files, if it differs.
    argument : str
        The name of the argument.  Two INT attributes may share an argument, which is then a pair: ``output_size`` sets
        ``output_height`` and ``output_width``.
    words : tuple of str
        The words that the argument may be; empty if it is not a word.  The value of an INT is the index of the word.
    flag : bool
        Whether the argument of an INT is a bool.
    """

    name: str
    type: str
    default: Value | None
    choices: tuple[str, ...] = ()
    former_name: str | None = None
    argument: str = ""
    words: tuple[str, ...] = ()
    flag: bool = False

    def __post_init__(self) -> None:
        """Set the defaults of `argument` and `words`."""
        object.__setattr__(self, "argument", self.argument or self.name)
        object.__setattr__(self, "words", self.words or self.choices)


@dataclass(frozen=True)
class Operator:
    """A kernel's row, for one of its ONNX domains.

    Attributes
    ----------
    domain, type : str
        Those of the ONNX operator; empty if ONNX has none.
    kernel : str
        The name of its functions in `mmort` and `mmort.torch`.
    inputs, outputs : tuple of Tensor
    attributes : tuple of Attribute
    """

    domain: str
    type: str
    kernel: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: tuple[Attribute, ...]

    def words(self, argument: str) -> tuple[str, ...]:
        """Return the words that an argument of the functions may be; the kernel gets the index.

        Examples
        --------
        >>> import mmort.schemas
        >>> mmort.schemas.kernels()["grid_sample"].words("mode")
        ('bilinear', 'nearest', 'bicubic')
        """
        return next(attribute.words for attribute in self.attributes if attribute.argument == argument)


def parse(description: str) -> tuple[Operator, ...]:
    """Return the ONNX operators in a library's description of itself, the JSON text that ``mmort_describe`` writes."""
    return tuple(map(_operator, json.loads(description)["operators"]))


def _operator(row: dict[str, Any]) -> Operator:
    """Return a row of the description as an object."""
    return Operator(
        row.get("domain", ""),
        row.get("type", ""),
        row["kernel"],
        tuple(Tensor(**tensor) for tensor in row["inputs"]),
        tuple(Tensor(**tensor) for tensor in row["outputs"]),
        tuple(map(_attribute, row["attributes"])),
    )


def _attribute(row: dict[str, Any]) -> Attribute:
    """Return an attribute of the description as an object."""
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
    return Attribute(**fields)


@cache
def operators() -> tuple[Operator, ...]:
    """Return mmort's ONNX operators, one for each domain and type; a kernel's preferred domain comes first.

    Examples
    --------
    >>> import mmort.schemas
    >>> [(row.domain, row.type) for row in mmort.schemas.operators() if row.kernel == "corner_pool"]
    [('mmcv', 'MMCVCornerPool')]
    """
    return parse(_kernels.describe())


@cache
def kernels() -> dict[str, Operator]:
    """Return mmort's operators by the name of their functions, each in its preferred domain.

    Operators that ONNX does not have are included, with an empty domain and type.

    Examples
    --------
    >>> import mmort.schemas
    >>> [attribute.words for attribute in mmort.schemas.kernels()["box_iou"].attributes if attribute.words]
    [('iou', 'iof')]
    """
    numpy_only = map(_operator, json.loads(_kernels.describe())["numpy_only"])
    return dict(sorted({operator.kernel: operator for operator in (*reversed(operators()), *numpy_only)}.items()))
