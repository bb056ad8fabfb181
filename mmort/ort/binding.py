"""`mmort.ort.Binding`: the inputs and outputs of a session in memory that the caller owns."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.schemas import ELEMENT_TYPES

if TYPE_CHECKING:
    import onnxruntime
    import torch

_NUMPY_NAMES = {element_type: name for name, element_type in ELEMENT_TYPES.items()}
_OPTIONAL = "optional("  # before the element type of an input that may be left out
_BFLOAT16 = 16  # onnx.TensorProto.BFLOAT16, which numpy has no type for


class _Memory(NamedTuple):
    """An array's memory, in the order of the arguments of ``bind_input`` and ``bind_output`` in onnxruntime."""

    device: str
    device_id: int
    element_type: Any
    shape: list[int]
    address: int


class Binding:
    """A session's inputs and outputs bound to arrays, which are read and written in place.

    Bind once, then change the arrays and call `run` as often as needed.  This pays off for outputs that have to end up
    in existing memory, and for torch tensors on a GPU; on the CPU, ``session.run`` does not copy inputs or outputs
    either.

    Parameters
    ----------
    session : onnxruntime.InferenceSession
    inputs, outputs : mapping of str to ndarray or torch.Tensor, optional
        Arrays by name, passed to `bind_input` and `bind_output`.

    Raises
    ------
    ValueError, TypeError
        For the same reasons as `bind_input` and `bind_output`.

    Notes
    -----
    The arrays are kept alive.  A binding must be used by one thread at a time.  GPU memory requires a session with the
    CUDA provider; `run` then waits until torch's queued work is done, and returns when the outputs are written.

    Examples
    --------
    >>> import numpy as np, onnx, onnx.helper as oh
    >>> import mmort.ort
    >>> node = oh.make_node("cummax", ["x"], ["y", "i"], domain="mmcv", dim=0)
    >>> x, y = (oh.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N"]) for name in "xy")
    >>> i = oh.make_tensor_value_info("i", onnx.TensorProto.INT64, ["N"])
    >>> graph = oh.make_graph([node], "example", [x], [y, i])
    >>> model = oh.make_model(graph, opset_imports=[oh.make_opsetid("mmcv", 1)], ir_version=8)
    >>> x, y = np.array([1, 3, 2], np.float32), np.empty(3, np.float32)
    >>> binding = mmort.ort.Binding(mmort.ort.session(model.SerializeToString()), {"x": x}, {"y": y})
    >>> results = binding.run()
    >>> y
    array([1., 3., 3.], dtype=float32)
    >>> results["y"] is y, results["i"].tolist()
    (True, [0, 1, 1])
    """

    def __init__(
        self,
        session: onnxruntime.InferenceSession,
        inputs: Mapping[str, NDArray[Any] | torch.Tensor] | None = None,
        outputs: Mapping[str, NDArray[Any] | torch.Tensor] | None = None,
    ) -> None:
        self._session = session
        self._binding = session.io_binding()
        self._inputs = {tensor.name: tensor for tensor in session.get_inputs()}
        self._outputs = {tensor.name: tensor for tensor in session.get_outputs()}
        self._arrays: dict[str, Any] = {}  # keeps inputs alive: the binding stores addresses only
        self._results: dict[str, Any] = dict.fromkeys(self._outputs)
        self._on_gpu = False
        for name in self._outputs:
            self._binding.bind_output(name)
        for name, array in (inputs or {}).items():
            self.bind_input(name, array)
        for name, array in (outputs or {}).items():
            self.bind_output(name, array)

    def bind_input(self, name: str, array: NDArray[Any] | torch.Tensor) -> None:
        """Make the session read an input from an array; each run uses the values that the array has then.

        Parameters
        ----------
        name : str
            The name of one of the session's inputs.
        array : ndarray or torch.Tensor
            Of the input's dtype and shape, in C order, on the CPU or a CUDA device.  Replaces any array bound before.

        Raises
        ------
        ValueError
            If the session has no such input, or the dtype, shape, order or device of `array` does not fit.
        TypeError
            If `array` is neither an ndarray nor a tensor.
        """
        self._binding.bind_input(name, *self._memory("input", self._inputs, name, array))
        self._arrays[name] = array

    def bind_output(self, name: str, array: NDArray[Any] | torch.Tensor) -> None:
        """Make the session write an output into an array.

        Parameters
        ----------
        name : str
            The name of one of the session's outputs.
        array : ndarray or torch.Tensor
            As for `bind_input`, and writeable.

        Raises
        ------
        ValueError, TypeError
            For the same reasons as `bind_input`, or if `array` is read-only.  Dimensions that the model leaves open are
            compared by ONNX Runtime in each run.
        """
        memory = self._memory("output", self._outputs, name, array)
        if isinstance(array, np.ndarray) and not array.flags.writeable:
            raise ValueError(f"mmort.ort.Binding: output {name} must be writeable, got a read-only array")
        self._binding.bind_output(name, *memory)
        self._results[name] = array

    def run(self) -> dict[str, Any]:
        """Run the session.

        Returns
        -------
        dict
            The outputs by name: the bound array, or a new numpy array for an output that is not bound.

        Raises
        ------
        Exception
            Any exception of onnxruntime, for instance if an input is not bound, or if the shape of a bound output is
            not the one that the model computes.
        """
        unbound = [name for name, array in self._results.items() if array is None]
        for name in unbound:  # or ONNX Runtime would reuse, and require the shape of, the last run's output
            self._binding.bind_output(name)
        if self._on_gpu:
            sys.modules["torch"].cuda.synchronize()
        self._session.run_with_iobinding(self._binding)
        if self._on_gpu:
            self._binding.synchronize_outputs()
        if not unbound:
            return dict(self._results)
        results = zip(self._results.items(), self._binding.get_outputs(), strict=True)
        return {name: value.numpy() if array is None else array for (name, array), value in results}

    def _memory(self, kind: str, tensors: dict[str, Any], name: str, array: Any) -> _Memory:
        """Return the memory of an array, checked against the session's input or output of that name."""
        if name not in tensors:
            raise ValueError(f"mmort.ort.Binding: {kind} must be one of {', '.join(tensors)}, got {name}")
        is_tensor = hasattr(array, "data_ptr")  # torch need not be imported to recognize its tensors
        if not is_tensor and not isinstance(array, np.ndarray):
            raise TypeError(
                f"mmort.ort.Binding: {kind} {name} must be a numpy array or a torch tensor, got {type(array).__name__}"
            )
        dtype = _check_type(f"{kind} {name}", tensors[name], array)
        if not (array.is_contiguous() if is_tensor else array.flags.c_contiguous):
            raise ValueError(
                f"mmort.ort.Binding: {kind} {name} must be contiguous in C order, got another order in memory"
            )
        element_type = _BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype).type
        if not is_tensor:
            return _Memory("cpu", 0, element_type, list(array.shape), array.ctypes.data)
        device = array.device
        if device.type == "cuda" and "CUDAExecutionProvider" in self._session.get_providers():
            self._on_gpu = True
        elif device.type != "cpu":
            raise ValueError(
                f"mmort.ort.Binding: {kind} {name} must be on the CPU, or on a CUDA device if the session has the CUDA "
                f"provider, got a tensor on {device.type}"
            )
        address = array.data_ptr() or id(array)  # ONNX Runtime refuses 0, which an empty tensor has
        return _Memory(device.type, device.index or 0, element_type, list(array.shape), address)


def _check_type(name: str, tensor: Any, array: Any) -> str:
    """Return the name of the array's dtype; raise ValueError if dtype or shape differ from those of the tensor."""
    element_type = tensor.type
    if element_type.startswith(_OPTIONAL):
        element_type = element_type[len(_OPTIONAL) : -1]
    expected = _NUMPY_NAMES.get(element_type, element_type)
    dtype, shape = str(array.dtype).removeprefix("torch."), list(array.shape)
    # An empty list of dimensions means a scalar or an unknown rank.
    fits = not tensor.shape or len(tensor.shape) == len(shape)
    fits = fits and all(
        not isinstance(size, int) or size == actual for size, actual in zip(tensor.shape, shape, strict=False)
    )
    if not fits or dtype != expected:
        raise ValueError(
            f"mmort.ort.Binding: {name} must be {expected} [{', '.join(map(str, tensor.shape))}], got {dtype} {shape}"
        )
    return dtype
