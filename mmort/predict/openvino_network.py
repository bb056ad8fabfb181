"""A detector's file in OpenVINO, in float32 or bfloat16.

OpenVINO's own default is the processor's fastest type, bfloat16 where it can, in which detections differ.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mmort.predict.network import DetectorFile, require_counts, require_model

_HINTS = {"float32": "f32", "bfloat16": "bf16"}
"""OpenVINO's names."""

_first_run = threading.Lock()
"""OpenVINO's module fills tables in the first run of a process, and deadlocks if two threads do so at once."""


class OpenVinoNetwork(DetectorFile):
    """A portable file of a detector (``mmort portable --portable=inlined``) in OpenVINO on the CPU.

    It can be pickled: the file is compiled again, from the same path.

    Parameters
    ----------
    path : path
    threads : int, optional
        Threads for the operators.  By default one for each core.
    parallel : int, default 1
        Callers at the same time that `threads` is shared by.
    precision : {"float32", "bfloat16"}, default "float32"
        What OpenVINO computes in.  bfloat16 is several times as fast on processors that can; detections then differ.

    Raises
    ------
    OSError
        If there is no such file.
    ValueError
        If the file has other operators than ONNX's, OpenVINO cannot load it, it is not a detector's, or the
        processor has no bfloat16.
    ImportError
        If openvino or onnx is not installed.
    """

    _has_run = False  # any of the process

    def __init__(
        self,
        path: str | os.PathLike[str],
        threads: int | None = None,
        parallel: int = 1,
        precision: Literal["float32", "bfloat16"] = "float32",
    ) -> None:
        if precision not in _HINTS:
            raise ValueError(f"precision must be 'float32' or 'bfloat16', got {precision!r}")
        self._arguments = os.fspath(path), threads, parallel, precision
        require_counts(threads=threads, parallel=parallel)
        model = _standard_model(os.fspath(path))
        compiled = _compile(os.fspath(path), threads, parallel, precision)
        arguments = [_argument(port) for port in compiled.inputs]
        super().__init__(
            os.fspath(path),
            [argument for argument in arguments if argument.name != "img_shape"],
            [output.name for output in model.graph.output],
            {entry.key: entry.value for entry in model.metadata_props},
            parallel,
        )
        self._takes_img_shape = len(arguments) > 1
        self._requests: SimpleQueue[Any] = SimpleQueue()  # those that no thread uses
        for _ in range(parallel):
            self._requests.put(compiled.create_infer_request())

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenVinoNetwork, self._arguments

    def __call__(self, input: NDArray[np.float32], img_shape: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Run the file on a batch; see `Network`."""
        feeds: dict[str, NDArray[Any]] = {self._input: input}
        if self._takes_img_shape:
            feeds["img_shape"] = img_shape
        if OpenVinoNetwork._has_run:
            return self._run(feeds)
        with _first_run:
            outputs = self._run(feeds)
            OpenVinoNetwork._has_run = True
        return outputs

    def _run(self, feeds: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        request = self._requests.get()
        try:
            request.infer(feeds)
            return [np.array(request.get_tensor(name).data) for name in self._outputs]  # its memory is used again
        finally:
            self._requests.put(request)


class _Argument(NamedTuple):
    """An input, described as ONNX Runtime does."""

    name: str
    type: str
    shape: list[int | None]


def _argument(port: Any) -> _Argument:
    """Describe an input of OpenVINO."""
    sizes = [size.get_length() if size.is_static else None for size in port.get_partial_shape()]
    kind = "float" if port.get_element_type().get_type_name() == "f32" else port.get_element_type().get_type_name()
    return _Argument(port.get_any_name(), f"tensor({kind})", sizes)


def _standard_model(path: str) -> Any:
    """Read a file; refuse one that OpenVINO would refuse in other words, or on which it would crash."""
    require_model(path)
    try:
        import onnx
    except ModuleNotFoundError:
        raise ImportError("engine openvino needs onnx: pip install 'mmort[openvino]'") from None
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:  # protobuf's implementations raise different classes
        raise ValueError(f"{path} is not an ONNX model: {error}") from None
    domains = {opset.domain for opset in model.opset_import} - {"", "ai.onnx"}
    if domains or any(tensor.type.HasField("optional_type") for tensor in model.graph.input):
        found = f"operators of {', '.join(sorted(domains))}" if domains else "inputs of an optional type"
        raise ValueError(
            f"{path}: OpenVINO needs a file with ONNX's operators only, but this one has {found}; make one: mmort "
            "portable FILE --output OTHER --portable=inlined"
        )
    return model


def _compile(path: str, threads: int | None, parallel: int, precision: str) -> Any:
    """Load a file into OpenVINO, with ``img_shape``, if it has that, as an input."""
    try:
        import openvino
    except ModuleNotFoundError:
        raise ImportError("engine openvino needs openvino: pip install 'mmort[openvino]'") from None
    core = openvino.Core()
    if precision == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        raise ValueError(
            "this processor has no bfloat16, and OpenVINO would compute in float32; for that, use engine openvino"
        )
    settings: dict[str, Any] = {"INFERENCE_PRECISION_HINT": _HINTS[precision], "NUM_STREAMS": parallel}
    if threads is not None:
        settings["INFERENCE_NUM_THREADS"] = threads
    try:
        model = core.read_model(path)
        _add_img_shape(model)
        return core.compile_model(model, "CPU", settings)
    except Exception as error:  # OpenVINO documents no classes of exceptions
        raise ValueError(f"{path}: OpenVINO cannot load this file: {' '.join(str(error).split())}") from error


def _add_img_shape(model: Any) -> None:
    """Turn the default of ``img_shape``, which OpenVINO reads as a constant, into an input."""
    from openvino import PartialShape, opset13

    for node in model.get_ops():
        if node.get_friendly_name() == "img_shape" and node.get_type_name() == "Constant":
            parameter = opset13.parameter(PartialShape([-1, 2]), np.int64, "img_shape")
            parameter.output(0).set_names({"img_shape"})
            node.output(0).replace(parameter.output(0))
            model.add_parameters([parameter])
            model.validate_nodes_and_infer_types()
