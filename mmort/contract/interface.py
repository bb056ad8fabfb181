"""The inputs, outputs and metadata of a file, whoever has opened it: ONNX Runtime, onnx, or another engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from mmort.contract.tasks import SIZES
from mmort.schemas import ELEMENT_TYPES

_WITH_DEFAULTS = {tensor.name for tensor in SIZES}

_DTYPES = {name: dtype for dtype, name in ELEMENT_TYPES.items()}
"""numpy's names by those of ONNX Runtime."""


class Argument(NamedTuple):
    """An input or output.

    Attributes
    ----------
    name : str
    dtype : str or None
        numpy's name; of what is no tensor, ONNX Runtime's; None if it is not stated.
    shape : tuple of int, str or None, or None
        A name or None for a size that is not fixed; None if the number of dimensions is not stated.
    is_optional : bool, default False
        Whether it may be left out.
    """

    name: str
    dtype: str | None
    shape: tuple[int | str | None, ...] | None
    is_optional: bool = False

    @property
    def fixed_sizes(self) -> tuple[int | None, ...]:
        """The sizes that are fixed, and None for others."""
        return tuple(size if isinstance(size, int) else None for size in self.shape or ())

    def __str__(self) -> str:
        return f"{self.name} {self.dtype or 'no tensor'} {'?' if self.shape is None else [*self.shape]}"


class Interface(NamedTuple):
    """The inputs, outputs and metadata of a file.

    Examples
    --------
    >>> from mmort.contract import Interface
    >>> from mmort.demo import MODEL
    >>> import mmort.ort
    >>> print(Interface.of_session(mmort.ort.session(MODEL)).inputs[0])
    input float32 ['batch', 3, 'height', 'width']
    """

    inputs: tuple[Argument, ...]
    """Without the weights, which old exporters list as inputs."""
    outputs: tuple[Argument, ...]
    metadata: Mapping[str, str]

    @classmethod
    def of_session(cls, session: Any) -> Interface:
        """Return that of an ``onnxruntime.InferenceSession``."""
        defaults = [value for value in session.get_overridable_initializers() if value.name in _WITH_DEFAULTS]
        inputs = *map(_of_runtime, session.get_inputs()), *(_of_runtime(value, True) for value in defaults)
        outputs = tuple(map(_of_runtime, session.get_outputs()))
        return cls(inputs, outputs, session.get_modelmeta().custom_metadata_map)

    @classmethod
    def of_model(cls, model: Any) -> Interface:
        """Return that of an ``onnx.ModelProto``."""
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [
            argument_of(value, value.name in weights)
            for value in model.graph.input
            if value.name not in weights or value.name in _WITH_DEFAULTS
        ]
        outputs = tuple(map(argument_of, model.graph.output))
        return cls(tuple(inputs), outputs, {entry.key: entry.value for entry in model.metadata_props})


def argument_of(value: Any, has_default: bool = False) -> Argument:
    """Return an ``onnx.ValueInfoProto`` as an `Argument`."""
    import onnx

    is_optional = value.type.HasField("optional_type")
    kind = value.type.optional_type.elem_type if is_optional else value.type
    dtype, shape = None, None
    if kind.HasField("tensor_type"):
        name = onnx.TensorProto.DataType.Name(kind.tensor_type.elem_type).lower()
        dtype = {"float": "float32", "double": "float64"}.get(name, name)
        if kind.tensor_type.HasField("shape"):
            shape = tuple(
                size.dim_value if size.HasField("dim_value") else size.dim_param or None
                for size in kind.tensor_type.shape.dim
            )
    return Argument(value.name, dtype, shape, is_optional or has_default)


def _of_runtime(value: Any, has_default: bool = False) -> Argument:
    """Return an ``onnxruntime.NodeArg`` as an `Argument`."""
    kind = value.type.removeprefix("optional(")
    is_optional = kind != value.type
    kind = kind.removesuffix(")") if is_optional else kind
    return Argument(value.name, _DTYPES.get(kind, kind), tuple(value.shape), is_optional or has_default)
