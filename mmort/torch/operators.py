"""The operators as custom operators of torch, ``torch.ops.mmort.<name>``, and numpy functions as functions of tensors.

Everything is derived from the operators' rows and the signatures of the numpy functions: a new operator needs no edit.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any, NamedTuple, ParamSpec, TypeVar, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils import _pytree as pytree

import mmort
from mmort import schemas
from mmort.ops._other_names import refuse_other_names, refuse_other_values
from mmort.ops.nms import KeptBoxes as KeptArrays
from mmort.ops.nms import SelectedDetections as SelectedArrays
from mmort.torch.definition import define
from mmort.torch.gradients import GRADIENTS, register

P = ParamSpec("P")
R = TypeVar("R")
Array = NDArray[Any]


class KeptBoxes(NamedTuple):
    """Result of a suppression: the boxes that it keeps with their scores, and their indices among the inputs."""

    dets: Tensor
    indices: Tensor


class SelectedDetections(NamedTuple):
    """Result of `multiclass_nms`."""

    dets: Tensor
    labels: Tensor
    indices: Tensor


RESULTS: dict[type, type[Any]] = {KeptArrays: KeptBoxes, SelectedArrays: SelectedDetections}
"""The named tuples of tensors, by those of arrays."""

for _result in RESULTS.values():  # so that torch.export.save can write a model that returns one
    pytree._register_namedtuple(_result, serialized_type_name=f"mmort.torch.{_result.__name__}")

OPERATORS: dict[str, Callable[..., Any]] = {
    name: define(f"mmort::{name}", getattr(mmort, name), operator)
    for name, operator in schemas.kernels().items()
    if operator.type
}
"""The operators that ONNX has too, by name."""

_WRONG_TYPE = re.compile(
    r"Expected a value of type '(?P<required>.+)' for argument '(?P<name>\w+)' but instead found type '(?P<given>\w+)'"
)
_TYPES = {"float": "a number", "int": "an integer", "List[int]": "an integer", "str": "a string", "bool": "a bool"}
"""Types of torch's schemas in words."""

for _name, _gradient in GRADIENTS.items():
    register(OPERATORS[_name], _gradient)


def no_gradient(name: str) -> str:
    """Return the error for a backward pass through an operator without a gradient."""
    return f"{name}: has no gradient; call it under torch.no_grad(), or on tensors from which detach() removed theirs"


def refuse_gradient(name: str, operator: Any) -> None:
    """Let a backward pass through an operator without a gradient say what to do."""

    def backward(ctx: Any, *gradients: Tensor) -> None:
        raise RuntimeError(no_gradient(name))

    operator.register_autograd(backward)


for _name in OPERATORS.keys() - GRADIENTS.keys():
    refuse_gradient(_name, OPERATORS[_name])


@overload
def on_tensors(function: Callable[P, Array]) -> Callable[P, Tensor]: ...
@overload
def on_tensors(function: Callable[P, KeptArrays]) -> Callable[P, KeptBoxes]: ...
@overload
def on_tensors(function: Callable[P, SelectedArrays]) -> Callable[P, SelectedDetections]: ...
def on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the numpy function as a function of tensors that calls the custom operator of its name."""
    operator = OPERATORS[function.__name__]
    named = RESULTS.get(_signature_of_arrays(function).return_annotation)

    def call(*args: Any, **kwargs: Any) -> Any:
        results = operator(*args, **kwargs)
        return results if named is None else named(*results)

    summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
    contract = f"The arguments, results and errors are those of `mmort.{function.__name__}`, on tensors."
    call.__doc__, call.__module__ = f"{summary}\n\n{contract}", "mmort.torch"
    return mirrors(function)(call)


def mirrors(function: Callable[P, Any]) -> Callable[[Callable[..., R]], Callable[P, R]]:
    """Decorate a function of tensors with the name and signature of the numpy function that it mirrors."""
    signature = _signature(function)
    tensors = {
        name: parameter.default is None
        for name, parameter in signature.parameters.items()
        if parameter.annotation in (Tensor, Tensor | None)
    }

    def decorate(implementation: Callable[..., R]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if torch.compiler.is_compiling():
                return implementation(*args, **kwargs)
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                refuse_other_names(function.__name__, kwargs, signature.parameters)
                raise TypeError(f"{function.__name__}: {error}") from None
            for name, value in bound.arguments.items():
                refuse_other_values(function.__name__, name, value)
                if name in tensors:
                    require_tensor(function.__name__, name, value, optional=tensors[name])
            try:
                return implementation(*args, **kwargs)
            except RuntimeError as error:
                _explain_type(function.__name__, error)
                raise

        call.__name__ = call.__qualname__ = function.__name__
        call.__module__, call.__doc__ = implementation.__module__, implementation.__doc__
        vars(call)["__signature__"] = signature
        return call

    return decorate


def require_tensor(function: str, name: str, value: Any, *, optional: bool = False) -> None:
    """Raise TypeError if a value is no tensor; torch's own error prints all of an array, on many lines."""
    if isinstance(value, Tensor) or hasattr(value, "__torch_function__") or (optional and value is None):
        return
    takes_arrays = isinstance(value, np.ndarray) and hasattr(mmort, function)
    advice = f"; mmort.{function} takes arrays" if takes_arrays else ""
    raise TypeError(f"{function}: {name} must be a tensor, got {type(value).__name__}{advice}")


def _explain_type(function: str, error: RuntimeError) -> None:
    """Raise TypeError if torch's error, which has four lines, is that an argument has the wrong type."""
    wrong = _WRONG_TYPE.search(str(error))
    if wrong is not None:
        required = _TYPES.get(wrong["required"], wrong["required"])
        raise TypeError(f"{function}: {wrong['name']} must be {required}, got {wrong['given']}") from None


def _signature(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a numpy function with tensors instead of arrays."""
    signature = _signature_of_arrays(function)
    tensors: dict[Any, Any] = {ArrayLike: Tensor, ArrayLike | None: Tensor | None}
    parameters = [
        parameter.replace(annotation=tensors.get(parameter.annotation, parameter.annotation))
        for parameter in signature.parameters.values()
    ]
    returned = RESULTS.get(signature.return_annotation, Tensor)
    return signature.replace(parameters=parameters, return_annotation=returned)


def _signature_of_arrays(function: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a numpy function, its annotations evaluated."""
    return inspect.signature(function, eval_str=True)
